#!/bin/sh
# info.t - optimfs info of checkpoints and mounts, and the verbs on paths in a
# mount
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt
state=optim/state/layers.0.wq.weight

# has NAME REGEXP: does a line of the last output match?
has() {
	grep -qE -- "$2" "$scratch/out"
	tap_result $? "$1" || tap_said
}

lacks() {
	! grep -qE -- "$2" "$scratch/out"
	tap_result $? "$1" || tap_said
}

ok "info of a checkpoint succeeds" "$OPTIMFS" info "$ck"
[ "$(wc -l <"$scratch/out")" -le 24 ]
tap_result $? "info fits on one screen of 24 lines"
has "info prints the format" '^format +PyTorch distributed checkpoint \(dcp\)'
has "info prints the number of ranks" '^job +3 ranks$'
has "info prints the optimizer, its step and its states" \
    '^optimizer .* at step 3; [0-9]+ parameters have exp_avg \(float32\), exp_avg_sq \(float32\), step$'
has "info prints the options of param groups" '^  group 0  lr 0\.001, betas \[0\.9, 0\.999\]'
has "info prints the number of files and their bytes" '^files +[0-9]+, [0-9.]+ kB; the tensors are '
has "info prints the number of parameters and elements" \
    '^parameters +[0-9]+ tensors, [0-9]+ elements'
has "info prints each dtype with its share" '^dtypes +float32 [0-9.]+ %'
has "info prints how many tensors are sharded over how many ranks" \
    '^sharding +[0-9]+ of [0-9]+ tensors in parts over 3 ranks \([0-9]+ along dim 0'
has "info of a complete checkpoint says that nothing is missing" '^missing +nothing$'
has "info lists the formats it can be resharded to" '^reshard to +dcp@N, .*safetensors, torch'
lacks "info does not mention flat parameters, which there are none of" OFS170

has "info prints the type of the parameters" '^parameters .* elements \(float32\), '
deepspeed=$TOP_SRCDIR/tests/data/deepspeed
ok "info of ZeRO 3 succeeds" "$OPTIMFS" info "$deepspeed/z3_ws2_bf16/ckpt"
has "info prints the version of DeepSpeed and the stage" 'written by DeepSpeed 0\.14\.5 \(ZeRO stage 3\), '
has "info prints the type that most elements have" ' elements \(mostly bfloat16\), '
ok "info of a universal checkpoint succeeds" "$OPTIMFS" info "$deepspeed/z2_ws2_bf16/ckpt_universal"
has "info prints the version that wrote a universal checkpoint" 'written by DeepSpeed 0\.14\.5, '
has "info prints the ranks of the job before its checkpoint was made universal" '^job +2 ranks$'
cp -r "$deepspeed/z2_ws2_bf16/ckpt_universal" "$scratch/universal" && chmod -R u+w "$scratch/universal"
rm "$scratch/universal/global_step3_universal/zero/small/fp32.pt"
ok "info of a universal checkpoint without a state succeeds" "$OPTIMFS" info "$scratch/universal"
has "info counts what is missing without an entry in the tree" '^missing +1 item$'
flat=$TOP_SRCDIR/tests/data/pytorch/fsdp1_local_flat_fullshard_w3/ckpt
ok "info of rank files succeeds" "$OPTIMFS" info "$flat"
has "info says that each rank has a file" '^format .*, one file per rank, written by '

# A disk that became full leaves empty files.
for name in model.pt model.safetensors model.npz; do
	rm -rf "$scratch/empty" && mkdir "$scratch/empty"
	cp "$TOP_SRCDIR/tests/data/extra/torch_save/adam.pt" "$scratch/empty/optim.pt"
	: >"$scratch/empty/$name"
	ok "info of an empty $name beside a file succeeds" "$OPTIMFS" info "$scratch/empty"
	has "info says that an empty $name cannot be read" '^missing +1 file that cannot be read$'
	has "info names the empty $name" "^  OFS[0-9]+ $name: "
	status "fsck of an empty $name exits with 1" 1 "$OPTIMFS" fsck "$scratch/empty"
done

mkdir "$scratch/trainer"
cp "$TOP_SRCDIR/tests/data/pytorch/safetensors_plain/ckpt/model.safetensors" "$scratch/trainer"
echo '{"global_step": 3}' >"$scratch/trainer/trainer_state.json"
ok "info of weights beside trainer_state.json succeeds" "$OPTIMFS" info "$scratch/trainer"
has "info of weights beside trainer_state.json prints the format of the weights" \
    '^format +safetensors, written by Hugging Face Trainer'

