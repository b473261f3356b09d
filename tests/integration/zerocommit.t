#!/bin/sh
# zerocommit.t - DeepSpeed checkpoints are edited in place and committed
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"
requires mount

data=$TOP_SRCDIR/tests/data/deepspeed
script=$TOP_SRCDIR/tests/integration/zeroview.py
W=blocks.0.fc_out.weight
find_python -c 'import torch, numpy'
cd "$scratch" || exit 99

inodes() {
	(cd ck && find . -type f -exec stat -c '%n %i' {} +) | sort
}
# begin CHECKPOINT [integers]: copy it to ck and mount that read-write at $mnt
begin() {
	rm -rf ck .ck.optimfs tree now
	cp -r "$1" ck && chmod -R u+w ck
	if [ -n "$2" ]; then
		"$python" "$script" integers ck
	fi
	inodes > inodes.was
	mnt=$(point m)
	status "$1: mount -o rw exits with 0" 0 "$OPTIMFS" mount -o rw ck "$mnt"
}
commit() {
	echo commit > "$mnt/.optimfs/control"
}
# finish NAME: unmount; is the checkpoint equal to the mounted tree?
finish() {
	status "$1: umount exits with 0" 0 "$OPTIMFS" umount "$mnt"
	[ "$1" = "a pipeline" ] || # the checksums are wrong after sed
	    status "$1: fsck --data accepts the committed checkpoint" 0 "$OPTIMFS" fsck --data ck
	"$OPTIMFS" cp -r ck . now
	ok "$1: the committed tree equals the edited mount" diff -r tree now
}
overwrite() { # FILE OFFSET BYTES: by text, which is finite as numbers of any type
	dd if="$script" of="$mnt/$1" bs=1 seek="$2" count="$3" \
	    conv=notrunc 2>/dev/null
}

