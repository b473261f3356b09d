#!/bin/sh
# thin.t - optimfs thin: what is kept, what is removed, what interrupts it
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires python3

w2=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt
run=$scratch/run
mkdir "$run"
for step in 100 200 300 400 500 600; do
	cp -r "$w2" "$run/step-$step"
done
mkdir "$run/step-700" && touch "$run/step-700/__0_0.distcp"
ln -s step-600 "$run/best"

# The names that remain.
left() {
	ls "$run" | tr '\n' ' ' | sed 's/ $//'
}

# actions ARGUMENT...: what thin says of each step
actions() {
	"$OPTIMFS" thin --json "$@" "$run" | python3 -c 'import json, sys
for c in json.load(sys.stdin)["checkpoints"]:
    print(c["name"] + ":" + c["action"], end=" ")'
}

before=$(left)
status "which are kept must be said" 2 "$OPTIMFS" thin "$run"
status "a number is a number" 2 "$OPTIMFS" thin --keep-last none "$run"
status "of a checkpoint nothing is removed" 3 "$OPTIMFS" thin --keep-last 1 \
    --yes "$run/step-100"
is "the last ones and every second hundred are kept, and the unfinished one" \
    "$(actions --keep-last 2 --keep-every 200)" \
    "step-100:remove step-200:keep step-300:remove step-400:keep step-500:keep step-600:keep step-700:keep "
is "without --yes nothing is removed" "$(left)" "$before"
like "the bytes are those on the disk" \
    "$("$OPTIMFS" thin --json --keep-last 5 "$run")" \
    "*\"removed\": 1, \"bytes\": $(($(find "$w2" -type f -exec \
    stat -c %b {} + | awk '{ n += $1 } END { print n }') * 512)),*"

# What the next start of the job needs. The directory alone would open as the
# checkpoint that latest names.
echo step-200 >"$run/latest"
is "what latest names is kept" "$(actions --keep-last 1)" \
    "step-100:remove step-200:keep step-300:remove step-400:remove step-500:remove step-600:keep step-700:keep "
mv "$run/step-400" "$run/iter_0000400"
echo 400 >"$run/latest_checkpointed_iteration.txt"
is "and what Megatron's tracker names, if that is another one" \
    "$(actions --keep-last 1)" \
    "step-100:remove step-200:keep step-300:remove iter_0000400:keep step-500:remove step-600:keep step-700:keep "
mv "$run/iter_0000400" "$run/step-400"
rm "$run/latest" "$run/latest_checkpointed_iteration.txt"
ln -s step-100 "$run/chosen"
ln -s step-300/.metadata "$run/index"
is "what a link leads to is kept" "$(actions --keep-last 1)" \
    "step-100:keep step-200:remove step-300:keep step-400:remove step-500:remove step-600:keep step-700:keep "
like "and that is said" "$("$OPTIMFS" thin --keep-last 1 "$run")" \
    "*step-100: a link leads to it*"
rm "$run/chosen" "$run/index"
mv "$run/step-600/__1_0.distcp" "$scratch/lost"
is "a damaged one is kept, and does not count" "$(actions --keep-last 1)" \
    "step-100:remove step-200:remove step-300:remove step-400:remove step-500:keep step-600:keep step-700:keep "
mv "$scratch/lost" "$run/step-600/__1_0.distcp"

# What is in use.
exec 7<"$run/step-100/.metadata"
like "what a program has open is kept" \
    "$("$OPTIMFS" thin --keep-last 5 "$run")" \
    "* keep  *step-100: OFS871 *step-100/.metadata is open in a program*"
exec 7<&-
no_mount=$(tap_can_mount)
if [ -z "$no_mount" ]; then
	"$OPTIMFS" mount "$run/step-100" "$(point mnt)"
	like "what is mounted is kept" "$("$OPTIMFS" thin --keep-last 5 "$run")" \
	    "* keep  *step-100: mounted at $scratch/mnt*"
	"$OPTIMFS" umount "$scratch/mnt"
else
	skip 1 "cannot mount"
fi
mkdir -p "$run/.step-200.optimfs/removed/deep"
cp "$w2/.metadata" "$run/.step-200.optimfs/removed/deep/file"
like "what a killed thin left is said" "$("$OPTIMFS" thin --keep-last 9 "$run")" \
    "*0 of 7 checkpoints would be removed*1 that an interrupted thin had removed *"
status "it is deleted" 0 "$OPTIMFS" thin --keep-last 9 --yes "$run"
not_ok "with its directory" ls -d "$run/.step-200.optimfs"

status "the others are removed" 0 "$OPTIMFS" thin --keep-last 2 --keep-every 200 \
    --yes "$run"
