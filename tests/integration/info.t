#!/bin/sh
# info.t - what a checkpoint is, at a glance; a mount stands for what it shows
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w3/ckpt
state=optim/state/layers.0.wq.weight

# has NAME REGEXP: a line of what was printed last
has() {
	grep -qE -- "$2" "$scratch/out"
	tap_result $? "$1" || tap_said
}

ok "info" "$OPTIMFS" info "$ck"
[ "$(wc -l <"$scratch/out")" -le 24 ]
tap_result $? "fits on a screen"
has "says the format" '^format +PyTorch distributed checkpoint \(dcp\)'
has "how many ranks wrote it" '^job +3 ranks$'
has "the optimizer, its step and its states" \
    '^optimizer .* at step 3; exp_avg \(float32\), exp_avg_sq \(float32\), step of [0-9]+ parameters$'
has "the options of groups" '^  group 0  lr 0\.001, betas \[0\.9, 0\.999\]'
has "files and bytes" '^files +[0-9]+, [0-9.]+ kB; the tensors are '
has "parameters" '^parameters +[0-9]+ tensors, [0-9]+ elements'
has "dtypes with shares" '^dtypes +float32 [0-9.]+ %'
has "sharding" '^sharding +[0-9]+ of [0-9]+ tensors in parts over 3 ranks \([0-9]+ along dim 0'
has "that nothing is missing" '^missing +nothing$'
has "what it can become" '^reshard to +dcp@N, .*safetensors, torch'
has "and why not the rest" '^  not fsdp@N: OFS170 '

ok "info of a directory" "$OPTIMFS" info "$ck" $state
has "says what is below" '^holds +3 tensors, 289 elements, '
ok "info of a tensor" "$OPTIMFS" info "$ck" $state/exp_avg
has "says its type" '^dtype: float32$'
has "shows which rank has which rows" '^    0\.\.3 +0$'
has "of all ranks" '^    8\.\.11 +2$'
status "info of what is not there" 3 "$OPTIMFS" info "$ck" optim/none

cp -r "$ck" "$scratch/hurt" && chmod -R u+w "$scratch/hurt"
rm "$scratch/hurt/__1_0.distcp"
ok "info without a file" "$OPTIMFS" info "$scratch/hurt"
has "what of it is lost" '^missing +1 file: of [0-9]+ tensors and values '
has "by code and name" '^  OFS140 .*__1_0\.distcp'
lacks() {
	! grep -qE -- "$2" "$scratch/out"
	tap_result $? "$1" || tap_said
}
lacks "does not say that nothing is damaged" 'nothing known'
has "promises nothing" '^reshard to +nothing$'
cp "$ck/__1_0.distcp" "$scratch/hurt/"
truncate -s 100000 "$scratch/hurt/__2_0.distcp"
ok "info of a file that was cut" "$OPTIMFS" info "$scratch/hurt"
has "says so" '^missing +the end of 1 file: of [0-9]+ tensors and values '
has "and promises nothing" '^  not dcp@N, .*: OFS140 files are missing or short'
cp "$ck/__2_0.distcp" "$scratch/hurt/" && rm "$scratch/hurt/__1_0.distcp"
ok "info of what needs an option" \
    "$OPTIMFS" info "$TOP_SRCDIR/tests/data/pytorch/fsdp1_local_flat_fullshard_w3/ckpt"
has "calls it unreadable" '^unreadable +8 tensors and values '
has "and not damaged" '^damaged +nothing known'
ok "info of parameters without state" \
    "$OPTIMFS" info "$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_flatosd_w4/ckpt"
has "misses nothing" "^missing +nothing$"
has "and remarks on them" "^remarks +[0-9]+$"

