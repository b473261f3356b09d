#!/bin/sh
# write.t - edits through a read-write mount, and the checkpoint after the
# commit
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
requires mount python3 setfattr

data=$TOP_SRCDIR/tests/data/pytorch
m=$(point m)
S=optim/state/layers.0.w1.weight
cd "$scratch" || exit 99

calls() { # FILE CALL...: the results from write.py
	python3 "$TOP_SRCDIR/tests/integration/write.py" "$@"
}

# begin CHECKPOINT [OPTIONS]: copy it to ck, mount that read-write at $m, and
# copy the mounted tree to want
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

# each COMMAND...: run it in the mount and in the expected tree
each() {
	for d in "$m" "$scratch/want"; do
		(cd "$d" && "$@") || return 1
	done
}

# Reads ck without a mount: a mount could show staged data instead of stored
# data.
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
append_state() { # a new parameter with its state; cp -a copies the attributes
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

# Every kind of edit, in one commit.
o=
ok "DCP checkpoint mounts read-write" begin "$data/dcp_fsdp2_w3/ckpt"
ok "cp replaces the bytes of a tensor" each cp $S/exp_avg_sq $S/exp_avg
ok "dd conv=notrunc overwrites part of a tensor" each zeros model/output.weight 1001 500
is "a shared mapping of a tensor can be written and flushed" \
    "$(each calls model/tok_embeddings.weight open mmap:100:77)" "ok ok
ok ok"
is "a process writes to a shared mapping and is killed" \
    "$(each calls model/norm.bias open mmapdie:3:9 2>&1 | grep -c ok)" 1
zeros want/model/norm.bias 0 0
python3 "$TOP_SRCDIR/tests/integration/write.py" want/model/norm.bias \
    open pwrite:3:9 >/dev/null
ok "pages dirtied by a killed process reach the tensor" \
    cmp "$m/model/norm.bias" want/model/norm.bias
ok "echo changes the learning rate" each say 1e-05 optim/param_groups/0/lr
ok "echo changes an optimizer step" each say 4.0 $S/step
ok "echo replaces a list" each say '[0.5, 0.75]' optim/param_groups/1/betas
ok "sed -i edits a list" each sed -i s/0.999/0.25/ optim/param_groups/0/betas
ok "sed -i.bak edits a list and leaves a backup copy" \
    each sed -i.bak s/0.25/0.125/ optim/param_groups/0/betas
ok "sed -i.was leaves a backup copy with another suffix" \
    each sed -i.was s/x/y/ optim/param_groups/1/lr
ok "cp -a makes a backup copy of a scalar" each cp -a optim/param_groups/0/eps \
    optim/param_groups/0/eps~
ok "cp -a adds a parameter with its optimizer state" each append_state
ok "rm removes an optimizer state tensor" each rm optim/state/conv.bias/exp_avg
ok "rm -r removes the optimizer state of a parameter" each rm -r optim/state/conv.weight
ok "mv renames an optimizer state tensor" \
    each mv optim/state/norm.bias/exp_avg optim/state/norm.bias/momentum
ok "mv renames the state directory of a parameter" each mv optim/state/norm.weight \
    optim/state/final_norm.weight
ok "mv renames the state directory back" \
    each mv optim/state/final_norm.weight optim/state/norm.weight
is "setxattr changes the shape of a tensor" "$(calls "$m/model/rope" setxattr:shape:6,4)" ok
ok "all bytes of the new shape can be written" each python3 -c 'import sys
open("model/rope", "wb").write(bytes(range(96)))'
is "writing a .npy with a new name succeeds" "$(calls "$m/.optimfs/npy/model/extra_bias.npy" \
    open:c npy:\<f4:3x5:63 close)" "ok ok ok"
is "the new tensor has the shape and dtype of its .npy" \
    "$(calls "$m/model/extra_bias" getxattr:shape:3,5 \
    getxattr:dtype:float32)" "ok ok"
head -c 60 /dev/zero | tr '\0' '?' >want/model/extra_bias
is "writing a .npy over an existing tensor succeeds" \
    "$(calls "$m/.optimfs/npy/model/adapter.weight.npy" \
    open:t npy:\<f4:7x12:62 close)" "ok ok ok"
head -c 336 /dev/zero | tr '\0' '>' >want/model/adapter.weight
ok "the mount shows every edit before the commit" diff -r "$m" want
is "commit leaves the mount clean" "$("$OPTIMFS" commit "$m" 2>&1; cat "$m/.optimfs/control")" \
    clean
rm want/optim/param_groups/[01]/*.bak want/optim/param_groups/1/lr.was \
    want/optim/param_groups/0/eps~
ok "the mount shows every edit after the commit, without backup copies" diff -r "$m" want
ok "the mount can be edited after a commit" each say 0.5 optim/param_groups/0/eps
ok "umount commits, and the checkpoint equals the expected tree" committed
ok "the committed checkpoint mounts again" "$OPTIMFS" mount -o rw ck "$m"
ok "the new mount shows the committed tree" diff -r "$m" want
ok "umount succeeds when nothing has changed" "$OPTIMFS" umount "$m"

# Renaming the state of a parameter also renames it in its param group, so that
# no edit of the group is needed.
renamed() { # CHECKPOINT PARAMETER
	begin "$data/$1" && each mv "optim/state/$2" optim/state/other || return 1
	sed -i "s/^$2\$/other/" want/optim/param_groups/*/params
	grep -qx other want/optim/param_groups/*/params && diff -r "$m" want &&
	    each mv "model/$2" model/other && diff -r "$m" want && committed
}
ok "renaming a parameter updates its param group (DCP)" renamed dcp_fsdp2_w3/ckpt conv.weight
ok "renaming a parameter updates its param group (named optimizer)" \
    renamed named_optimizer_w2/ckpt \
    conv.weight

# The key params of a group may hold anything, not only a list of names.
python3 - <<'END'
import pickle
group = {"lr": 0.1, "params": {"x": 1, "y": 2}}
state = {"a": {"step": 1}, "b": {"step": 2}}
with open("dict.pt", "wb") as f:
    pickle.dump({"model": {"w": 1.0}, "optimizer": {
        "state": state, "param_groups": [group]}}, f, protocol=2)
END
ok "checkpoint whose params is a dictionary mounts read-write" begin dict.pt
ok "mv renames a state although params is a dictionary" each mv optim/state/a optim/state/q
ok "the rename changes nothing else" diff -r "$m" want
ok "abort succeeds after the rename" "$OPTIMFS" abort "$m"

# Programs that copy trees write every file again with the same contents.
again() {
	begin "$data/dcp_fsdp2_w2/ckpt" && "$@" && diff -r "$m" want && committed
}
rsync_all() {
	rsync -aX "$@" want/ "$m/"
}
untar() {
	tar -C want -cf - . | tar -C "$m" -xf -
}
ok "cp -a of the whole tree over itself commits the same tree" again cp -a want/. "$m/"
ok "tar x of the whole tree over itself commits the same tree" again untar
if command -v rsync >/dev/null; then
	ok "rsync over the whole tree commits the same tree" again rsync_all -I
	ok "rsync --inplace over the whole tree commits the same tree" again rsync_all -I --inplace
else
	skip 2 "no rsync"
fi

# The same edits in other formats.
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
	ok "$1: mounts read-write" begin "$data/$1" $u
	ok "$1: the mount shows edits of a tensor and of a scalar" \
	    some_edits model/layers.0.w1.weight "$2" "$3"
	ok "$1: the committed checkpoint equals the expected tree" committed
done
o=
ok "safetensors: mounts read-write" begin "$data/safetensors_plain/ckpt"
ok "safetensors: a tensor can be edited" each zeros model/layers.0.w1.weight 5 9
rm "$m/model/fp8"
not_ok "safetensors: commit fails when a tensor was removed" "$OPTIMFS" commit "$m"
like "safetensors: the failed commit reports OFS826 with the tensor" \
    "$(cat "$scratch/err")" "*OFS826*model/fp8*"
cp -a want/model/fp8 "$m/model/fp8"
ok "safetensors: commit succeeds when the tensor is back" committed

# Two concurrent writers of one tensor: for each byte the last write counts.
ok "checkpoint for concurrent writers mounts read-write" begin "$data/dcp_fsdp2_w2/ckpt"
for i in 1 2 3 4 5 6 7 8; do
	calls "$m/model/output.weight" open \
	    "pwrite:$((i * 100)):100:$i" "pwrite:$((i * 100)):100:$((64 + i))" \
	    >>two.out &
done
wait
is "all concurrent writes succeed" "$(sort -u two.out)" "ok ok ok"
for i in 1 2 3 4 5 6 7 8; do
	calls want/model/output.weight open "pwrite:$((i * 100)):100:$((64 + i))"
done >/dev/null
ok "the commit has every concurrent write" committed

# One parameter appears in the global tree, in rank trees and in flat files.
flat=$data/fsdp1_local_flat_fullshard_w3/ckpt
o="-o units=$scratch/u.json"
ok "flat FSDP1 checkpoint mounts read-write" begin "$flat" "units=$scratch/u.json"
r=$(cd "$m/.optimfs/rank" && find . -name layers.0.w1.weight -path '*model*' |
    head -n 1)
before=$(cksum <"$m/.optimfs/rank/$r")
ok "a parameter can be truncated and partly rewritten" each stretched model/layers.0.w1.weight
not_ok "commit fails when a tensor was truncated and not fully rewritten" "$OPTIMFS" commit "$m"
like "OFS301 names the tensor, its written bytes and its size" "$(cat "$scratch/err")" \
    "*OFS301*model/layers.0.w1.weight*96 of 912*"
ok "the whole parameter can be rewritten" \
    each sh -c 'head -c 912 /dev/zero >model/layers.0.w1.weight'
not_ok "the rank tree shows the new bytes of the parameter" test "$before" = \
    "$(cksum <"$m/.optimfs/rank/$r")"
ok "the commit of a flat parameter equals the expected tree" committed

# Commit replaces files instead of writing into them, so that hard links to the
# old files keep the old contents.
ok "checkpoint for hard links mounts read-write" begin "$data/dcp_fsdp2_w2/ckpt"
o=
cp -rl ck old && cp -r ck copy
ok "a tensor of a hard-linked file can be edited" each zeros model/output.weight 0 999
ok "the commit of hard-linked files equals the expected tree" committed
ok "hard links to the old files keep the old contents" diff -r old copy

# A relative tolerance applies to the real and imaginary part separately, and
# never to booleans.
ok "checkpoint with many dtypes mounts read-write" begin "$data/dcp_dtypes/ckpt"
printf '\0\0\0\101' | dd of="$m/model/t.complex64" bs=1 seek=4 conv=notrunc \
    2>/dev/null
first=$(od -An -tu1 -N1 "$m/model/t.bool")
printf "\\$((1 - first))" | dd of="$m/model/t.bool" bs=1 conv=notrunc 2>/dev/null
ok "umount commits an edited complex number and boolean" "$OPTIMFS" umount "$m"
status "diff --rtol exits with 1 for both edits" 1 \
    "$OPTIMFS" diff -v --rtol 1e-6 ck "$data/dcp_dtypes/ckpt"
is "diff --rtol names the complex and the boolean tensor" \
    "$(sed 's/:.*//' "$scratch/out")" "model/t.bool
model/t.complex64"

# A name of NAME_MAX bytes, and an owner too large for an octal tar header.
long=$(printf '%0255d' 7)
ok "checkpoint for long names mounts read-write" begin "$data/dcp_fsdp2_w2/ckpt"
cp -a "$m/model/output.weight" "$m/model/$long"
ok "umount commits a tensor with a name of 255 bytes" "$OPTIMFS" umount "$m"
mkdir copied
ok "optimfs cp copies a tensor with a name of 255 bytes" "$OPTIMFS" cp ck "model/$long" copied
ok "the copy has the bytes of the tensor" \
    sh -c '"$1" cat ck model/output.weight | cmp - "copied/$2"' - \
    "$OPTIMFS" "$long"
ok "optimfs cp leaves no other file" test "$(ls -A copied)" = "$long"
if [ "$(id -u)" = 0 ]; then
	chown -R 3000000001:2097152 ck
	"$OPTIMFS" tar ck optim/param_groups >tar
	is "optimfs tar stores numeric owners above 2097151" "$(tar --numeric-owner -tvf tar |
	    awk '{ print $2 }' | sort -u)" 3000000001/2097152
