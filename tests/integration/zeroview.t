#!/bin/sh
# zeroview.t - checkpoints as DeepSpeed's: zero1@N, zero2@N, zero3@N, universal
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

data=$TOP_SRCDIR/tests/data
script=$TOP_SRCDIR/tests/integration/zeroview.py
for python in python3 /usr/bin/python3 ''; do
	[ -n "$python" ] && "$python" -c 'import torch, numpy' 2>/dev/null &&
	    break
done

tree() {
	rm -rf "$2"
	"$OPTIMFS" cp -r "$1" . "$2"
}
# source CHECKPOINT [-o OPTIONS]: what views are of, in $ck, $opt and want.
source_of() {
	ck=$1
	shift
	opt=$*
	rm -rf "$scratch/want"
	"$OPTIMFS" cp $opt -r "$ck" . "$scratch/want"
}
# view NAME DIR: a copy of that view.
view() {
	rm -rf "$2"
	"$OPTIMFS" cp $opt -r "$ck" ".optimfs/view/$1" "$2"
}
# What a view says of its own layout, and not of the state.
forget() {
	rm -f "$1/extra/dp_world_size" \
	    "$1/extra/optimizer_state_dict/zero_stage"
	rmdir "$1/extra/optimizer_state_dict" 2>/dev/null
	return 0
}
# becomes VIEW: copied and looked at again, it is the same state.
becomes() {
	view "$1" "$scratch/view" && tree "$scratch/view" "$scratch/got" ||
	    return 1
	forget "$scratch/got"
	forget "$scratch/want"
	diff -r "$scratch/want" "$scratch/got"
}
# With torch: COMMAND of the script, or a skipped test.
torch() {
	name=$1
	shift
	if [ -n "$python" ]; then
		ok "$name" "$python" "$script" "$@"
	else
		skip 1 "no PyTorch here"
	fi
}

# From DeepSpeed's own checkpoints, at their number of ranks and others, in
# their stage and others.
for name in z1_ws3_bf16 z2_ws4_round_robin z2_ws2_fp32 z3_ws4_bf16 \
    z3_ws2_subgroups; do
	source_of "$data/deepspeed/$name/ckpt"
	for to in zero1@1 zero1@8 zero2@2 zero2@3 zero3@1 zero3@2 zero3@3 \
	    zero3@4 zero3@8 universal; do
		case $name,$to in
		# params are in the order of the stage that was written
		*round_robin,zero[12]@[!4]*) continue ;;
		*round_robin,zero3*) continue ;;
		esac
		ok "$name as $to" becomes "$to"
	done
	status "whose checksums are right" 0 "$OPTIMFS" reshard --to zero3@3 \
	    "$ck" "$scratch/new-$name"
	ok "once it is there" "$OPTIMFS" fsck --data "$scratch/new-$name"
done

# The files that DeepSpeed wrote, but for what padding holds.
for case in z1_ws4_bf16,zero1@4 z2_ws2_fp32,zero2@2 z2_ws4_round_robin,zero2@4 \
    z3_ws2_bf16,zero3@2 z3_ws4_poison,zero3@4 z3_ws2_subgroups,zero3@2; do
	name=${case%,*}
	source_of "$data/deepspeed/$name/ckpt"
	view "${case#*,}" "$scratch/view"
	torch "$name as ${case#*,} is what DeepSpeed wrote" same "$ck" \
	    "$scratch/view"
done
for name in z2_ws2_bf16 v0.18.5_z3_ws2_bf16 v0.18.5_z3_ws4_subgroups \
    v0.19.6_z1_ws2_bf16 bf16opt_ws2; do
	source_of "$data/deepspeed/$name/ckpt"
	view universal "$scratch/view"
	torch "universal of $name is DeepSpeed's" same "${ck}_universal" \
	    "$scratch/view"
done

