#!/bin/sh
# write.t - what a mount that can be written to takes, and a commit makes of it
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
requires mount python3 setfattr

data=$TOP_SRCDIR/tests/data/pytorch
m=$(point m)
S=optim/state/layers.0.w1.weight
cd "$scratch" || exit 99

calls() { # FILE CALL...: what write.py says
	python3 "$TOP_SRCDIR/tests/integration/write.py" "$@"
}

# begin CHECKPOINT [OPTIONS]: a copy, mounted at $m, and its tree in want/
begin() {
	drop
	cp -r "$1" ck && chmod -R u+w ck || return 1
	mkdir want
	"$OPTIMFS" mount -o "rw${2:+,$2}" ck "$m" && cp -a "$m/." want
}

drop() {
	mountpoint -q "$m" && { "$OPTIMFS" abort "$m"; "$OPTIMFS" umount "$m"; }
	rm -rf ck .ck.optimfs want now
}

# each COMMAND...: in the mount, and in the tree that it should become
each() {
	for d in "$m" "$scratch/want"; do
		(cd "$d" && "$@") || return 1
	done
}

# Read without a mount, in case it shows what it keeps rather than what is.
same() {
	rm -rf now
	"$OPTIMFS" cp $o -r ck / now && diff -r want now
}

committed() {
	"$OPTIMFS" umount "$m" && [ ! -e .ck.optimfs ] &&
	    "$OPTIMFS" fsck $o --data ck && same
}

zeros() { # FILE BYTE COUNT
	dd if=/dev/zero of="$1" bs=1 seek="$2" count="$3" conv=notrunc 2>/dev/null
}
append_state() { # a parameter, and its state: cp -a says what they are
	cp -a model/layers.0.w1.weight model/layers.9.w1.weight
	mkdir optim/state/layers.9.w1.weight
	cp -a $S/. optim/state/layers.9.w1.weight
	echo layers.9.w1.weight >>optim/param_groups/0/params
}
say() {
	echo "$1" >"$2"
}
stretched() {
	head -c 96 /dev/zero >"$1"
}

# Everything that one does to files, in one commit.
o=
ok "a DCP checkpoint" begin "$data/dcp_fsdp2_w3/ckpt"
ok "cp over a tensor" each cp $S/exp_avg_sq $S/exp_avg
ok "dd conv=notrunc" each zeros model/output.weight 1001 500
is "a shared mapping" \
    "$(each calls model/tok_embeddings.weight open mmap:100:77)" "ok ok
ok ok"
is "of one who is killed" \
    "$(each calls model/norm.bias open mmapdie:3:9 2>&1 | grep -c ok)" 1
zeros want/model/norm.bias 0 0
python3 "$TOP_SRCDIR/tests/integration/write.py" want/model/norm.bias \
    open pwrite:3:9 >/dev/null
ok "has its pages written" cmp "$m/model/norm.bias" want/model/norm.bias
ok "echo into lr" each say 1e-05 optim/param_groups/0/lr
ok "into a step" each say 4.0 $S/step
ok "into a list" each say '[0.5, 0.75]' optim/param_groups/1/betas
ok "sed -i" each sed -i s/0.999/0.25/ optim/param_groups/0/betas
ok "sed -i.bak" each sed -i.bak s/0.25/0.125/ optim/param_groups/0/betas
ok "with another suffix" each sed -i.was s/x/y/ optim/param_groups/1/lr
ok "cp of a value beside it" each cp -a optim/param_groups/0/eps \
    optim/param_groups/0/eps~
ok "cp -a adds state" each append_state
ok "rm" each rm optim/state/conv.bias/exp_avg
ok "rm -r" each rm -r optim/state/conv.weight
ok "mv" each mv optim/state/norm.bias/exp_avg optim/state/norm.bias/momentum
ok "mv of a directory" each mv optim/state/norm.weight \
    optim/state/final_norm.weight
ok "back" each mv optim/state/final_norm.weight optim/state/norm.weight
is "another shape" "$(calls "$m/model/rope" setxattr:shape:6,4)" ok
ok "and its bytes" each python3 -c 'import sys
open("model/rope", "wb").write(bytes(range(96)))'
is "a .npy of a new name" "$(calls "$m/.optimfs/npy/model/extra_bias.npy" \
    open:c npy:\<f4:3x5:63 close)" "ok ok ok"
is "has its shape" "$(calls "$m/model/extra_bias" getxattr:shape:3,5 \
    getxattr:dtype:float32)" "ok ok"
head -c 60 /dev/zero | tr '\0' '?' >want/model/extra_bias
is "a .npy over a tensor" "$(calls "$m/.optimfs/npy/model/adapter.weight.npy" \
    open:t npy:\<f4:7x12:62 close)" "ok ok ok"