json() { # json NAME EXPRESSION: of the object r
	python3 - "$scratch/out" "$2" <<'END'
import json, sys
r = json.load(open(sys.argv[1]))
sys.exit(0 if eval("(" + sys.argv[2] + ")") else 1)
END
	tap_result $? "$1" || tap_said
}
if command -v python3 >/dev/null; then
	ok "info --json of it" "$OPTIMFS" info --json "$scratch/hurt"
	json "has codes" 'r["files"]["missing"] == 1 and r["problems"] > 0 and
	    r["missing"][0]["code"] == "OFS140"'
	json "promises no view" \
	    'not any(v["possible"] for v in r["views"].values())'
	python3 "$TOP_SRCDIR/tests/support/opaque.py" "$scratch/opaque.pt"
	ok "info of a value of an unknown class" \
	    "$OPTIMFS" info --json "$scratch/opaque.pt"
	json "promises no view that fails" \
	    '{n: v["why_not"][:6] for n, v in r["views"].items()
	    if v["why_not"]} == {"fsdp": "OFS170", "safetensors": "OFS445"}'
	json "says what is copied" 'all(v["copied"] == 1
	    for v in r["views"].values() if v["possible"])'
	ok "info --json" "$OPTIMFS" info --json "$ck"
	json "has a version" 'r["v"] == 2 and r["kind"] == "checkpoint"'
	json "what it is" 'r["format"] == "dcp" and r["ranks"] == 3 and
	    r["step"] == 3 and r["problems"] == 0'
	json "values as numbers" 'r["optimizers"][0]["param_groups"][0]["lr"]
	    == 0.001 and r["optimizers"][0]["param_groups"][0]["betas"]
	    == [0.9, 0.999]'
	json "counts that add up" 'r["all"]["bytes"] ==
	    sum(d["bytes"] for d in r["dtypes"].values())'
	json "views" 'r["views"]["dcp"]["possible"] and
	    r["views"]["dcp"]["ranked"]'
	"$OPTIMFS" help reshard | sed -n 's/@N//g; s/ or /, /; s/^Formats: //p' \
	    >"$scratch/formats"
	json "views are the formats that help lists" '", ".join(r["views"]) ==
	    open("'"$scratch/formats"'").read().strip()'
	ok "info --json of a directory" "$OPTIMFS" info --json "$ck" $state
	json "counts what is below" 'r["kind"] == "directory" and
	    r["all"]["tensors"] == 3 and r["path"] == "'$state'"'
	ok "info --json of a file" "$OPTIMFS" info --json "$ck" $state/exp_avg
	json "has numbers as numbers" 'r["shards"] == 3 and
	    r["shape"] == [12, 12] and r["size"] == 576'
else
	skip 13 "no python3"
fi

# An optimizer's name is said only where its state and options prove it.
kind() {
	name=$1 data=$2
	[ -e "$TOP_SRCDIR/tests/data/$data" ] || {
		skip 2 "no $data"
		return
	}
	ok "info of $data" "$OPTIMFS" info "$TOP_SRCDIR/tests/data/$data"
	has "is $name" "^optimizer +$name[ ;]"
}
kind Adagrad pytorch/dcp_opt_adagrad_w2/ckpt
kind 'SGD with momentum' pytorch/dcp_opt_sgd_w2/ckpt

# A mount stands for its checkpoint.
why=$(requires mount)
if [ -n "$why" ]; then
	skip 35 "${why#*SKIP }"
	done_testing
fi
mnt=$(point a)
ok "mount" "$OPTIMFS" mount "$ck" "$mnt"
is "says nothing to a file" "$(cat "$scratch/out" "$scratch/err")" ''
"$OPTIMFS" info "$ck" >"$scratch/want"
ok "info of a mount point" "$OPTIMFS" info "$mnt"
is "is that of its checkpoint" "$(sed 1d "$scratch/out")" \
    "$(sed 1d "$scratch/want")"
ok "info of a path in a mount" "$OPTIMFS" info "$mnt/$state/exp_avg"
has "is of that file" '^dtype: float32$'
ok "cat of a path in a mount" "$OPTIMFS" cat "$mnt/$state/step"
is "is that file" "$(cat "$scratch/out")" 3.0
ok "a path below a path in a mount" "$OPTIMFS" cat "$mnt/optim" param_groups/0/lr
is "is put together" "$(cat "$scratch/out")" 0.001
ok "cp out of a mount" "$OPTIMFS" cp "$mnt/$state/step" "$scratch/step"
ok "fsck of a mount" "$OPTIMFS" fsck "$mnt"
ok "diff of a mount and its checkpoint" "$OPTIMFS" diff "$mnt" "$ck"
ok "README of a mount" grep -o ' dcp@N dcp-st@N .*' "$mnt/.optimfs/README"
is "lists the formats of help" "$(tr -d '\n' <"$scratch/out")" \
    "$("$OPTIMFS" help reshard |
	sed -n 's/ or /, /; s/,//g; s/^Formats:\(.*\)/\1/p')"
ok "a view is a checkpoint of its own" \
    "$OPTIMFS" info "$mnt/.optimfs/view/torch"
has "of its own format" '^format +torch'
ok "umount" "$OPTIMFS" umount "$mnt"

