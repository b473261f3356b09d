#!/bin/sh
# source.t - .optimfs/view/source has the files that a commit will leave
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
requires mount

data=$TOP_SRCDIR/tests/data
view=.optimfs/view/source
W=layers.0.w1.weight
number=0
cd "$scratch" || exit 99

# begin CHECKPOINT NAME: copies it to ck, beside files that no format reads
begin() {
	rm -rf ck now view
	cp -r "$1" ck && chmod -R u+w ck
	echo "as it is" > ck/NOTES.txt
	mkdir -p ck/more/below
	echo 1 > ck/more/below/.hidden
	status "$2: a copy of the view of a read-only checkpoint exits with 0" 0 \
	    "$OPTIMFS" cp -r ck "$view" now
	ok "$2: its files are those of the checkpoint" diff -r ck now
	number=$((number + 1))
	mnt=$(point m$number)
	"$OPTIMFS" mount -o rw ck "$mnt"
	ok "$2: without changes a mount shows the same files" diff -r ck "$mnt/$view"
}

# finish NAME: a copy of the view, and the directory after a commit
finish() {
	status "$1: cp -r copies what a commit will leave" 0 cp -r "$mnt/$view" view
	status "$1: the changes are in it" 1 diff -rq now view
	ok "$1: the checkpoint has none of them yet" diff -r now ck
	status "$1: umount commits" 0 "$OPTIMFS" umount "$mnt"
	ok "$1: the copy has the bytes of the committed checkpoint" diff -r view ck
}

bytes() { # PATH
	printf '\001\002\003\004\005\006\007' |
	    dd of="$mnt/$1" bs=1 seek=5 conv=notrunc 2>"$scratch/dd"
}

add() { # FROM TO: a tensor that the checkpoint does not have
	cp -a "$1" "$2"
}

# all CHECKPOINT NAME COMMAND: values, bytes, and names; the command makes one
all() {
	begin "$data/pytorch/$1" "$2"
	echo 1e-5 > "$mnt/optim/param_groups/0/lr"
	bytes "model/$W"
	mv "$mnt/optim/state/$W/exp_avg" "$mnt/optim/state/$W/momentum"
	rm "$mnt/optim/state/layers.0.w2.weight/exp_avg"
	"$3" "$mnt/optim/state/$W/exp_avg_sq" "$mnt/optim/state/$W/more"
	finish "$2"
}

all dcp_fsdp2_w2/ckpt dcp add
if "$OPTIMFS" --version | grep -q zstd; then
	all dcp_fsdp2_zstd_w2/ckpt zstd add
fi
all fsdp1_sharded_orig_fullshard_w2/ckpt_rankfiles "rank files" mv

# files CHECKPOINT NAME FILE...: bytes of tensors alone, and lr where there is one
files() {
	begin "$data/$1" "$2"
	for lr in "$mnt"/optim/param_groups/*/lr; do
		[ ! -f "$lr" ] || echo 1e-5 > "$lr"
	done
	name=$2
	shift 2
	for file; do
		bytes "$file"
	done
	finish "$name"
}

files pytorch/safetensors_plain/ckpt safetensors model/$W
files pytorch/dcp_fsdp2_safetensors_w2/ckpt "safetensors in dcp" model/$W
files deepspeed/z2_ws2_nozip/ckpt "legacy ZeRO" optim/state/blocks.0.fc_out.weight/exp_avg
files deepspeed/z3_ws2_bf16/ckpt ZeRO optim/state/blocks.0.fc_out.weight/exp_avg
files deepspeed/z2_ws2_bf16/ckpt_universal universal \
    optim/state/blocks.0.fc_out.weight/exp_avg
files megatron/gpt_tp2_dp2/fully_reshardable Megatron

# One file of a directory: what lies beside it is not the checkpoint's.
rm -rf ck now view
mkdir ck
cp "$data/pytorch/torchsave_full/ckpt/state.pt" ck
echo "of somebody else" > ck/other
mnt=$(point one)
"$OPTIMFS" mount -o rw ck/state.pt "$mnt"
cp -a "$mnt/model/$W" "$mnt/model/new"
is "one file: the view has it alone" "$(ls "$mnt/$view")" state.pt
cp "$mnt/$view/state.pt" view

# A view has the changes of when it was looked up.
bytes model/$W
is "a view follows bytes that are written later" \
    "$(cmp -s "$mnt/$view/state.pt" view; echo $?)" 1
cp "$mnt/$view/state.pt" view
"$OPTIMFS" umount "$mnt"
ok "one file: the copy has the bytes of the committed file" cmp view ck/state.pt

# What a commit refuses is refused here, with the same words.
"$OPTIMFS" mount -o rw ck/state.pt "$mnt"
echo text > "$mnt/model/odd"
status "a change that cannot be committed has no files" 2 ls "$mnt/$view"
like "the error is that of the commit" "$(cat "$mnt/.optimfs/errors")" "*OFS303*model/odd*"
echo abort > "$mnt/.optimfs/control"
is "without the change the view has the files again" "$(ls "$mnt/$view")" state.pt
"$OPTIMFS" umount "$mnt"

status "a checkpoint cannot be made in the layout of its own files" 2 \
    "$OPTIMFS" mkfs --like ck/state.pt --layout source made
like "mkfs names the reason" "$(cat "$scratch/err")" "*OFS771*name a format*"
status "the view has no options" 2 "$OPTIMFS" ls ck/state.pt "$view,drop=opaque"
status "not those of other views either" 2 "$OPTIMFS" ls ck/state.pt "$view,only=optim"
like "the error says so" "$(cat "$scratch/err")" "*OFS771*has no option 'only=optim'*"

# Two directories as one: what lies beside them is not theirs.
rm -rf ck two
mkdir two && echo "of somebody else" > two/other
for part in model optim; do
	"$OPTIMFS" reshard -q --to torch,only=$part \
	    "$data/pytorch/torchsave_full/ckpt/state.pt" two/$part 2>"$scratch/said"
done
is "joined: the view has the files of both" \
    "$("$OPTIMFS" ls -R -o join=two/optim two/model "$view" | grep -v '/$')" \
    "$(cd two && find model optim -type f | sort)"
done_testing