: >"$scratch/trainer/._model.safetensors"
ok "info of a directory with a file of macOS succeeds" "$OPTIMFS" info "$scratch/trainer"
has "info says how much it leaves out" '^left out +1 name in the directory$'
has "info says why it leaves a file out" '^  \._model\.safetensors: foreign: of macOS$'
ok "info --json of it succeeds" "$OPTIMFS" info --json "$scratch/trainer"
has "info --json lists what it leaves out" \
    '"left_out": *\[\{"path": *"\._model\.safetensors", *"kind": *"foreign", *"why": *"of macOS"\}\]'
ok "fsck of a directory with a file of macOS succeeds" "$OPTIMFS" fsck "$scratch/trainer"

ok "info of a directory succeeds" "$OPTIMFS" info "$ck" $state
has "info of a directory counts the tensors below it" '^holds +3 tensors, 289 elements, '
ok "info of a tensor succeeds" "$OPTIMFS" info "$ck" $state/exp_avg
has "info of a tensor prints its dtype" '^dtype: float32$'
has "info of a tensor prints the rows of rank 0" '^    0\.\.3 +0$'
has "info of a tensor prints the rows of rank 2" '^    8\.\.11 +2$'
status "info of a missing path exits with 3" 3 "$OPTIMFS" info "$ck" optim/none

cp -r "$ck" "$scratch/hurt" && chmod -R u+w "$scratch/hurt"
rm "$scratch/hurt/__1_0.distcp"
ok "info of a checkpoint with a missing file succeeds" "$OPTIMFS" info "$scratch/hurt"
has "info counts the tensors and values of the missing file" \
    '^missing +1 file; a part or all of [0-9]+ tensors and values '
has "info names the missing file with OFS140" '^  OFS140 .*__1_0\.distcp'
lacks "info of an incomplete checkpoint does not call it undamaged" 'nothing known'
has "info of an incomplete checkpoint lists no reshard target" '^reshard to +nothing$'
cp "$ck/__1_0.distcp" "$scratch/hurt/"
rm "$scratch/hurt/__2_0.distcp"
ok "info of a checkpoint without the file of options succeeds" "$OPTIMFS" info "$scratch/hurt"
has "info says which options of a group it cannot show" '^  group 0  lr cannot be shown, '
cp "$ck/__2_0.distcp" "$scratch/hurt/"
truncate -s 100000 "$scratch/hurt/__2_0.distcp"
ok "info of a checkpoint with a truncated file succeeds" "$OPTIMFS" info "$scratch/hurt"
has "info says that the end of one file is missing" \
    '^missing +the end of 1 file; a part or all of [0-9]+ tensors and values '
has "info gives the truncated file as the reason against dcp@N" \
    '^  not dcp@N, .*: OFS140 a part or all of [1-9][0-9]* tensors and values is missing$'
cp "$ck/__2_0.distcp" "$scratch/hurt/" && rm "$scratch/hurt/__1_0.distcp"
# No file of the others names the lost one: the elements are in no shard.
cp -r "$TOP_SRCDIR/tests/data/deepspeed/z3_ws2_bf16/ckpt" "$scratch/half" && chmod -R u+w "$scratch/half"
rm "$scratch/half/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
ok "info of ZeRO 3 without the file of a rank succeeds" "$OPTIMFS" info "$scratch/half"
has "info counts tensors with elements in no file" '^missing +a part or all of 57 tensors and values '
has "info of ZeRO 3 without the file of a rank lists no reshard target" '^reshard to +nothing$'
"$OPTIMFS" info -o fill=zero "$scratch/half" >"$scratch/out"
has "info with fill=zero does not count moments that are read as zeros" \
    '^missing +a part or all of 29 tensors and values '
"$OPTIMFS" fsck "$scratch/half" >"$scratch/out"
has "fsck counts tensors with elements in no file in one line" \
    '^error: OFS607 elements are in no file [(]56 tensors and values[)]$'
ok "info of flat rank files without units succeeds" \
    "$OPTIMFS" info "$TOP_SRCDIR/tests/data/pytorch/fsdp1_local_flat_fullshard_w3/ckpt"
has "info counts tensors without units as unreadable" '^unreadable +8 tensors and values '
has "info does not call flat rank files without units damaged" '^damaged +nothing known'
ok "info of a checkpoint with stateless parameters succeeds" \
    "$OPTIMFS" info "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_flatosd_w4/ckpt"
