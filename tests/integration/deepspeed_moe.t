#!/bin/sh
# deepspeed_moe.t - checkpoints of DeepSpeed with mixtures of experts
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/fixture.sh"

requires mount python3
data=$TOP_SRCDIR/tests/data/deepspeed_moe
tool=$TOP_SRCDIR/tests/support/moe.py

found() {
	"$OPTIMFS" info --json "$1" |
	    python3 -c 'import json, sys
b = json.load(sys.stdin)["buckets"]
print(b["proved"], b["ordered"], b["open"])'
}

while read -r case want; do
	ck=$data/$case/ckpt
	ok "$case: weights and state have the numbers of the whole model" \
	    same "$ck" "$case"
	is "$case: info counts what was proved" "$(found "$ck")" \
	    "$(echo "$want" | tr , ' ')"
	like "$case: nothing is missing" "$("$OPTIMFS" info "$ck")" '*
missing     nothing
damaged     nothing*'
	ok "$case: fsck finds no fault, and equal copies" \
	    "$OPTIMFS" fsck -q --data "$ck"
	case $case in
	z0*) like "$case: OFS768 says that names are in order, but not proved" \
		"$("$OPTIMFS" info "$ck")" '*OFS768 *' ;;
	esac
	ok "$case: check judges the state" "$OPTIMFS" check "$ck"
	ok "$case: it becomes a checkpoint of 3 ranks" "$OPTIMFS" reshard -q \
	    --to dcp@3 "$ck" "$scratch/$case.3"
	ok "$case: and one of 2 ranks again" "$OPTIMFS" reshard -q --to dcp@2 \
	    "$scratch/$case.3" "$scratch/$case.2"
	ok "$case: that still is the truth" same "$scratch/$case.2" "$case"
	ok "$case: nothing differs" "$OPTIMFS" diff "$ck" "$scratch/$case.2"
done <<'END'
z0_w2ep2 0,19,0
z1_w2ep2 24,0,0
z2_w4ep1 12,0,0
z2_w4ep2 24,0,0
END
like "OFS765: DeepSpeed's formats do not have the experts' files" "$("$OPTIMFS" \
    reshard -q --to zero1@2 "$data/z2_w4ep2/ckpt" "$scratch/zero" 2>&1)" \
    '*OFS765 moe1.deepspeed_moe.experts.*'

# use_data_before_expert_parallel: only the weights say so.
take z2_w4ep2/ckpt
python3 "$tool" sets "$ck/global_step3"
ok "ranks of a set that follow each other are found out" same "$ck" z2_w4ep2
is "all experts are proved" "$(found "$ck")" '24 0 0'

# Weights of another save: no state gets a wrong name.
take z2_w4ep2/ckpt
python3 "$tool" weights "$ck/global_step3"
w=moe1.deepspeed_moe.experts.deepspeed_experts
is "exchanged experts are noticed" "$(found "$ck")" '18 0 6'
not_ok "the state of an exchanged expert cannot be read" \
    "$OPTIMFS" cat "$ck" "optim/state/$w.0.up.weight/exp_avg"
like "OFS763 says why" "$(cat "$scratch/err")" "*OFS763 *$w.0.up.weight*"
ok "that of another can" "$OPTIMFS" cat "$ck" "optim/state/$w.2.up.weight/exp_avg"

take z2_w4ep2/ckpt
rm "$ck/global_step3/layer_0_expert_2_mp_rank_00_model_states.pt"
like "a missing file of an expert is named" "$("$OPTIMFS" info "$ck")" \
    '*OFS140 *layer_0_expert_2_mp_rank_00_model_states.pt is missing*'
is "state without weights has its name from the order of ranks" \
    "$(found "$ck")" '21 3 0'
rm "$ck/global_step3/bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt"
not_ok "elements of a lost rank cannot be read" \
    "$OPTIMFS" cat "$ck" "optim/state/moe2${w#moe1}.3.down.weight/exp_avg"
ok "experts of other ranks can" \
    "$OPTIMFS" cat "$ck" "optim/state/moe2${w#moe1}.1.down.weight/exp_avg"

# A damaged file is not missing; all files are; 2^20 - 1 experts, of which the first
# files that are missing have names.
take z2_w4ep2/ckpt
echo x >"$ck/global_step3/layer_0_expert_2_mp_rank_00_model_states.pt"
is "a damaged file of an expert is not missing" "$("$OPTIMFS" cat "$ck" \
    .optimfs/missing | grep -c OFS140)" 0