# From a universal checkpoint.
source_of "$data/deepspeed/z2_ws2_bf16/ckpt_universal"
for to in universal zero2@3 zero3@2; do
	ok "a universal checkpoint as $to" becomes "$to"
done

# Through DCP and back, byte by byte; optim/ is all there on the way.
source_of "$data/deepspeed/z3_ws2_bf16/ckpt"
view zero3@2 "$scratch/direct"
view dcp@3 "$scratch/dcp"
tree "$scratch/dcp" "$scratch/got"
ok "DCP of ZeRO-3 has the same optim/" diff -r "$scratch/want/optim" \
    "$scratch/got/optim"
ck=$scratch/dcp
view zero3@2 "$scratch/back"
ok "and ZeRO-3 of that is the same" diff -r "$scratch/direct" "$scratch/back"

# From what PyTorch wrote. What only one side can hold: ZeRO has fp32 weights,
# and does not list parameters that are frozen.
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
		ok "$name as $to" pytorch "$name" "$to"
		torch "has what loaders ask for" load "$scratch/view"
		case $to in universal) continue ;; esac
		tree "$scratch/view" "$scratch/got"
		torch "and its weights are gathered" gather "$scratch/view" \
		    "$scratch/got"
	done
done

# The state of a parameter without dimensions is cut as that of others.
if [ -n "$python" ] && "$python" "$script" scalar "$scratch/scalar.pt"; then
	opt=
	source_of "$scratch/scalar.pt"
	for to in zero1@1 zero2@3 zero3@2 zero3@8 universal; do
		ok "with a number that is trained, as $to" pytorch scalar "$to"
		torch "has what loaders ask for" load "$scratch/view"
		case $to in universal) continue ;; esac
		tree "$scratch/view" "$scratch/got"
		torch "and its weights are gathered" gather "$scratch/view" \
		    "$scratch/got"
	done
else
	skip 1 "no PyTorch here"
fi

# What is lacking has a name.
lacks() { # WORDS VIEW
	status "$1" 4 "$OPTIMFS" ls "$ck" ".optimfs/view/$2"
	like "is named" "$(cat "$scratch/err")" "$3"
}
ck=$data/pytorch/dcp_by_id_w2/ckpt
lacks "parameters that are numbers" zero3@2 '*OFS682*ids=FILE*'
ck=$data/pytorch/safetensors_plain
lacks "no optimizer" universal '*OFS682*param_groups*'
ck=$data/deepspeed/v0.19.6_z2_ws4_elastic/ckpt
lacks "an elastic checkpoint has no options" zero2@4 '*OFS682*group 0*lr*'
"$OPTIMFS" cp -r "$data/pytorch/dcp_fsdp2_w3/ckpt" \
    .optimfs/view/dcp@1,dtype=bf16 "$scratch/bf16"
ck=$scratch/bf16
for name in zero1@2 zero3@3 universal; do
	"$OPTIMFS" cp -r "$ck" ".optimfs/view/$name" "$scratch/$name"
	"$OPTIMFS" cp -r "$ck" .optimfs/view/dcp@1,dtype=f32 "$scratch/wide"
	"$OPTIMFS" cp -r "$scratch/$name" optim/state "$scratch/state"
	"$OPTIMFS" cp -r "$scratch/wide" model "$scratch/model"
	ok "$name: weights in bf16 alone are widened" sh -c "
	    cd '$scratch/state' && set -- */fp32 && [ \$# = 26 ] &&
	    for f; do cmp \$f ../model/\${f%/*} || exit 1; done"
	rm -r "$scratch/state" "$scratch/model" "$scratch/wide"
	is "$name: and round to what they were" \
	    "$("$OPTIMFS" diff "$ck" "$scratch/$name" | grep -c model/)" 0
done
for name in zero1 zero3@0 zero3@2x2 zero2@2,dtype=bf16 universal@2 \
    universal,only=optim; do
	status "$name is none" 2 "$OPTIMFS" ls "$ck" ".optimfs/view/$name"
done
done_testing
