#!/bin/sh
# zeroview.t - the views of DeepSpeed formats: zero1@N, zero2@N, zero3@N,
# universal
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

data=$TOP_SRCDIR/tests/data
script=$TOP_SRCDIR/tests/integration/zeroview.py
find_python -c 'import torch, numpy'

tree() {
	rm -rf "$2"
	"$OPTIMFS" cp -r "$1" . "$2"
}
# source_of CHECKPOINT [-o OPTIONS]: set $ck and $opt, and copy the tree to want
source_of() {
	ck=$1
	shift
	opt=$*
	rm -rf "$scratch/want"
	"$OPTIMFS" cp $opt -r "$ck" . "$scratch/want"
}
# view NAME DIR: copy that view of $ck to DIR
view() {
	rm -rf "$2"
	"$OPTIMFS" cp $opt -r "$ck" ".optimfs/view/$1" "$2"
}
# Removes what describes the layout of the view instead of the state.
forget() {
	rm -f "$1/extra/dp_world_size" \
	    "$1/extra/optimizer_state_dict/zero_stage"
	rmdir "$1/extra/optimizer_state_dict" 2>/dev/null
	return 0
}
# becomes VIEW: does a copy of the view have the tree in want?
becomes() {
	view "$1" "$scratch/view" && tree "$scratch/view" "$scratch/got" ||
	    return 1
	forget "$scratch/got"
	forget "$scratch/want"
	diff -r "$scratch/want" "$scratch/got"
}

# DeepSpeed checkpoints as every stage at several world sizes.
for name in z1_ws3_bf16 z2_ws4_round_robin z2_ws2_fp32 v0.19.6_z2_ws3_muon z3_ws4_bf16 \
    z3_ws2_subgroups; do
	source_of "$data/deepspeed/$name/ckpt"
	for to in zero1@1 zero1@8 zero2@2 zero2@3 zero3@1 zero3@2 zero3@3 \
	    zero3@4 zero3@8 universal; do
		case $name,$to in
		# params keeps the order of the source's own stage
		*round_robin,zero[12]@[!4]*) continue ;;
		*round_robin,zero3*) continue ;;
		esac
		ok "$name as $to has the same tree" becomes "$to"
	done
	status "$name: reshard --to zero3@3 succeeds" 0 "$OPTIMFS" reshard --to zero3@3 \
	    "$ck" "$scratch/new-$name"
	ok "$name: fsck --data accepts the ZeRO-3 checkpoint" \
	    "$OPTIMFS" fsck --data "$scratch/new-$name"
done

# At the stage and world size of the source the view equals the files that
# DeepSpeed wrote, except for padding.
for case in z1_ws4_bf16,zero1@4 z2_ws2_fp32,zero2@2 z2_ws4_round_robin,zero2@4 \
    v0.19.6_z2_ws3_muon,zero2@3 \
    z3_ws2_bf16,zero3@2 z3_ws4_poison,zero3@4 z3_ws2_subgroups,zero3@2; do
	name=${case%,*}
	source_of "$data/deepspeed/$name/ckpt"
	view "${case#*,}" "$scratch/view"
	torch "$name as ${case#*,} equals the files of DeepSpeed" same "$ck" \
	    "$scratch/view"
done
for name in z2_ws2_bf16 v0.18.5_z3_ws2_bf16 v0.18.5_z3_ws4_subgroups \
    v0.19.6_z1_ws2_bf16 bf16opt_ws2; do
	source_of "$data/deepspeed/$name/ckpt"
	view universal "$scratch/view"
	torch "universal of $name equals the files of DeepSpeed" same "${ck}_universal" \
	    "$scratch/view"
done

# Views of a universal checkpoint.
source_of "$data/deepspeed/z2_ws2_bf16/ckpt_universal"
for to in universal zero2@3 zero3@2; do
	ok "a universal checkpoint as $to has the same tree" becomes "$to"
done

# From ZeRO-3 to DCP and back: no byte of the optimizer is lost.
source_of "$data/deepspeed/z3_ws2_bf16/ckpt"
view zero3@2 "$scratch/direct"
view dcp@3 "$scratch/dcp"
tree "$scratch/dcp" "$scratch/got"
ok "dcp@3 of a ZeRO-3 checkpoint has the same optim/" diff -r "$scratch/want/optim" \
    "$scratch/got/optim"
ck=$scratch/dcp
view zero3@2 "$scratch/back"
ok "zero3@2 of that dcp@3 is identical to the direct view" diff -r "$scratch/direct" "$scratch/back"