head -c 336 /dev/zero | tr '\0' '>' >want/model/adapter.weight
ok "the mount has all of it" diff -r "$m" want
is "its views do" "$("$OPTIMFS" commit "$m" 2>&1; cat "$m/.optimfs/control")" \
    clean
rm want/optim/param_groups/[01]/*.bak want/optim/param_groups/1/lr.was \
    want/optim/param_groups/0/eps~
ok "after a commit, too, without backup copies" diff -r "$m" want
ok "and goes on" each say 0.5 optim/param_groups/0/eps
ok "unmounted, the checkpoint has it" committed
ok "mounted again" "$OPTIMFS" mount -o rw ck "$m"
ok "it shows that" diff -r "$m" want
ok "and has nothing to commit" "$OPTIMFS" umount "$m"

# A parameter gets another name: its groups say so, and then nothing is to be
# said to them.
renamed() { # CHECKPOINT PARAMETER
	begin "$data/$1" && each mv "optim/state/$2" optim/state/other || return 1
	sed -i "s/^$2\$/other/" want/optim/param_groups/*/params
	grep -qx other want/optim/param_groups/*/params && diff -r "$m" want &&
	    each mv "model/$2" model/other && diff -r "$m" want && committed
}
ok "a parameter renamed, as an item" renamed dcp_fsdp2_w3/ckpt conv.weight
ok "with an optimizer that names its own" renamed named_optimizer_w2/ckpt \
    conv.weight

# What is called params may be anything.
python3 - <<'END'
import pickle
group = {"lr": 0.1, "params": {"x": 1, "y": 2}}
state = {"a": {"step": 1}, "b": {"step": 2}}
with open("dict.pt", "wb") as f:
    pickle.dump({"model": {"w": 1.0}, "optimizer": {
        "state": state, "param_groups": [group]}}, f, protocol=2)
END
ok "params that is a dictionary" begin dict.pt
ok "a state renamed" each mv optim/state/a optim/state/q
ok "changes nothing else" diff -r "$m" want
ok "and the mount goes on" "$OPTIMFS" abort "$m"

# Programs that copy trees: all is written anew, nothing changes.
again() {
	begin "$data/dcp_fsdp2_w2/ckpt" && "$@" && diff -r "$m" want && committed
}
rsync_all() {
	rsync -aX "$@" want/ "$m/"
}
untar() {
	tar -C want -cf - . | tar -C "$m" -xf -
}
ok "cp -a over all" again cp -a want/. "$m/"
ok "tar x over all" again untar
if command -v rsync >/dev/null; then
	ok "rsync over all" again rsync_all -I
	ok "rsync --inplace over all" again rsync_all -I --inplace
else
	skip 2 "no rsync"
fi

# The other formats.
some_edits() { # TENSOR VALUE TEXT
	each zeros "$1" 5 9 && each say "$3" "$2" && diff -r "$m" want
}
o="-o units=$scratch/u.json"
cp "$data/fsdp1_local_flat_fullshard_w3/units.json" u.json
for row in \
    "torchsave_full/ckpt/state.pt optim/param_groups/0/lr 0.125" \
    "fsdp1_sharded_flat_fullshard_w3/ckpt_rankfiles optim/param_groups/0/lr 0.5" \
    "fsdp1_local_flat_fullshard_w3/ckpt optim/param_groups/0/eps 1e-06" \
    "dcp_fsdp2_safetensors_w2/ckpt optim/param_groups/0/lr 0.25" \
    "dcp_tp_fsdp_w4/ckpt optim/param_groups/0/lr 0.25"; do
	set -- $row
	case $1 in
	*local_flat*) o="-o units=$scratch/u.json" u=units=$scratch/u.json ;;
	*) o= u= ;;
	esac
	ok "$1" begin "$data/$1" $u
	ok "$1: edited" some_edits model/layers.0.w1.weight "$2" "$3"
	ok "$1: committed" committed
done
o=
ok "safetensors" begin "$data/safetensors_plain/ckpt"
ok "safetensors: edited" each zeros model/layers.0.w1.weight 5 9
rm "$m/model/fp8"
not_ok "safetensors: keeps its names" "$OPTIMFS" commit "$m"
like "safetensors: and says so" "$(cat "$scratch/err")" "*OFS826*model/fp8*"
cp -a want/model/fp8 "$m/model/fp8"
ok "safetensors: committed" committed

# Two writers of one tensor: the last one of each byte.
ok "two at once" begin "$data/dcp_fsdp2_w2/ckpt"
for i in 1 2 3 4 5 6 7 8; do
	calls "$m/model/output.weight" open \
	    "pwrite:$((i * 100)):100:$i" "pwrite:$((i * 100)):100:$((64 + i))" \
	    >>two.out &
done
wait
is "all succeed" "$(sort -u two.out)" "ok ok ok"
for i in 1 2 3 4 5 6 7 8; do
	calls want/model/output.weight open "pwrite:$((i * 100)):100:$((64 + i))"
done >/dev/null
ok "and nothing is lost" committed

# Coupled representations: rank files, slices and padding.
flat=$data/fsdp1_local_flat_fullshard_w3/ckpt
o="-o units=$scratch/u.json"
ok "flat parameters" begin "$flat" "units=$scratch/u.json"
r=$(cd "$m/.optimfs/rank" && find . -name layers.0.w1.weight -path '*model*' |
    head -n 1)
before=$(cksum <"$m/.optimfs/rank/$r")
ok "a write to all of a parameter" each stretched model/layers.0.w1.weight
not_ok "of which the rest is cut off, is no commit" "$OPTIMFS" commit "$m"
like "by name and bytes" "$(cat "$scratch/err")" \
    "*OFS301*model/layers.0.w1.weight*96 of 912*"
ok "the rest" each sh -c 'head -c 912 /dev/zero >model/layers.0.w1.weight'
not_ok "is in the rank that has it" test "$before" = \
    "$(cksum <"$m/.optimfs/rank/$r")"
ok "and committed" committed

# A hard link to a file of the old checkpoint keeps what it was.
ok "linked files" begin "$data/dcp_fsdp2_w2/ckpt"
o=
cp -rl ck old && cp -r ck copy
ok "are edited" each zeros model/output.weight 0 999
ok "and committed" committed
ok "but not there" diff -r old copy

# A tolerance is for each part of a number, and for no two truths.
ok "types" begin "$data/dcp_dtypes/ckpt"
printf '\0\0\0\101' | dd of="$m/model/t.complex64" bs=1 seek=4 conv=notrunc \
    2>/dev/null
first=$(od -An -tu1 -N1 "$m/model/t.bool")
printf "\\$((1 - first))" | dd of="$m/model/t.bool" bs=1 conv=notrunc 2>/dev/null
ok "are edited" "$OPTIMFS" umount "$m"
status "and differ" 1 "$OPTIMFS" diff --rtol 1e-6 ck "$data/dcp_dtypes/ckpt"
is "each" "$(sed 's/:.*//' "$scratch/out")" "model/t.bool
model/t.complex64"