is "and only they" "$(left)" "best step-200 step-400 step-500 step-600 step-700"
is "nothing else is left behind" "$(ls -A "$run" | grep '^\.')" ''
status "what is kept is whole" 0 "$OPTIMFS" fsck --data "$run/step-200"

# --drop optim: the checkpoint stays, without its optimizer.
data=$TOP_SRCDIR/tests/data
rm -r "$run"
mkdir "$run"
fresh() { # the run as it was; what its parts are is in $scratch/sums
	rm -rf "$run"/step-* "$run"/.step-*
	cp -r "$w2" "$run/step-100"
	echo notes >"$run/step-100/README"
	mkdir "$run/step-100/tokenizer" && echo words >"$run/step-100/tokenizer/vocab.txt"
	ln -s README "$run/step-100/link"
	cp -r "$data/pytorch/dcp_fsdp2_zstd_w2/ckpt" "$run/step-200"
	cp -r "$data/pytorch/fsdp1_sharded_flat_fullshard_w3/ckpt" "$run/step-300"
	cp -r "$data/deepspeed/z2_ws2_bf16/ckpt/global_step3" "$run/step-400"
	cp -r "$data/megatron/llama_dp2/dp_reshardable/iter_0000003" "$run/step-500"
	cp -r "$data/deepspeed/z3_ws2_two_tags/ckpt/global_step2" "$run/step-600"
	cp -r "$data/deepspeed/v0.18.5_z3_ws2_nozip/ckpt/global_step3" "$run/step-700"
	cp -r "$w2" "$run/step-900"
	chmod -R u+w "$run"
}
sum() {
	"$OPTIMFS" sum "$run/$1" ${2:+"$2"} | cut -d ' ' -f 1
}
fresh
status "there is one part that can be dropped" 2 "$OPTIMFS" thin --keep-last 1 --drop model "$run"
like "drop says what it would do" "$("$OPTIMFS" thin --keep-last 1 --drop optim "$run")" \
    "      step      frees
       100  * drop     step-100
       200  * drop     step-200
       300  * drop     step-300
       400  * drop     step-400
       500  * drop     step-500
       600  * drop     step-600
       700  * drop     step-700
       900          -  keep     step-900: one of the last
7 of 8 checkpoints would lose their optimizer, which frees about * MB; --yes drops it"
for step in 100 200 300 400 500 600 700 900; do
	eval "all_$step=$(sum step-$step) model_$step=$(sum step-$step model)"
	eval "blocks_$step=$(du -sk "$run/step-$step" | cut -f 1)"
done
inode=$(stat -c %i "$run/step-100/README")
status "drop takes the optimizer" 0 "$OPTIMFS" thin --keep-last 1 --drop optim --yes "$run"
for step in 100 200 300 400 500; do
	eval "want=\$model_$step had=\$blocks_$step"
	is "step $step has no optimizer" "$("$OPTIMFS" ls "$run/step-$step" | grep -v extra)" model/
	is "its model is what it was" "$(sum step-$step model)" "$want"
	status "and it is whole" 0 "$OPTIMFS" fsck --data "$run/step-$step"
	ok "it takes less room" test "$(du -sk "$run/step-$step" | cut -f 1)" -lt "$had"
	like "nothing is missing" "$("$OPTIMFS" info "$run/step-$step")" \
	    "*missing     nothing*"
done
is "nothing else of DeepSpeed's optimizer is left" "$("$OPTIMFS" ls "$run/step-400/extra" 2>&1 | grep -c optimizer; ls "$run/step-400")" \
    "0
mp_rank_00_model_states.pt"
is "nor of Megatron-Core's" "$("$OPTIMFS" ls -R -o type=dcp "$run/step-500" | grep -c optimizer)" 0
is "what is not the optimizer's stays" "$("$OPTIMFS" cat "$run/step-500" extra/iteration)" 3
is "the last one is as it was" "$(sum step-900)" "$all_900"
is "other files stay, the same ones" "$(stat -c %i "$run/step-100/README") $(cat "$run/step-100/tokenizer/vocab.txt" "$run/step-100/link" | tr '\n' ' ')" "$inode words notes "
is "nothing else is left behind" "$(ls -A "$run" | grep '^\.')" ''
like "a second time there is nothing to do" "$("$OPTIMFS" thin --keep-last 1 --drop optim --yes "$run")" \
    "*step-100: has no optimizer*0 of 8 checkpoints lost their optimizer*"
