#!/bin/sh
# run.t - a directory of checkpoints as one tree: steps, names, latest
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires mount

data=$TOP_SRCDIR/tests/data
w2=$data/pytorch/dcp_fsdp2_w2/ckpt
w3=$data/pytorch/dcp_fsdp2_w3/ckpt
run=$(point run)
mnt=$(point mnt)
one=$(point one)

# What differs between a checkpoint alone and in the mount of its run. What
# cannot be read is the same in both.
differs() {
	"$OPTIMFS" mount -q "$1" "$one" || return
	{
		diff -r "$one" "$2"
		diff -r "$one/.optimfs/npy" "$2/.optimfs/npy"
		diff "$one/.optimfs/tensors.tsv" "$2/.optimfs/tensors.tsv"
	} 2>&1 | sed "s,^diff: $one/,diff: ,; s,^diff: $2/,diff: ," |
	    sort | uniq -u
	"$OPTIMFS" umount "$one"
}

# Every checkpoint of the fixtures, in one run of mixed formats.
n=0
for ck in "$data"/pytorch/*/ckpt "$data"/deepspeed/*/ckpt \
    "$data"/deepspeed/*/ckpt_universal "$data"/extra/dcp_variants/* \
    "$data"/extra/trainers/* "$data"/extra/olmo_local/* \
    "$data"/megatron/*/*/iter_0000003 "$data"/numpy/*.npz; do
	"$OPTIMFS" info --json "$ck" >"$scratch/info" 2>/dev/null &&
	    grep -q '"kind": "checkpoint"' "$scratch/info" || continue
	n=$((n + 1))
	case $ck in
	*.ckpt) to=$run/epoch=1-step=$n.ckpt ;;
	*.npz) to=$run/step_0000$n.npz ;;
	*/deepspeed/*) to=$run/global_step$n ;;
	*/megatron/*) to=$run/iter_$(printf %07d $n) ;;
	*/extra/*) to=$run/checkpoint-$n ;;
	*) to=$run/step-$n ;;
	esac
	cp -r "$ck" "$to"
	echo "$n $to" >>"$scratch/all"
done
ok "a run of $n checkpoints of all formats is mounted" \
    "$OPTIMFS" mount -o run=yes "$run" "$mnt"
is "nothing is opened before somebody looks into it" \
    "$(sed -n 's/^open_checkpoints //p' "$mnt/.optimfs/stats")" 0
"$OPTIMFS" info --json -o run=yes "$run" >"$scratch/info"
while read -r n to; do
	# a directory that holds one checkpoint is opened as that one
	[ -e "$mnt/steps/$n" ] || continue
	echo "$n" >>"$scratch/shown"
	differs "$to" "$mnt/steps/$n" >>"$scratch/differ" 2>&1
done <"$scratch/all"
is "each step shows what its checkpoint shows alone" \
    "$(head -n 5 "$scratch/differ")" ''
is "no complete checkpoint is left out" \
    "$(wc -l <"$scratch/shown")" "$(grep -c complete "$mnt/.optimfs/steps.tsv")"
[ "$(wc -l <"$scratch/shown")" -ge 60 ]
tap_result $? "the run has checkpoints of all fixtures" ||
    diag "$(cat "$mnt/.optimfs/warnings")"
is "no more than runs_open checkpoints stay open" \
    "$(sed -n 's/^open_checkpoints //p' "$mnt/.optimfs/stats")" 8
ok "unmount" "$OPTIMFS" umount "$mnt"

# Links and names.
rm -rf "$run"
mkdir "$run"
cp -r "$w2" "$run/step-100"
cp -r "$w3" "$run/step-2000"
cp -r "$data/pytorch/safetensors_plain/ckpt" "$run/checkpoint-0400"
cp -r "$w2" "$run/final"
mkdir "$run/logs" "$run/step-9000"
ok "a directory of checkpoints is mounted as a run" "$OPTIMFS" mount "$run" "$mnt"
is "the root has steps, names and two links" "$(ls "$mnt" | tr '\n' ' ')" \
    'avg by-name delta ema first latest lerp steps '
is "steps have no leading zeros" "$(ls "$mnt/steps" | sort -n | tr '\n' ' ')" \
    '100 400 2000 '
is "latest is a link to the last step" "$(readlink "$mnt/latest")" steps/2000
is "first is a link to the first step" "$(readlink "$mnt/first")" steps/100
is "by-name links to steps" "$(readlink "$mnt/by-name/checkpoint-0400")" \
    ../steps/400
is "a name that tells no step is a directory of by-name" \
    "$(cat "$mnt/by-name/final/optim/param_groups/0/lr")" 0.001
is "an unfinished checkpoint is not shown" \
    "$(ls "$mnt/by-name" | grep -c 9000) $(ls "$mnt/steps" | grep -c 9000)" '0 0'
like "steps.tsv says why a checkpoint is not finished" \
    "$(grep step-9000 "$mnt/.optimfs/steps.tsv")" '9000*unfinished*it is empty'
like "warnings say what is not in steps" "$(cat "$mnt/.optimfs/warnings")" \
    '*final: its name tells no step*step-9000: not finished: it is empty*'
ok "README of a run is text" grep -q steps.tsv "$mnt/.optimfs/README"
[ "$(stat -c %i "$mnt/steps/100/optim")" != "$(stat -c %i "$mnt/steps/2000/optim")" ]
tap_result $? "equal paths of two steps have different inode numbers"
not_ok "a run cannot be written" touch "$mnt/steps/100/optim/new"
not_ok "the root of a run cannot be written" mkdir "$mnt/new"
is "an attribute of a tensor is that of the checkpoint" \
    "$(python3 -c 'import os, sys
print(os.getxattr(sys.argv[1], "user.optimfs.shape").decode())' \
	"$mnt/latest/optim/state/layers.0.wq.weight/exp_avg")" 12,12
ok "a view of a step can be copied" \
    cp -r "$mnt/steps/100/.optimfs/view/dcp@3" "$scratch/resharded"
ok "and is the checkpoint" "$OPTIMFS" diff "$scratch/resharded" "$mnt/latest"

# Commands on the mount, and without it.
is "ls of a path in the mount of a run" \
    "$("$OPTIMFS" ls "$mnt/latest" | tr '\n' ' ')" 'model/ optim/ '
is "ls of the mount of a run" "$("$OPTIMFS" ls "$mnt" | tr '\n' ' ')" \
    'avg/ by-name/ delta/ ema/ first latest lerp/ steps/ '
is "log of the mount of a run" \
    "$("$OPTIMFS" log --csv "$mnt" optim/param_groups/0/lr)" \
    "$("$OPTIMFS" log --csv "$run" optim/param_groups/0/lr)"
ok "stat of a checkpoint in the mount of a run" \
    "$OPTIMFS" stat "$mnt/steps/2000/model"
ok "unmount" "$OPTIMFS" umount "$mnt"
for name in "$run:latest" "$run:2000" "$run/steps/2000" "$run/latest" \
    "$run/by-name/step-2000"; do
	ok "${name#"$run"} names a checkpoint" "$OPTIMFS" diff "$name" "$w3"
done
is "a path may follow the name" \
    "$("$OPTIMFS" cat "$run/steps/100/optim/param_groups/0/lr")" 0.001
is "ls of a run" "$("$OPTIMFS" ls "$run" | tr '\n' ' ')" \
    'avg/ by-name/ delta/ ema/ first latest lerp/ steps/ '
is "cat of a path in a run" \
    "$("$OPTIMFS" cat "$run" latest/optim/param_groups/0/lr)" 0.001
ok "reshard of a step" "$OPTIMFS" reshard --to dcp@1 "$run:first" "$scratch/first"
ok "gives the same state" "$OPTIMFS" diff "$scratch/first" "$run:100"
ok "check of a step" "$OPTIMFS" check "$run:100"
ok "a step is mounted for writing" \
    "$OPTIMFS" mount -o rw "$run:100" "$mnt"
ok "and is edited" sh -c "echo 1e-5 >'$mnt/optim/param_groups/0/lr'"
ok "and committed" "$OPTIMFS" umount "$mnt"
is "the run shows the new value" \
    "$("$OPTIMFS" cat "$run:100" optim/param_groups/0/lr)" 1e-05
ok "cp -r of the steps of a run" "$OPTIMFS" cp -r "$run" by-name "$scratch/copy"
is "copies links as links" "$(readlink "$scratch/copy/step-100")" ../steps/100
ok "tar of a run" sh -c "'$OPTIMFS' tar '$run' by-name | tar tvf - >'$scratch/tar'"
ok "has links" grep -q -- '-> ../steps/100' "$scratch/tar"

# Refusals.
refused() {
	status "$1" "$2" "$OPTIMFS" $3
	like "and says why: $4" "$(cat "$scratch/err")" "*$4*"
}
refused "a verb for one checkpoint refuses a run" 3 "stat $run" \
    "OFS681 $run holds checkpoints, give one of"
refused "a step that is not there" 3 "info $run:7" \
    "OFS851 $run: no step 7; the last one is 2000"
refused "a step that is not finished" 3 "info $run:9000" \
    "OFS851 step 9000, step-9000, is not finished: it is empty"
refused "a word that names nothing" 3 "info $run:newest" "OFS851 $run: newest names no"
refused "a directory without checkpoints" 3 "info $run/logs:latest" "OFS852 $run/logs"
refused "a run for writing" 3 "mount -o rw $run $mnt" OFS854
cp -r "$w2" "$run/ckpt_2000"
refused "a step that two checkpoints have" 3 "info $run:2000" \
    "OFS853 step 2000 is both ckpt_2000 and step-2000: give by-name/"
refused "latest, if that is two" 3 "info $run:latest" OFS853
ok "each is in by-name" "$OPTIMFS" info "$run/by-name/ckpt_2000"
ok "info of a run is a table" "$OPTIMFS" info "$run"
like "with a line for each checkpoint" "$(cat "$scratch/out")" \
    "*100  *dcp  *2  *complete  step-100*400 *safetensors*complete  checkpoint-0400*"
printf '\200\002broken.' >"$run/step-100/.metadata"
touch -d 2020-01-01 "$run"/step-100/* "$run/step-100/.metadata" "$run/step-100"
like "info says which one is damaged" \
    "$("$OPTIMFS" info "$run" | grep ' step-100')" '*100 *damaged*step-100*OFS*'

# A run follows its directory.
rm -r "$run/ckpt_2000" "$run/step-100" "$run/final"
"$OPTIMFS" mount "$run" "$mnt"
exec 3<"$mnt/steps/2000/optim/state/layers.0.wq.weight/exp_avg"
cksum <"$mnt/steps/2000/optim/state/layers.0.wq.weight/exp_avg" >"$scratch/was"
shows() {
	[ "$(ls "$mnt/steps" | sort -n | tr '\n' ' ')" = "$1" ]
}
mkdir "$run/step-3000"
cp "$w2"/*.distcp "$run/step-3000"
ok "without its index, a new checkpoint is not shown" shows '400 2000 '
half=$(($(stat -c %s "$w2/.metadata") / 2))
head -c $half "$w2/.metadata" >"$run/step-3000/.metadata"
ok "with half an index, it is not shown" shows '400 2000 '
not_ok "and cannot be looked up" ls "$mnt/steps/3000"
tail -c +$((half + 1)) "$w2/.metadata" >>"$run/step-3000/.metadata"
ok "when it is complete, it appears" eventually shows '400 2000 3000 '
is "and is the latest" "$(readlink "$mnt/latest")" steps/3000
cp "$data/pytorch/safetensors_plain/ckpt/model.safetensors" "$scratch/whole"
head -c 9000 "$scratch/whole" >"$run/step_5000.safetensors"
ok "a file of safetensors that is too short is not shown" shows '400 2000 3000 '
tail -c +9001 "$scratch/whole" >>"$run/step_5000.safetensors"
ok "until its last byte is there" eventually shows '400 2000 3000 5000 '
mv "$run/step-2000" "$scratch/away"
ok "what is removed disappears" shows '400 3000 5000 '
not_ok "and cannot be looked up" ls "$mnt/steps/2000/optim"
is "an open file goes on" "$(cksum <&3)" "$(cat "$scratch/was")"
exec 3<&-
cat "$mnt/steps/3000/optim/param_groups/0/lr" >/dev/null
"$OPTIMFS" mount -o rw "$run:3000" "$one"
echo 2e-5 >"$one/optim/param_groups/0/lr"
"$OPTIMFS" umount "$one"
is "a commit to a checkpoint shows in the mount of its run" \
    "$(cat "$mnt/steps/3000/optim/param_groups/0/lr")" 2e-05
"$OPTIMFS" umount "$mnt"

# Directories of another shape.
deep=$(point outputs)
mkdir "$deep/checkpoint" "$deep/tb"
cp -r "$w2" "$deep/checkpoint/step-1"
cp -r "$w2" "$deep/checkpoint/step-2"
is "checkpoints one level deeper are the run" \
    "$("$OPTIMFS" ls "$deep" steps | tr '\n' ' ')" '1/ 2/ '
both=$(point both)
cp "$scratch/whole" "$both/model.safetensors"
cp -r "$w2" "$both/checkpoint-500"
cp -r "$w3" "$both/checkpoint-1000"
is "a file beside checkpoints is one of the run" \
    "$("$OPTIMFS" ls "$both" by-name | tr '\n' ' ')" \
    'checkpoint-500 checkpoint-1000 model.safetensors/ '
only=$(point only)
cp -r "$w3" "$only/checkpoint-500"
is "a directory with one checkpoint is that one" \
    "$("$OPTIMFS" ls "$only" | head -n 1)" model/
is "and with run=yes a run" "$("$OPTIMFS" ls -o run=yes "$only" steps)" 500/
ok "its checkpoint has a name without that" "$OPTIMFS" diff "$only:latest" "$w3"
ranks=$(point ranks)
cp -r "$w2" "$ranks/dcp"
for r in 0 1; do
	cp "$data/extra/torch_save/adam.pt" "$ranks/rawopt_$r.pt"
done
"$OPTIMFS" info "$ranks" 2>"$scratch/err"
like "files of ranks beside a checkpoint are not steps of a run" "$(cat "$scratch/err")" \
    '*OFS681 *give one of: dcp; or a file: rawopt_0.pt'
is "with run=yes they are checkpoints with names" \
    "$("$OPTIMFS" ls -o run=yes "$ranks" by-name | tr '\n' ' ')" 'dcp/ rawopt_0.pt/ rawopt_1.pt/ '
# What Lightning writes. None of them is the one to open in silence.
light=$(point light)
cp "$data/extra/torch_save/adam.pt" "$light/epoch=0-step=4.ckpt"
cp "$data/extra/torch_save/adam.pt" "$light/epoch=1-step=8.ckpt"
is "files of two epochs are steps" "$("$OPTIMFS" ls "$light" steps | tr '\n' ' ')" '4/ 8/ '
mv "$light/epoch=0-step=4.ckpt" "$light/epoch=0-val_loss=0.25.ckpt"
mv "$light/epoch=1-step=8.ckpt" "$light/epoch=1-val_loss=0.125.ckpt"
is "so are those with a measure" "$("$OPTIMFS" ls "$light" steps | tr '\n' ' ')" '0/ 1/ '
mv "$light/epoch=1-val_loss=0.125.ckpt" "$light/last-v1.ckpt"
like "the last one is no part of another" "$("$OPTIMFS" info "$light" 2>&1)" \
    '*OFS681 *give one of: epoch=0-val_loss=0.25.ckpt, last-v1.ckpt*'
mkdir "$scratch/empty"
ok "a run that has no checkpoint yet can be mounted" \
    "$OPTIMFS" mount -o run=yes "$scratch/empty" "$mnt"
cp -r "$w2" "$scratch/empty/.new"
mv "$scratch/empty/.new" "$scratch/empty/step-1"
is "and shows the first one" "$(ls "$mnt/steps")" 1
"$OPTIMFS" umount "$mnt"

# 1,000 checkpoints of 1,000 tensors: what is listed is not opened, and what has
# been looked into does not stay open.
python3 - "$(point many)" <<'END'
import json, os, struct, sys
many = sys.argv[1]
h = json.dumps({f"layers.{i}.weight": {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]}
                for i in range(1000)}).encode()
with open(many + "/one", "wb") as f:
    f.write(struct.pack("<Q", len(h)) + h + bytes(4000))
for step in range(1, 1001):
    os.mkdir(f"{many}/step-{step}")
    os.link(many + "/one", f"{many}/step-{step}/model.safetensors")
os.unlink(many + "/one")
END
opened() {
	sed -n 's/^open_checkpoints //p' "$mnt/.optimfs/stats"
}
"$OPTIMFS" mount -f "$scratch/many" "$mnt" &
daemon=$!
eventually [ -d "$mnt/steps" ]
is "1,000 checkpoints are listed" "$(ls -l "$mnt/steps" | grep -c '^d')" 1000
is "and none is opened" "$(opened)" 0
for step in 1 111 222 333 444 555 666 777 888 999; do
	ls "$mnt/steps/$step/model"
done >"$scratch/names"
is "those of some are listed" "$(wc -l <"$scratch/names")" 10000
is "and few stay open" "$(opened)" 8
if sanitized; then
	skip 1 "sanitizers take memory too"
else
	ok "in less than 100 MB" awk '/^VmHWM/ { exit !($2 < 100000) }' "/proc/$daemon/status"
fi
"$OPTIMFS" umount "$mnt"
done_testing