else
	skip 1 "not root"
fi

# A mount of a subtree, and a scratch mount.
ok "mount with -o subtree=optim succeeds" begin "$data/dcp_fsdp2_w2/ckpt" subtree=optim
cp -r "$m/." part
ok "a scalar below the subtree can be edited" each say 0.5 optim/param_groups/0/lr
ok "umount commits the edit of a subtree mount" "$OPTIMFS" umount "$m"
is "the edit is at its place in the whole checkpoint" \
    "$("$OPTIMFS" cat ck optim/param_groups/0/lr)" 0.5
ok "fsck accepts a checkpoint edited in a subtree mount" "$OPTIMFS" fsck --data ck
status "mount with a subtree that does not exist exits with 3" 3 \
    "$OPTIMFS" mount -o rw,subtree=nowhere ck "$m"
ok "mount with -o scratch succeeds" begin "$data/dcp_fsdp2_w2/ckpt" scratch
ls -ia ck >inodes
ok "a tensor of a scratch mount can be edited" each zeros model/output.weight 0 999
ok "a scratch mount shows its edits" diff -r "$m" want
not_ok "commit of a scratch mount fails" "$OPTIMFS" commit "$m"
like "commit of a scratch mount reports OFS819" "$(cat "$scratch/err")" "*OFS819*"
ok "a scratch mount unmounts without a commit" "$OPTIMFS" umount "$m"
is "a scratch mount leaves every file of the checkpoint as it was" "$(ls -ia ck)" "$(cat inodes)"
done_testing