rm -r "$run"/step-300
cp -r "$data/pytorch/dcp_fsdp2_multifile_w2/ckpt" "$run/step-300"
chmod -R u+w "$run/step-300"
files=$(ls "$run/step-300" | wc -l)
status "files that held nothing else are removed" 0 "$OPTIMFS" thin --keep-last 1 --drop optim --yes "$run"
ok "there are fewer" test "$(ls "$run/step-300" | wc -l)" -lt "$files"
status "and the rest is whole" 0 "$OPTIMFS" fsck --data "$run/step-300"
rm -r "$run"/step-300
"$OPTIMFS" reshard -q --to safetensors "$w2" "$run/step-300"
cp -r "$run/step-300" "$scratch/safetensors"
status "what cannot be edited fails" 3 "$OPTIMFS" thin --keep-last 1 --drop optim --yes "$run"
like "and says what to do instead, and why" "$(cat "$scratch/out")" \
    "*failed   step-300: OFS826 * optimfs reshard --to torch,only=model, *has no place for it*"
ok "which can be done" "$OPTIMFS" reshard -q --to torch,only=model \
    "$run/step-300" "$scratch/model.pt"
is "and keeps the model" "$("$OPTIMFS" sum "$scratch/model.pt" model | cut -d ' ' -f 1)" \
    "$(sum step-300 model)"
ok "it is as it was" diff -r "$scratch/safetensors" "$run/step-300"
is "nothing of the attempt is left" "$(ls -A "$run" | grep '^\.')" ''

# What the weights, or their names, are in stays.
stays() { # CHECKPOINT WHAT
	rm -r "$run"/step-300
	cp -r "$data/$1" "$run/step-300"
	chmod -R u+w "$run/step-300"
	want=$(sum step-300 model) had=$(du -sk "$run/step-300" | cut -f 1)
	status "$1: it loses its optimizer" 0 "$OPTIMFS" thin --keep-last 1 --drop optim --yes "$run"
	is "$1: but for what the weights need" \
	    "$("$OPTIMFS" ls -R "$run/step-300" | sed -n 's|^optim/state/.*/\([^/]\)|state \1|p; s|^optim/param_groups/.*|groups|p' | grep . | sort -u | tr '\n' ' ')" "$2"
	is "$1: its model is what it was" "$(sum step-300 model)" "$want"
	status "$1: it is whole" 0 "$OPTIMFS" fsck --data "$run/step-300"
	like "$1: nothing is missing" "$("$OPTIMFS" info "$run/step-300")" "*missing     nothing*"
	ok "$1: it takes less room" test "$(du -sk "$run/step-300" | cut -f 1)" -lt "$had"
	like "$1: there is nothing more to drop" "$("$OPTIMFS" thin --keep-last 1 --drop optim "$run")" \
	    "*step-300: has no optimizer*"
}
stays deepspeed/z3_ws4_bf16/ckpt/global_step3 'state fp32 '
if [ -z "$no_mount" ]; then
	cp -r "$data/deepspeed/z3_ws4_bf16/ckpt/global_step3" "$scratch/z3"
	chmod -R u+w "$scratch/z3"
	"$OPTIMFS" mount -q -o rw "$scratch/z3" "$(point mnt)"
	rm -r "$scratch/mnt/optim"
	status "by hand, too: fp32 cannot be removed" 3 "$OPTIMFS" umount "$scratch/mnt"
	like "which is said" "$(cat "$scratch/err")" "*OFS826 *fp32*"
	"$OPTIMFS" umount -q --keep "$scratch/mnt"
else
	skip 2 "cannot mount"