has "info says that nothing is missing for stateless parameters" "^missing +nothing$"
has "info counts remarks for stateless parameters" "^remarks +[0-9]+$"

json() { # json NAME EXPRESSION: r is the printed object
	python3 - "$scratch/out" "$2" <<'END'
import json, sys
r = json.load(open(sys.argv[1]))
sys.exit(0 if eval("(" + sys.argv[2] + ")") else 1)
END
	tap_result $? "$1" || tap_said
}
if command -v python3 >/dev/null; then
	ok "info --json of a checkpoint with a missing file succeeds" \
	    "$OPTIMFS" info --json "$scratch/hurt"
	json "info --json has the code of the missing file" \
	    'r["files"]["missing"] == 1 and r["problems"] > 0 and
	    r["missing"][0]["code"] == "OFS140"'
	json "info --json lists no view of an incomplete checkpoint as possible" \
	    'not any(v["possible"] for v in r["views"].values())'
	# states of a class of torchao, of which the index says float32
	cp -r "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w1/ckpt" "$scratch/class"
	chmod -R u+w "$scratch/class"
	offset=$("$OPTIMFS" cat "$scratch/class" \
	    .optimfs/layout/optim/state/tok_embeddings.weight/exp_avg |
	    sed -n 's/.*"offset": \([0-9]*\),.*/\1/p')
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --subclass \
	    "$scratch/class/__0_0.distcp" "$offset"
	ok "info of states of a subclass succeeds" "$OPTIMFS" info "$scratch/class"
	has "info says what they are, and that they cannot be read" \
	    '^  exp_avg cannot be read: OFS533 .*tensor of class torchao\.optim\.subclass_8bit\.OptimState8bit'
	lacks "info says nothing of states that can be read" '^  exp_avg_sq '
	ok "info --json of them succeeds" "$OPTIMFS" info --json "$scratch/class"
	json "info --json has the reason, or null" \
	    '"OptimState8bit" in r["optimizers"][0]["states"]["exp_avg"]["error"] and
	    r["optimizers"][0]["states"]["exp_avg_sq"]["error"] is None'
	python3 "$TOP_SRCDIR/tests/support/opaque.py" "$scratch/opaque.pt"
	ok "info --json of a value of an unknown class succeeds" \
	    "$OPTIMFS" info --json "$scratch/opaque.pt"
	json "info --json gives OFS170 and OFS445 as the reasons against fsdp and safetensors" \
	    '{n: v["why_not"][:6] for n, v in r["views"].items()
	    if v["why_not"]} == {"fsdp": "OFS170", "safetensors": "OFS445"}'
	json "info --json counts the opaque value as copied in each possible view" \
	    'all(v["copied"] == 1
	    for v in r["views"].values() if v["possible"])'
	ok "info --json of a checkpoint succeeds" "$OPTIMFS" info --json "$ck"
	json "info --json has a version and a kind" 'r["v"] == 2 and r["kind"] == "checkpoint"'
	json "info --json has format, ranks, step and problems" \
	    'r["format"] == "dcp" and r["ranks"] == 3 and
	    r["step"] == 3 and r["problems"] == 0'
	json "info --json has the options of a param group as numbers" \
	    'r["optimizers"][0]["param_groups"][0]["lr"]
	    == 0.001 and r["optimizers"][0]["param_groups"][0]["betas"]
	    == [0.9, 0.999]'
	json "info --json: the bytes per dtype add up to all bytes" 'r["all"]["bytes"] ==
	    sum(d["bytes"] for d in r["dtypes"].values())'
	json "info --json says that dcp is possible and takes a number of ranks" \
	    'r["views"]["dcp"]["possible"] and
	    r["views"]["dcp"]["ranked"]'
	"$OPTIMFS" help reshard | sed -n 's/@N//g; s/ or /, /; s/^Formats: //p' \
	    >"$scratch/formats"
	json "info --json has the views that help reshard lists" '", ".join(r["views"]) ==
	    open("'"$scratch/formats"'").read().strip()'
	ok "info --json of a directory succeeds" "$OPTIMFS" info --json "$ck" $state
	json "info --json of a directory counts the tensors below it" 'r["kind"] == "directory" and
	    r["all"]["tensors"] == 3 and r["path"] == "'$state'"'
	ok "info --json of a tensor succeeds" "$OPTIMFS" info --json "$ck" $state/exp_avg
	json "info --json of a tensor has shards, shape and size as numbers" 'r["shards"] == 3 and
	    r["shape"] == [12, 12] and r["size"] == 576'
