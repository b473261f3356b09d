#!/bin/sh
# rank_damage.t - a damaged file of a rank counts as a missing one, by name
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

data=$TOP_SRCDIR/tests/data
pt=$data/pytorch
ck=$scratch/ck

# fresh CHECKPOINT: a copy that may be damaged.
fresh() {
	rm -rf "$ck"
	cp -rL "$1" "$ck" && chmod -R u+w "$ck"
}
# damage HOW FILE
damage() {
	case $1 in
	cut) truncate -s -200 "$2" ;;
	empty) : >"$2" ;;
	garbage) seq 1000 >"$2" ;;
	esac
}
# What there is, and which elements of it are missing. Without the lines that
# name missing and damaged files.
shown() {
	"$OPTIMFS" ls -R $options "$ck" &&
	    "$OPTIMFS" cat $options "$ck" .optimfs/missing |
	    grep -v 'OFS140\|OFS180\|OFS502\|OFS671' | sort
}
# named NAME FILE: did the last command say what is wrong with FILE?
named() {
	grep -qE "OFS(502|671) $2: " "$scratch/out" "$scratch/err"
	tap_result $? "$1" || tap_said
}
# check NAME CHECKPOINT FILE [OPTIONS]: FILE is damaged in some ways.
check() {
	options=$4
	fresh "$2"
	rm "$ck/$3"
	shown >"$scratch/without" || echo failed >"$scratch/without"
	for how in cut empty garbage; do
		fresh "$2"
		damage $how "$ck/$3"
		shown >"$scratch/with" 2>"$scratch/err"
		ok "$1: $how rank file: the tree and its gaps are those of a missing file" \
		    cmp "$scratch/without" "$scratch/with"
		ok "$1: $how rank file: .optimfs/warnings can be read" "$OPTIMFS" cat $options "$ck" .optimfs/warnings
		named "$1: $how rank file: .optimfs/warnings names it" $3
		ok "$1: $how rank file: info succeeds" "$OPTIMFS" info $options "$ck"
		named "$1: $how rank file: info names it" $3
		status "$1: $how rank file: fsck exits with 1" 1 "$OPTIMFS" fsck $options "$ck"
		named "$1: $how rank file: fsck names it" $3
	done
}

fsdp=$pt/fsdp1_local_flat_fullshard_w3
orig=$pt/fsdp1_local_orig_fullshard_w2
zero=global_step3
check DTensor "$pt/rank_dtensor_fsdp2_tp_w4/ckpt" state_rank0.pt
check "DTensor, last rank" "$pt/rank_dtensor_fsdp2_tp_w4/ckpt_raw" model_rank3.pt
check ShardedTensor "$pt/fsdp1_sharded_flat_fullshard_w3/ckpt_rankfiles" \
    state_rank0.pt
check "experimental checkpointer" "$pt/experimental_checkpointer_w3/ckpt" \
    checkpoint_0.pt
check "experimental checkpointer, last rank" \
    "$pt/experimental_checkpointer_w3/ckpt" checkpoint_2.pt
check CheckpointableTensor "$pt/checkpointable_w2/ckpt_rankfiles" state_rank0.pt
check "raw FSDP1" "$fsdp/ckpt" optim_rank0.pt "-o units=$fsdp/units.json"
check "raw FSDP1, last rank" "$orig/ckpt" optim_rank1.pt \
    "-o units=$orig/units.json"
check "OLMo's optimizer" "$data/extra/olmo_local/new" optim/rank0.pt
check "OLMo's model" "$data/extra/olmo_local/new" model/rank1.pt
check "ZeRO's optimizer" "$data/deepspeed/z3_ws3_poison_subgroups/ckpt" \
    $zero/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt
check "ZeRO's model" "$data/deepspeed/z3_ws3_poison_subgroups/ckpt" \
    $zero/zero_pp_rank_0_mp_rank_00_model_states.pt

# The units of the optimizer are in the model's files.
options=
fresh "$data/extra/olmo_local/new"
damage cut "$ck/model/rank0.pt"
like "OLMo's optimizer state has names although the model's file of rank 0 is truncated" \
    "$("$OPTIMFS" ls -R "$ck")" '*optim/state/blocks.0.att.weight/exp_avg*'

# The file of rank 0 of all ranks, of the model alone, and of a single rank.
fresh "$pt/rank_dtensor_fsdp2_tp_w4/ckpt"
for r in 0 1 2 3; do
	damage cut "$ck/state_rank$r.pt"
done
status "a set with only truncated files is refused" 3 "$OPTIMFS" ls "$ck"
like "the refusal names the first truncated file" "$(cat "$scratch/err")" \
    '*OFS502 *state_rank0.pt: the archive is truncated*'
fresh "$pt/rank_dtensor_fsdp2_tp_w4/ckpt_raw"
for r in 0 1 2 3; do
	damage cut "$ck/optim_rank$r.pt"
done
ok "a model mounts although all files of the optimizer are truncated" "$OPTIMFS" ls "$ck" model
status "fsck exits with 1 when all files of the optimizer are truncated" 1 "$OPTIMFS" fsck "$ck"
fresh "$data/deepspeed/z1_ws3_bf16/ckpt"
damage cut "$ck/$zero/mp_rank_00_model_states.pt"
status "ZeRO 1 without a readable file of names is refused" 3 "$OPTIMFS" ls "$ck"
like "the refusal of ZeRO 1 says that the file of names is truncated" "$(cat "$scratch/err")" '*OFS502 *mp_rank_00*'
fresh "$data/deepspeed/z1_ws3_bf16/ckpt"
rm "$ck/$zero/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
like "a missing file of a ZeRO optimizer is named by its rank" "$("$OPTIMFS" cat "$ck" .optimfs/missing)" \
    'OFS140 the file of rank 1 of 3 is missing *'

# A damaged file is of no rank that the job did not have.
fresh "$pt/experimental_checkpointer_w3/ckpt"
damage cut "$ck/checkpoint_0.pt"
mv "$ck/checkpoint_0.pt" "$ck/checkpoint_7.pt"
like "a truncated checkpoint_7.pt is not the missing file of 3 ranks" \
    "$("$OPTIMFS" cat "$ck" .optimfs/missing)" 'OFS140 the file of rank 0 of 3 is missing *'
like "it is left out by name" "$("$OPTIMFS" cat "$ck" .optimfs/warnings)" \
    '*OFS181 checkpoint_7.pt is left out: *'

# Parameters are listed once, however often their flat group is.
fresh "$data/deepspeed/v0.18.5_z3_ws4_subgroups/ckpt"
for f in "$ck/$zero"/*optim_states.pt; do
	perl -0777 -pi -e 's/\(K\x00K\x01K\x02e/(K\x00K\x00K\x00e/' "$f"
done
is "a flat group that params lists three times has its names once" \
    "$("$OPTIMFS" cat "$ck" optim/param_groups/0/params)" "emb.weight
blocks.0.fc_in.weight"
done_testing