rm "$ck"/global_step3/layer_*
is "all files of experts are missing" "$("$OPTIMFS" cat "$ck" \
    .optimfs/missing | grep -c 'OFS140 .*/layer_[01]_expert_[0-3]_mp')" 8
like "OFS768: nothing shows which ranks have which experts" \
    "$("$OPTIMFS" info "$ck")" '*OFS768 no weights show*'
take z2_w4ep2/ckpt
python3 "$tool" put "$ck/global_step3/mp_rank_00_model_states.pt" \
    284b044b0465 284affff0f004affff0f0065
is "not each of 2^21 missing files has a line" "$("$OPTIMFS" cat "$ck" \
    .optimfs/missing | grep -c OFS140)" 1025

# One group among 3 of 4 ranks; 8192 ranks with experts of their own, one of which
# has a long name.
take z2_w4ep2/ckpt
for r in 0 1 2 3; do # K is an int of one byte
	python3 "$tool" put "$ck/global_step3/bf16_zero_pp_rank_${r}_mp_rank_00_optim_states.pt" \
	    284b044b0265 284b044b0365
done
status "a group among 3 of 4 ranks is refused" 3 "$OPTIMFS" ls "$ck"
like "OFS695 says why" "$(cat "$scratch/err")" \
    '*OFS695 *group 1 is divided among 3 of 4 ranks*'
take z2_w4ep2/ckpt
for r in 0 1 2 3; do # J has 4 bytes
	python3 "$tool" put "$ck/global_step3/bf16_zero_pp_rank_${r}_mp_rank_00_optim_states.pt" \
	    284b044b0265 284a002000004b0165
done
w=moe1.deepspeed_moe.experts.deepspeed_experts
hex() {
	printf %s "$1" | od -An -v -tx1 | tr -d ' \n'
}
python3 "$tool" put "$ck/global_step3/mp_rank_00_model_states.pt" \
    "5838000000$(hex "$w.0.up.weight")" \
    "5860ea0000$(hex "$w.0.")$(printf '61%.0s' $(seq 59953))"
not_ok "a name that takes room in each of 8192 sets is refused" \
    "$OPTIMFS" ls "$ck"
like "OFS695 says that names are too long" "$(cat "$scratch/err")" \
    '*OFS695 *the names of all experts*'
take z0_w2ep2/ckpt
python3 "$tool" put "$ck/global_step3/expp_rank_1_mp_rank_00_optim_states.pt" \
    284b074b084b094b0a4b0b4b0c65 284b074b084b094b0a4b0c4b0b65
like "OFS764: numbers in another order are left out" \
    "$("$OPTIMFS" info "$ck")" '*OFS764 *'
ok "the weights can be read" "$OPTIMFS" cat "$ck" "model/$w.1.up.weight"
not_ok "there is no state" "$OPTIMFS" ls "$ck" optim
take z2_w4ep2/ckpt
for f in "$ck"/global_step3/layer_0_expert_?_mp_rank_00_model_states.pt; do
	cp "$f" "${f%_00_model*}_01_model_states.pt"
done
like "OFS696: tensor parallelism is refused, with advice that can be followed" \
    "$("$OPTIMFS" ls "$ck" 2>&1)" '*OFS696 *load it in the job*'

# Edits.
take z2_w4ep2/ckpt
mnt=$(point m)
"$OPTIMFS" mount -q -o rw "$ck" "$mnt"
echo 0.5 >"$mnt/optim/param_groups/1/lr"
printf '\0\0\200\77' | dd of="$mnt/optim/state/$w.3.up.weight/exp_avg" bs=4 \
    seek=5 conv=notrunc 2>"$scratch/dd"
printf '\200\77' | dd of="$mnt/model/$w.3.up.weight" bs=2 conv=notrunc \
    2>"$scratch/dd"
printf '\0\0\200\77' | dd of="$mnt/optim/state/$w.3.up.weight/fp32" bs=4 \
    conv=notrunc 2>"$scratch/dd"
ok "a commit changes an expert and a group" "$OPTIMFS" umount "$mnt"
"$OPTIMFS" diff -v "$data/z2_w4ep2/ckpt" "$ck" >"$scratch/diff"
is "the next mount has the changes and no others" \
    "$(sed 's/: .*//' "$scratch/diff")" "model/$w.3.up.weight
optim/param_groups/1/lr
optim/state/$w.3.up.weight/exp_avg
optim/state/$w.3.up.weight/fp32"
is "the changed expert is proved again" "$(found "$ck")" '24 0 0'

done_testing