else
	skip 18 "no python3"
fi

# info names an optimizer only where state and options prove it.
kind() {
	name=$1 data=$2
	[ -e "$TOP_SRCDIR/tests/data/$data" ] || {
		skip 2 "no $data"
		return
	}
	ok "info of $data succeeds" "$OPTIMFS" info "$TOP_SRCDIR/tests/data/$data"
	has "info calls the optimizer of $data $name" "^optimizer +${name}[ ;]"
}
kind Adagrad pytorch/dcp_opt_adagrad_w2/ckpt
kind 'SGD with momentum' pytorch/dcp_opt_sgd_w2/ckpt

# Verbs take a mount point, or a path in a mount, instead of the checkpoint.
why=$(requires mount)
if [ -n "$why" ]; then
	skip 37 "${why#*SKIP }"
	done_testing
fi
mnt=$(point a)
ok "mount of a checkpoint succeeds" "$OPTIMFS" mount "$ck" "$mnt"
is "mount prints nothing when standard error is a file" "$(cat "$scratch/out" "$scratch/err")" ''
status "abort of a read-only mount exits with 3" 3 "$OPTIMFS" abort "$mnt"
like "abort of a read-only mount says that there is nothing to abort, and how to change it" \
    "$(cat "$scratch/err")" "*OFS819 $mnt: mounted read-only: there is nothing to commit or to abort
  to do: to change the checkpoint, mount it with -o rw"
"$OPTIMFS" info "$ck" >"$scratch/want"
ok "info of a mount point succeeds" "$OPTIMFS" info "$mnt"
is "info of a mount point equals info of its checkpoint" "$(sed 1d "$scratch/out")" \
    "$(sed 1d "$scratch/want")"
ok "info of a path in a mount succeeds" "$OPTIMFS" info "$mnt/$state/exp_avg"
has "info of a tensor in a mount prints its dtype" '^dtype: float32$'
ok "cat of a path in a mount succeeds" "$OPTIMFS" cat "$mnt/$state/step"
is "cat of a path in a mount prints that file" "$(cat "$scratch/out")" 3.0
ok "cat of a path relative to a directory in a mount succeeds" \
    "$OPTIMFS" cat "$mnt/optim" param_groups/0/lr
is "cat of a relative path in a mount prints the right file" "$(cat "$scratch/out")" 0.001
ok "cp of a file in a mount succeeds" "$OPTIMFS" cp "$mnt/$state/step" "$scratch/step"
ok "fsck of a mount point succeeds" "$OPTIMFS" fsck "$mnt"
ok "diff of a mount and its checkpoint finds no difference" "$OPTIMFS" diff "$mnt" "$ck"
ok ".optimfs/README lists the formats of views" grep -o ' dcp@N dcp-st@N .*' "$mnt/.optimfs/README"
is ".optimfs/README and help reshard list the same formats" "$(tr -d '\n' <"$scratch/out")" \
    "$("$OPTIMFS" help reshard |
	sed -n 's/ or /, /; s/,//g; s/^Formats:\(.*\)/\1/p')"
ok "info of a view in a mount succeeds" \
    "$OPTIMFS" info "$mnt/.optimfs/view/torch"
has "info of a view prints the format of the view" '^format +torch'
other=$scratch/other
mkdir "$other"
ok "mount of a mount point succeeds" "$OPTIMFS" mount "$mnt" "$other"
is "mount of a mount point mounts its checkpoint" \
    "$("$OPTIMFS" info "$other" | head -n 1)" "$("$OPTIMFS" info "$mnt" | head -n 1)"
ok "umount of the second mount succeeds" "$OPTIMFS" umount "$other"
ok "mount of a directory in a mount succeeds" "$OPTIMFS" mount "$mnt/optim" "$other"
is "mount of a directory in a mount shows that part" "$(ls "$other")" optim
ok "umount of the part succeeds" "$OPTIMFS" umount "$other"
ok "diff of a directory in a mount succeeds" "$OPTIMFS" diff "$mnt/model" "$ck"
is "diff says that all of the checkpoint is compared" "$(cat "$scratch/err")" \
    "optimfs: $mnt/model: the whole checkpoint is read; --subtree=model reads only that part"
ok "diff --subtree of a directory in a mount succeeds" \
    "$OPTIMFS" diff --subtree=model "$ck" "$mnt/model"
is "diff --subtree says nothing of the rest" "$(cat "$scratch/err")" ''
ok "umount of the read-only mount succeeds" "$OPTIMFS" umount "$mnt"