fi
# A name with a slash is one component, too.
rm -r "$run"/step-300
cp -r "$data/deepspeed/z3_ws4_bf16/ckpt/global_step3" "$run/step-300"
chmod -R u+w "$run/step-300"
LC_ALL=C sed -i 's|blocks\.0\.fc_in\.bias|blocks/0.fc_in.bias|' "$run"/step-300/*.pt
status "a name has a slash: it loses its optimizer" 0 "$OPTIMFS" thin --keep-last 1 --drop optim --yes "$run"
is "a name has a slash: but for fp32" "$("$OPTIMFS" ls "$run/step-300" optim/state/blocks%2F0.fc_in.bias)" fp32
stays deepspeed/v0.18.5_z3_ws2_nozip/ckpt/global_step3 'state fp32 '
stays deepspeed/z2_ws2_bf16/ckpt_universal 'groups state fp32 '
stays deepspeed/v0.18.5_z3_ws2_bf16/ckpt_universal 'groups state fp32 state step '
stays fsdp_dtensor/swiglu_w3/ckpt/iter_0000007 'groups '
stays fsdp_dtensor/moe_swiglu_w4/ckpt/iter_0000007 'groups '
stays torch_checkpointing/fsdp2_w2_safetensors/ckpt/step_3 ''

# torch.load with weights_only, its default, knows no POP.
rm -r "$run"/step-300
mkdir "$run/step-300"
cp "$data/evidence/adafactor.pt" "$run/step-300/state.pt"
chmod -R u+w "$run/step-300"
status "a file of torch.save loses its optimizer" 0 "$OPTIMFS" thin --keep-last 1 \
    --drop optim --yes "$run"
is "its pickle has only opcodes that torch.load takes" "$(python3 -c 'import pickletools, sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
name, = [n for n in z.namelist() if n.endswith("data.pkl")]
names = {op.name for op, _, _ in pickletools.genops(z.read(name))}
print("EMPTY_DICT" in names, "POP" in names)' "$run/step-300/state.pt")" "True False"

# A stream from before zip archives: torch.load refuses a storage that the pickle
# does not name.
rm -r "$run"/step-300
mkdir "$run/step-300"
cp "$data/pytorch/torchsave_full/ckpt/state_legacy.pt" "$run/step-300"
chmod -R u+w "$run/step-300"
want=$(sum step-300 model)
status "a legacy stream loses its optimizer" 0 "$OPTIMFS" thin --keep-last 1 \
    --drop optim --yes "$run"
is "its model is what it was" "$(sum step-300 model)" "$want"
is "it has no optimizer" "$("$OPTIMFS" ls "$run/step-300" | grep -v extra)" model/
is "it ends with the storages that its pickle names" "$(python3 -c 'import pickle, struct, sys
named = {}
class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        return type(name, (dict,), {"__init__": lambda self, *a: None})
    def persistent_load(self, id):
        size = {"DoubleStorage": 8, "LongStorage": 8, "FloatStorage": 4, "BFloat16Storage": 2}
        named[id[2]] = (id[4], size[id[1].__name__])
f = open(sys.argv[1], "rb")
for _ in range(4):
    Unpickler(f).load()
keys = pickle.load(f)
for key in keys:
    count, = struct.unpack("<q", f.read(8))
    assert count == named[key][0]
    f.seek(count * named[key][1], 1)
print(len(keys) > 0, keys == sorted(named), f.tell() == f.seek(0, 2))' "$run/step-300/state_legacy.pt")" \
    "True True True"

# Killed at any time, each is the old one or the new one.
# A sum of the model alone names its paths in another way: compare by trees.
model_sum() { "$OPTIMFS" sum "$run/$1" | cut -d ' ' -f 1; }
fresh
"$OPTIMFS" thin --keep-last 1 --drop optim --yes "$run" >/dev/null
for step in 100 200 300 400 500 600 700; do
	eval "model_$step=$(model_sum step-$step)"
done
killed() { # NAME
	bad=
	for step in 100 200 300 400 500 600 700 900; do
		eval "all=\$all_$step model=\$model_$step"
		case $(model_sum step-$step) in
		"$all") ;;
		"$model") [ $step != 900 ] || bad="$bad $step" ;;
		*) bad="$bad $step" ;;
		esac
	done
	is "$1: each is the old one or the new one" "$bad" ''
	status "$1: the next one finishes" 0 "$OPTIMFS" thin --keep-last 1 --drop optim --yes "$run"
	is "$1: and leaves nothing" "$(ls -A "$run" | grep '^\.'; for step in 100 200 300 400 500; do "$OPTIMFS" ls "$run/step-$step"; done | grep -v extra | sort -u)" model/
}
if command -v strace >/dev/null && ! sanitized; then
	while read -r call when; do
		fresh
		strace -f -o /dev/null -e "trace=$call" -e "inject=$call:signal=KILL:when=$when" \
		    "$OPTIMFS" thin --keep-last 1 --drop optim --yes "$run" >/dev/null 2>"$scratch/err"
		is "killed at $call $when" $? 137
		killed "killed at $call $when"
	done <<-END
	linkat 2
	linkat 5
	renameat2 1
	renameat2 2
	renameat2 3
	renameat2 4
	renameat2 5
	renameat2 6
	renameat2 7
	renameat2 8
	unlinkat 3
	unlinkat 12
	linkat 14
	fsync 6
	END
	# A disk that fails at any sync damages nothing.
	bad='' when=0
	while :; do
		when=$((when + 1))
		fresh
		rm -r "$run"/step-[234567]00
		strace -f -o "$scratch/trace" -e trace=fsync,fdatasync,syncfs \
		    -e "inject=fsync,fdatasync,syncfs:error=EIO:when=$when" \
		    "$OPTIMFS" thin --keep-last 1 --drop optim --yes "$run" >/dev/null 2>"$scratch/err"
		grep -q INJECTED "$scratch/trace" || break
		case $(model_sum step-100) in
		"$all_100" | "$model_100") ;;
		*) bad="$bad $when" ;;
		esac
	done
	is "a sync that fails leaves the old one or the new one" "$bad" ''
	ok "some have failed" test "$when" -gt 6
else
	skip 58 "no strace"
fi
done_testing