cp -r "$ck" "$scratch/edited" && chmod -R u+w "$scratch/edited"
ok "mount -o rw" "$OPTIMFS" mount -o rw "$scratch/edited" "$mnt"
ok "info of what was not edited" "$OPTIMFS" info "$mnt"
is "says nothing of that" "$(cat "$scratch/err")" ''
echo 1e-5 >"$mnt/optim/param_groups/0/lr"
ok "info of what is not committed" "$OPTIMFS" info "$mnt"
has "shows the checkpoint" '^  group 0  lr 0\.001,'
like "and says so" "$(cat "$scratch/err")" \
    "optimfs: $mnt: not committed yet: 1 file *; this is the checkpoint without them"
ok "commit --json" "$OPTIMFS" commit --json "$mnt"
is "says that it is done" "$(cat "$scratch/out")" \
    "{\"v\":1,\"mountpoint\":\"$mnt\",\"synced\":true}"
ok "info of what is committed" "$OPTIMFS" info "$mnt"
has "shows it" '^  group 0  lr 1e-05,'
is "and says no more" "$(cat "$scratch/err")" ''
ok "umount" "$OPTIMFS" umount "$mnt"

ok "a damaged checkpoint mounts" "$OPTIMFS" mount "$scratch/hurt" "$mnt"
like "and says so" "$(cat "$scratch/err")" \
    '*hurt: the checkpoint is damaged: 1 missing file, * unreadable tensors; optimfs fsck * says which'
ok "umount" "$OPTIMFS" umount "$mnt"
cp -r "$ck" "$scratch/cut" && chmod -R u+w "$scratch/cut"
truncate -s 100000 "$scratch/cut/__1_0.distcp"
ok "one with a file that was cut" "$OPTIMFS" mount "$scratch/cut" "$mnt"
like "says that, too" "$(cat "$scratch/err")" \
    '*cut: the checkpoint is damaged: 1 short file, * unreadable tensors; optimfs fsck * says which'
like "so do its warnings" "$(cat "$mnt/.optimfs/warnings")" \
    'OFS603 __1_0.distcp has 100000 bytes, *'
ok "umount" "$OPTIMFS" umount "$mnt"
empty=$TOP_SRCDIR/tests/data/extra/torch_save/skip.pt
ok "a file of skip_data()" "$OPTIMFS" mount "$empty" "$mnt"
like "says that its elements were never written" "$(cat "$scratch/err")" \
    '*OFS537 skip.pt: elements were never written: *'
ok "umount" "$OPTIMFS" umount "$mnt"
for verb in info fsck; do
	ok "$verb of it" "$OPTIMFS" $verb "$empty"
	like "says that, too" "$(cat "$scratch/out")" '*OFS537*'
done
cp "$empty" "$scratch/filled.pt"
chmod u+w "$scratch/filled.pt"
ok "mounted to write them" "$OPTIMFS" mount -o rw "$scratch/filled.pt" "$mnt"
name=$(find "$mnt/model" "$mnt/extra" -type f 2>/dev/null | head -n 1)
head -c "$(stat -c %s "$name")" /dev/zero | tr '\0' '\1' >"$scratch/ones"
ok "they are written" cp "$scratch/ones" "$name"
ok "umount" "$OPTIMFS" umount "$mnt"
is "then it says nothing" "$("$OPTIMFS" fsck "$scratch/filled.pt")" \
    "$scratch/filled.pt: clean, 0 errors, 0 warnings"
ok "a quiet mount" "$OPTIMFS" mount -q "$scratch/hurt" "$mnt"
is "says nothing" "$(cat "$scratch/err")" ''
ok "umount" "$OPTIMFS" umount "$mnt"

if command -v script >/dev/null; then
	ok "mount on a terminal" script -qec \
	    "'$OPTIMFS' mount '$ck' '$mnt'" /dev/null
	like "says what was mounted" "$(cat "$scratch/out")" \
	    'optimfs: mounted: dcp, 3 ranks, * parameters, * at step 3, *; 0 problems*'
	ok "umount" "$OPTIMFS" umount "$mnt"
	"$OPTIMFS" mkfs --like "$ck" --layout dcp@2 "$scratch/new"
	ok "mount of a template" script -qec \
	    "'$OPTIMFS' mount -o rw '$scratch/new' '$mnt'" /dev/null
	like "says that it is one" "$(cat "$scratch/out")" \
	    'optimfs: mounted: a template to be filled in: dcp, 2 ranks, * kB*'
	ok "umount" "$OPTIMFS" umount "$mnt"
else
	skip 6 "no script(1)"
fi
done_testing