cp -r "$ck" "$scratch/edited" && chmod -R u+w "$scratch/edited"
ok "mount -o rw succeeds" "$OPTIMFS" mount -o rw "$scratch/edited" "$mnt"
ok "info of an unchanged read-write mount succeeds" "$OPTIMFS" info "$mnt"
is "info of an unchanged read-write mount prints no note" "$(cat "$scratch/err")" ''
echo 1e-5 >"$mnt/optim/param_groups/0/lr"
ok "info of a mount with staged changes succeeds" "$OPTIMFS" info "$mnt"
has "info of a mount with staged changes shows the stored value" '^  group 0  lr 0\.001,'
like "info notes that staged changes are not shown" "$(cat "$scratch/err")" \
    "optimfs: $mnt: changes that are not committed (1 file, * B) are not included"
ok "commit --json succeeds" "$OPTIMFS" commit --json "$mnt"
is "commit --json reports the mount point and the sync" "$(cat "$scratch/out")" \
    "{\"schema\": \"optimfs.commit\", \"v\": 1, \"mountpoint\": \"$mnt\", \"synced\": true}"
ok "info after the commit succeeds" "$OPTIMFS" info "$mnt"
has "info after the commit shows the committed value" '^  group 0  lr 1e-05,'
is "info after the commit prints no note" "$(cat "$scratch/err")" ''
ok "umount after the commit succeeds" "$OPTIMFS" umount "$mnt"

ok "mount of a checkpoint with a missing file succeeds" "$OPTIMFS" mount "$scratch/hurt" "$mnt"
like "mount warns about the missing file" "$(cat "$scratch/err")" \
    '*hurt: the checkpoint is damaged: 1 missing file, * unreadable tensors and values; optimfs fsck * says which'
ok "umount of the checkpoint with a missing file succeeds" "$OPTIMFS" umount "$mnt"
cp -r "$ck" "$scratch/cut" && chmod -R u+w "$scratch/cut"
truncate -s 100000 "$scratch/cut/__1_0.distcp"
ok "mount of a checkpoint with a truncated file succeeds" "$OPTIMFS" mount "$scratch/cut" "$mnt"
like "mount warns about the truncated file" "$(cat "$scratch/err")" \
    '*cut: the checkpoint is damaged: 1 short file, * unreadable tensors and values; optimfs fsck * says which'
like ".optimfs/warnings lists the truncated file as OFS603" "$(cat "$mnt/.optimfs/warnings")" \
    'OFS603 __1_0.distcp has 100000 bytes, *'
ok "umount of the checkpoint with a truncated file succeeds" "$OPTIMFS" umount "$mnt"
cp -r "$TOP_SRCDIR/tests/data/pytorch/rank_dtensor_fsdp2_tp_w4/ckpt" \
    "$scratch/ranks" && chmod -R u+w "$scratch/ranks"
truncate -s -200 "$scratch/ranks/state_rank2.pt"
ok "mount of rank files with a truncated file succeeds" \
    "$OPTIMFS" mount "$scratch/ranks" "$mnt"
like "mount names the truncated rank file" "$(cat "$scratch/err")" \
    '*the checkpoint is damaged: 1 unreadable file (state_rank2.pt)*; optimfs fsck *'
ok "umount of rank files with a truncated file succeeds" "$OPTIMFS" umount "$mnt"
empty=$TOP_SRCDIR/tests/data/extra/torch_save/skip.pt
ok "mount of a file saved with skip_data() succeeds" "$OPTIMFS" mount "$empty" "$mnt"
like "mount warns with OFS537 that elements were never written" "$(cat "$scratch/err")" \
    '*OFS537 skip.pt: elements were never written: *'
ok "umount of the file saved with skip_data() succeeds" "$OPTIMFS" umount "$mnt"
for verb in info fsck; do
	ok "$verb of a file saved with skip_data() succeeds" "$OPTIMFS" $verb "$empty"
	like "$verb prints OFS537 for a file saved with skip_data()" \
	    "$(cat "$scratch/out")" '*OFS537*'
done
cp "$empty" "$scratch/filled.pt"
chmod u+w "$scratch/filled.pt"
ok "read-write mount of the skip_data() file succeeds" \
    "$OPTIMFS" mount -o rw "$scratch/filled.pt" "$mnt"