# The longest name there is, and owners that few have.
long=$(printf '%0255d' 7)
ok "a long name" begin "$data/dcp_fsdp2_w2/ckpt"
cp -a "$m/model/output.weight" "$m/model/$long"
ok "is committed" "$OPTIMFS" umount "$m"
mkdir copied
ok "and copied" "$OPTIMFS" cp ck "model/$long" copied
ok "as it was" sh -c '"$1" cat ck model/output.weight | cmp - "copied/$2"' - \
    "$OPTIMFS" "$long"
ok "nothing else is there" test "$(ls -A copied)" = "$long"
if [ "$(id -u)" = 0 ]; then
	chown -R 3000000001:2097152 ck
	"$OPTIMFS" tar ck optim/param_groups >tar
	is "an archive has it, and its owner" "$(tar --numeric-owner -tvf tar |
	    awk '{ print $2 }' | sort -u)" 3000000001/2097152
else
	skip 1 "not root"
fi

# Part of a tree; a mount to try things.
ok "a subtree" begin "$data/dcp_fsdp2_w2/ckpt" subtree=optim
cp -r "$m/." part
ok "is edited" each say 0.5 optim/param_groups/0/lr
ok "and committed" "$OPTIMFS" umount "$m"
is "to the whole" "$("$OPTIMFS" cat ck optim/param_groups/0/lr)" 0.5
ok "which is sound" "$OPTIMFS" fsck --data ck
status "a subtree that is not there" 3 \
    "$OPTIMFS" mount -o rw,subtree=nowhere ck "$m"
ok "scratch" begin "$data/dcp_fsdp2_w2/ckpt" scratch
ls -ia ck >inodes
ok "is edited" each zeros model/output.weight 0 999
ok "and shows it" diff -r "$m" want
not_ok "but commits nothing" "$OPTIMFS" commit "$m"
like "and says so" "$(cat "$scratch/err")" "*OFS819*"
ok "is gone" "$OPTIMFS" umount "$m"
is "without a trace" "$(ls -ia ck)" "$(cat inodes)"
done_testing