# From PyTorch checkpoints. The comparison leaves out what only one side has:
# ZeRO has fp32 weights, and lists no frozen parameters.
forget_more() {
	rm -rf "$1/extra" "$1"/optim/state/*/fp32
	rm -rf "$1"/optim/param_groups/*/params
}
pytorch() { # NAME VIEW
	view "$2" "$scratch/view" && tree "$scratch/view" "$scratch/got" ||
	    return 1
	forget_more "$scratch/got"
	cp -r "$scratch/want" "$scratch/less"
	forget_more "$scratch/less"
	diff -r "$scratch/less" "$scratch/got" && rm -r "$scratch/less"
}
for name in dcp_fsdp2_w3 dcp_3d_w8 dcp_opt_amsgrad_w2 dcp_opt_sgd_w2 \
    fsdp1_local_orig_fullshard_w2 fsdp1_sharded_flat_fullshard_w3; do
	opt=
	[ -f "$data/pytorch/$name/units.json" ] &&
	    opt="-o units=$data/pytorch/$name/units.json"
	source_of "$data/pytorch/$name/ckpt" $opt
	for to in zero2@2 zero3@8 universal; do
		ok "$name as $to has the same state" pytorch "$name" "$to"
		torch "$name as $to has every key that DeepSpeed loads" load "$scratch/view"
		case $to in universal) continue ;; esac
		tree "$scratch/view" "$scratch/got"
		torch "$name as $to gathers to the same weights" gather "$scratch/view" \
		    "$scratch/got"
	done
done

# The state of a trained parameter without dimensions is partitioned like
# others.
if [ -n "$python" ] && "$python" "$script" scalar "$scratch/scalar.pt"; then
	opt=
	source_of "$scratch/scalar.pt"
	for to in zero1@1 zero2@3 zero3@2 zero3@8 universal; do
		ok "a trained scalar as $to has the same state" pytorch scalar "$to"
		torch "a trained scalar as $to has every key that DeepSpeed loads" \
		    load "$scratch/view"
		case $to in universal) continue ;; esac
		tree "$scratch/view" "$scratch/got"
		torch "a trained scalar as $to gathers to the same weights" gather "$scratch/view" \
		    "$scratch/got"
	done
else
	skip 1 "no PyTorch here"
fi

# Views that are not possible.
lacks() { # WORDS VIEW PATTERN
	status "view $2 of $1 exits with 4" 4 "$OPTIMFS" ls "$ck" ".optimfs/view/$2"
	like "view $2 of $1 says what is missing" "$(cat "$scratch/err")" "$3"
}
ck=$data/pytorch/dcp_by_id_w2/ckpt
lacks "parameters with numeric IDs" zero3@2 '*OFS682*ids=model*'
ck=$data/pytorch/safetensors_plain
lacks "a model without an optimizer" universal '*OFS682*this checkpoint has none*'
ck=$data/deepspeed/v0.19.6_z2_ws4_elastic/ckpt
lacks "an elastic checkpoint without options" zero2@4 '*OFS682*group 0*lr*'
"$OPTIMFS" cp -r "$data/pytorch/dcp_fsdp2_w3/ckpt" \
    .optimfs/view/dcp@1,dtype=bf16 "$scratch/bf16"
ck=$scratch/bf16
for name in zero1@2 zero3@3 universal; do
	"$OPTIMFS" cp -r "$ck" ".optimfs/view/$name" "$scratch/$name"
	"$OPTIMFS" cp -r "$ck" .optimfs/view/dcp@1,dtype=f32 "$scratch/wide"
	"$OPTIMFS" cp -r "$scratch/$name" optim/state "$scratch/state"
	"$OPTIMFS" cp -r "$scratch/wide" model "$scratch/model"
	ok "$name: fp32 weights equal the bf16 weights widened" sh -c "
	    cd '$scratch/state' && set -- */fp32 && [ \$# = 26 ] &&
	    for f; do cmp \$f ../model/\${f%/*} || exit 1; done"
	rm -r "$scratch/state" "$scratch/model" "$scratch/wide"
	is "$name: fp32 weights round to the bf16 weights" \
	    "$("$OPTIMFS" diff "$ck" "$scratch/$name" | grep -c model/)" 0
done
for name in zero1 zero3@0 zero3@2x2 zero2@2,dtype=bf16 universal@2 \
    universal,only=optim; do
	status "$name is rejected as a view name" 2 "$OPTIMFS" ls "$ck" ".optimfs/view/$name"
done
done_testing