name=$(find "$mnt/model" "$mnt/extra" -type f 2>/dev/null | head -n 1)
head -c "$(stat -c %s "$name")" /dev/zero | tr '\0' '\1' >"$scratch/ones"
ok "the unwritten elements can be written" cp "$scratch/ones" "$name"
ok "umount commits the written elements" "$OPTIMFS" umount "$mnt"
is "fsck calls the completed skip_data() file clean" "$("$OPTIMFS" fsck "$scratch/filled.pt")" \
    "$scratch/filled.pt: clean, 0 errors, 0 warnings; only the structure was checked (--data reads everything)"
ok "mount -q of a damaged checkpoint succeeds" "$OPTIMFS" mount -q "$scratch/hurt" "$mnt"
is "mount -q prints no warning" "$(cat "$scratch/err")" ''
ok "umount after mount -q succeeds" "$OPTIMFS" umount "$mnt"

cp "$TOP_SRCDIR/tests/data/numpy/state.npz" "$scratch/"
chmod u+w "$scratch/state.npz"
status "mount -o rw of a format that is only read exits with 4" 4 \
    "$OPTIMFS" mount -o rw "$scratch/state.npz" "$mnt"
like "OFS820 says how to mount it" "$(cat "$scratch/err")" \
    '*OFS820 *state.npz: format npz cannot be written: mount it without rw, *'
ok "mount -o scratch of a format that is only read succeeds" \
    "$OPTIMFS" mount -o scratch "$scratch/state.npz" "$mnt"
ok "umount of the scratch mount succeeds" "$OPTIMFS" umount "$mnt"

if command -v script >/dev/null; then
	ok "mount on a terminal succeeds" script -qec \
	    "'$OPTIMFS' mount '$ck' '$mnt'" /dev/null
	like "mount on a terminal prints a summary of the checkpoint" "$(cat "$scratch/out")" \
	    'mounted: dcp, 3 ranks, * parameters, * at step 3, *; 0 problems*'
	ok "umount after the mount on a terminal succeeds" "$OPTIMFS" umount "$mnt"
	script -qec "'$OPTIMFS' mount '$flat' '$mnt'" /dev/null >"$scratch/out"
	like "mount on a terminal says what cannot be read" "$(cat "$scratch/out")" \
	    '*; 0 problems; 8 of the tensors and values cannot be read*'
	"$OPTIMFS" umount "$mnt"
	script -qec "'$OPTIMFS' mount '$scratch/universal' '$mnt'" /dev/null >"$scratch/out"
	like "mount on a terminal says what has no entry in the tree" "$(cat "$scratch/out")" \
	    '*; 1 problem: OFS140 *fp32.pt is missing; optimfs fsck * says more*'
	"$OPTIMFS" umount "$mnt"
	"$OPTIMFS" mkfs --like "$ck" --layout dcp@2 "$scratch/new"
	ok "mount of a template on a terminal succeeds" script -qec \
	    "'$OPTIMFS' mount -o rw '$scratch/new' '$mnt'" /dev/null
	like "mount on a terminal says that the checkpoint is a template" "$(cat "$scratch/out")" \
	    'mounted: a template to be filled in; its source: dcp, * ranks, * kB*'
	ok "umount of the template succeeds" "$OPTIMFS" umount "$mnt"
	ok "mount -o rw succeeds once more" "$OPTIMFS" mount -o rw "$scratch/edited" "$mnt"
	echo 0.5 >"$mnt/optim/param_groups/0/lr"
	ok "abort on a terminal succeeds" script -qec "'$OPTIMFS' abort '$mnt'" /dev/null
	like "abort on a terminal says what it has dropped" "$(cat "$scratch/out")" 'dropped: 1 file, 4 B*'
	ok "commit on a terminal succeeds" script -qec "'$OPTIMFS' commit '$mnt'" /dev/null
	like "commit on a terminal says that there was nothing to commit" \
	    "$(cat "$scratch/out")" 'committed: nothing, because there are no changes*'
	ok "umount of the unchanged mount succeeds" "$OPTIMFS" umount "$mnt"
	script -qec "stty cols 100; '$OPTIMFS' info \
	    '$TOP_SRCDIR/tests/data/deepspeed/z3_ws2_bf16/ckpt'" /dev/null |
	    tr -d '\r' >"$scratch/tty"
	is "info on a terminal prints no line longer than the terminal" \
	    "$(tail -n +2 "$scratch/tty" | grep -c '.\{101\}')" 0
	like "info on a terminal continues a value below its beginning" "$(cat "$scratch/tty")" '*
extra       buffer_names, *,
            * and 8 more
*' || diag "$(cat "$scratch/tty")"
else
	skip 14 "no script(1)"
fi
done_testing