edit() { # CHECKPOINT NAME
	begin "$data/$1"
	echo 1e-5 > "$mnt/optim/param_groups/0/lr"
	[ ! -d "$mnt/optim/param_groups/1" ] ||
	    echo 1e-5 > "$mnt/optim/param_groups/1/lr"
	overwrite "optim/state/$W/fp32" 8 160
	overwrite "optim/state/$W/exp_avg" 0 840
	for step in "$mnt"/optim/state/*/step; do
		echo 9 > "$step"
	done
	cp -r "$mnt" tree
	is "$2: no file of the checkpoint changes before the commit" "$(inodes)" \
	    "$(cat inodes.was)"
	commit
	is "$2: commit leaves the mount clean" "$(cat "$mnt/.optimfs/control")" clean
	# The commit rounds the model from fp32.
	rm -r tree/model && cp -r "$mnt/model" tree/model
	finish "$2"
	torch "$2: torch.load finds the edits" says ck 1e-5 9
}

edit z2_ws4_round_robin/ckpt ZeRO-2
torch "ZeRO-2: the weights gathered from the flat groups equal the tree" gather ck now
is "ZeRO-2: commit does not rewrite latest and the model files" \
    "$(inodes | grep -c -x -F -f inodes.was)" \
    "$(grep -c -e latest -e model_states inodes.was)"
edit z3_ws2_subgroups/ckpt ZeRO-3
torch "ZeRO-3: the weights gathered from the flat groups equal the tree" gather ck now
mv now other
edit v0.19.6_z1_ws2_bf16/ckpt_universal universal
edit v0.18.5_z3_ws4_subgroups/ckpt_universal "universal, of stage 3"

# Files that were swapped are edited as those of the ranks that wrote them.
rm -rf swapped && cp -r "$data/z3_ws2_bf16/ckpt" swapped && chmod -R u+w swapped
for to in 1 0; do
	cp "$data/z3_ws2_bf16/ckpt/global_step3/bf16_zero_pp_rank_$((1 - to))_mp_rank_00_optim_states.pt" \
	    "swapped/global_step3/bf16_zero_pp_rank_${to}_mp_rank_00_optim_states.pt"
done
begin "$PWD/swapped"
overwrite "optim/state/$W/exp_avg" 0 840
cp -r "$mnt" tree
commit
finish "swapped files"

# A step that is a tensor is stored once per file and group, too.
begin "$data/z1_ws2_bf16/ckpt"
other=blocks.1.fc_out.weight
echo 5 > "$mnt/optim/state/$W/step"
echo abort > "$mnt/.optimfs/control"
echo 6 > "$mnt/optim/state/$W/step"
echo 7 > "$mnt/optim/state/$other/step"
not_ok "commit fails when two steps of a group were written differently" commit
like "OFS828 names both steps of the group" "$(cat "$mnt/.optimfs/errors")" \
    "*OFS828*state/$W/step: *state/$other/step, *"
echo abort > "$mnt/.optimfs/control"
echo 7 > "$mnt/optim/state/$other/step"
ok "commit of one step succeeds after the other was aborted" commit
ok "umount succeeds after one step was written" "$OPTIMFS" umount "$mnt"
is "all parameters of the group have the step that was written" \
    "$("$OPTIMFS" cat ck optim/state/$W/step)" 7.0

# Muon's momentum of a parameter that is cut between two ranks is whole on both.
begin "$data/v0.19.6_z2_ws3_muon/ckpt"
overwrite optim/state/blocks.0.2.weight/momentum_buffer 4 40
cp -r "$mnt" tree
commit
finish Muon
rm -rf view && "$OPTIMFS" cp -r ck .optimfs/view/zero2@3 view
torch "Muon: both ranks have the edited momentum" same ck view

# Integer steps are stored once per file and group.
integers() { # CHECKPOINT NAME
	if [ -z "$python" ]; then
		skip 1 "no PyTorch here"
		return
	fi
	begin "$data/$1" integers
	echo 9 > "$mnt/optim/state/$W/step"
	if [ -n "$3" ]; then
		commit 2>/dev/null
		like "$2: commit fails with OFS828 when one step of a group differs" \
		    "$(cat "$mnt/.optimfs/errors")" '*OFS828*step*'
	fi
	for step in "$mnt"/optim/state/*/step; do
		echo 9 > "$step"
	done
	for lr in "$mnt"/optim/param_groups/*/lr; do
		echo 1e-5 > "$lr"
	done
	cp -r "$mnt" tree
	commit
	is "$2: commit leaves the mount clean" "$(cat "$mnt/.optimfs/control")" clean
	finish "$2"
	torch "$2: every file has the new lr and step" says ck 1e-5 9
}
integers z1_ws3_bf16/ckpt "ZeRO-1, integers" group
integers z3_ws2_subgroups/ckpt "ZeRO-3, integers" group
integers z2_ws2_bf16/ckpt_universal "universal, integers"
integers v0.18.5_z3_ws2_bf16/ckpt_universal \
    "universal, integers, of stage 3" group

# Copying a whole tree over a checkpoint. Rounded weights must agree with their
# fp32 masters; other weights cannot be stored.
mv other/extra other.extra
begin "$data/z3_ws2_subgroups/ckpt"
ok "cp -r of another tree over a ZeRO-3 mount succeeds" cp -r other/. "$mnt"
cp -r "$mnt" tree
commit
is "commit of the copied tree leaves the mount clean" "$(cat "$mnt/.optimfs/control")" clean
finish "a tree over it"
mv other.extra now/extra.not
rm -r now/extra now/extra.not
ok "the committed tree equals the copied one" diff -r other now
begin "$data/z3_ws2_subgroups/ckpt"
overwrite "model/$W" 0 20
commit 2>/dev/null
like "commit fails with OFS822 when only a rounded weight was edited" \
    "$(cat "$mnt/.optimfs/errors")" "*OFS822*model/$W*"
echo abort > "$mnt/.optimfs/control"
ok "umount succeeds after abort" "$OPTIMFS" umount "$mnt"
is "the aborted edit has not changed the checkpoint" "$(inodes)" "$(cat inodes.was)"

# In a universal checkpoint every state is a file.
for name in z2_ws2_bf16 v0.18.5_z3_ws2_bf16; do
	begin "$data/$name/ckpt_universal"
	rm "$mnt"/optim/state/*/exp_avg_sq
	for dir in "$mnt"/optim/state/*; do
		cp -a "$dir/exp_avg" "$dir/max_exp_avg_sq"
		mv "$dir/exp_avg" "$dir/momentum_buffer"
	done
	cp -r "$mnt" tree
	commit
	is "$name: commit of added and removed states leaves the mount clean" \
	    "$(cat "$mnt/.optimfs/control")" clean
	finish "$name, other states"
	begin "$data/$name/ckpt_universal"
	rm -r "$mnt/optim/state/gain"
	commit 2>/dev/null
	like "$name: commit fails with OFS826 when a parameter was removed" \
	    "$(cat "$mnt/.optimfs/errors")" \
	    "*OFS826*optim/state/gain/*"
	echo abort >"$mnt/.optimfs/control"
	ok "$name: umount succeeds after abort" "$OPTIMFS" umount "$mnt"
	is "$name: the aborted removal has not changed the checkpoint" "$(inodes)" \
	    "$(cat inodes.was)"
done

# Pipeline stages: the options are in the files of every stage, the values in
# the files of their layer.
mkdir -p pipe/global_step3
cp "$data"/z2_ws2_nozip/ckpt/global_step3/* pipe/global_step3
for file in pipe/global_step3/*mp_rank_00*; do
	sed -e 's/emb\./emc./g' -e 's/blocks\./blockz./g' \
	    -e 's/final_/finaj_/g' -e 's/gain/gaim/g' -e 's/small/smalm/g' \
	    -e 's/frozen\./frozem./g' -e 's/head/heae/g' \
	    -e 's/counter/cointer/g' -e 's/pos/por/g' "$file" \
	    > "$(echo "$file" | sed 's/mp_rank_00/mp_rank_01/')"
done
cp "$data/z2_ws2_bf16/ckpt_universal/global_step3_universal/zero/gain/fp32.pt" \
    pipe/global_step3/layer_03-model_00-model_states.pt
begin "$scratch/pipe"
echo 1e-5 > "$mnt/optim/param_groups/0/lr"
echo 5 > "$mnt/model/3.cat_dim"
overwrite optim/state/gaim/fp32 0 4
overwrite model/3.param 0 4
cp -r "$mnt" tree
commit
is "a pipeline: commit leaves the mount clean" "$(cat "$mnt/.optimfs/control")" clean
finish "a pipeline"
is "a pipeline: the new lr is in every optimizer file" \
    "$(grep -l -a 'lrq.G>' ck/global_step3/*optim* | wc -l)" 4

# Each rank of ZeRO 3 saves its buffers, such as the statistics of its part of a batch.
ck=$scratch/zero
cp -r "$data/z3_ws2_subgroups/ckpt" "$ck"
"$OPTIMFS" cat "$ck" model/pos >"$scratch/pos"
python3 - "$scratch/pos" "$ck/global_step3/zero_pp_rank_1_mp_rank_00_model_states.pt" <<'E2'
import sys, zlib
old, data = (open(name, "rb").read() for name in sys.argv[1:])
new = b"\x55" + old[1:]
assert data.count(old) == 1
crc = lambda b: zlib.crc32(b).to_bytes(4, "little")
with open(sys.argv[2], "wb") as f:
    f.write(data.replace(old, new).replace(crc(old), crc(new)))
E2
ok "ZeRO 3: where buffers differ, those of rank 0 are shown" \
    sh -c '"$1" cat "$2" model/pos | cmp - "$3"' sh "$OPTIMFS" "$ck" "$scratch/pos"
is "ZeRO 3: .optimfs/rank has those of others" \
    "$("$OPTIMFS" cat "$ck" .optimfs/rank/1/model/pos | cmp -l - "$scratch/pos" | wc -l)" 1
like "ZeRO 3: a warning says so" "$("$OPTIMFS" cat "$ck" .optimfs/warnings)" \
    "*OFS674 each rank has buffers of its own: those of rank 0 are shown*"
mnt=$(point m)
"$OPTIMFS" mount -o rw "$ck" "$mnt"
printf A | dd of="$mnt/model/pos" conv=notrunc bs=1 2>/dev/null
ok "ZeRO 3: an edit is committed" "$OPTIMFS" umount "$mnt"
is "ZeRO 3: it is of rank 0" \
    "$(for r in 0 1; do "$OPTIMFS" cat "$ck" .optimfs/rank/$r/model/pos | head -c 1; done)" AU
"$OPTIMFS" cat "$ck" model/pos >"$scratch/pos"
ok "ZeRO 3: it is converted" "$OPTIMFS" reshard -q --to zero3@3 "$ck" "$scratch/three"
ok "ZeRO 3: with those of rank 0" \
    sh -c '"$1" cat "$2" model/pos | cmp - "$3"' sh "$OPTIMFS" "$scratch/three" "$scratch/pos"
done_testing
