#!/bin/sh
# fsdp_dtensor.t - checkpoints of Megatron-FSDP
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/fixture.sh"

requires mount python3
data=$TOP_SRCDIR/tests/data/fsdp_dtensor

for case in swiglu_w3 moe_swiglu_w4; do
	ck=$data/$case/ckpt/iter_0000007
	ok "$case: names, groups and joined parameters are the truth" \
	    same "$ck" $case
	is "$case: nothing is left below the names of its own" \
	    "$("$OPTIMFS" ls -R "$ck" | grep -E '_[wv]$|module\.|meta')" ''
	like "$case: info names the trainer, and misses nothing" \
	    "$("$OPTIMFS" info "$ck")" '*
trainer     Megatron-FSDP
*  group 1  lr*
missing     nothing
damaged     nothing*'
	ok "$case: fsck finds no fault" "$OPTIMFS" fsck -q --data "$ck"
	ok "$case: it becomes a checkpoint of 4 ranks" "$OPTIMFS" reshard -q \
	    --to dcp@4 "$ck" "$scratch/$case.4"
	ok "$case: and one of 2 ranks again" "$OPTIMFS" reshard -q --to dcp@2 \
	    "$scratch/$case.4" "$scratch/$case.2"
	ok "$case: that still is the truth" same "$scratch/$case.2" $case
	ok "$case: nothing differs" "$OPTIMFS" diff "$ck" "$scratch/$case.2"
done

# An edit of a group changes the option of each of its parameters; one of a
# joined parameter both parts.
take swiglu_w3/ckpt/iter_0000007
fc1=decoder.layers.0.mlp.linear_fc1.weight
mnt=$(point m)
"$OPTIMFS" mount -q -o rw "$ck" "$mnt"
echo 0.5 >"$mnt/optim/param_groups/0/lr"
echo 8 >"$mnt/optim/state/$fc1/step"
# the last element of the first part, and the first of the second
printf '\0\0\200\77\0\0\0\100' |
    dd of="$mnt/model/$fc1" bs=4 seek=239 conv=notrunc 2>"$scratch/dd"
ok "a commit of all three succeeds" "$OPTIMFS" umount "$mnt"
"$OPTIMFS" diff -v "$data/swiglu_w3/ckpt/iter_0000007" "$ck" \
    >"$scratch/diff"
is "the next mount has the changes and no others" \
    "$(sed 's/ [0-9].*//' "$scratch/diff")" "model/$fc1:
optim/param_groups/0/lr:
optim/state/$fc1/step:"
is "there are as many groups as before" "$("$OPTIMFS" ls \
    "$ck" optim/param_groups | tr -d '\n')" 0/1/
is "elements of both parts have changed" "$("$OPTIMFS" cat "$ck" \
    "model/$fc1" | od -An -tf4 -j 956 -N 8 | tr -s ' ')" ' 1 2'
ok "fsck finds no copies that differ" "$OPTIMFS" fsck -q --data \
    "$ck"

# One step for a group: another name of the group's.
take moe_swiglu_w4/ckpt/iter_0000007
mnt=$(point n)
"$OPTIMFS" mount -q -o rw "$ck" "$mnt"
is "a parameter has the step of its group" \
    "$(cat "$mnt/optim/state/output_layer.weight/step")" 7
echo 9 >"$mnt/optim/param_groups/0/step"
"$OPTIMFS" umount "$mnt"
is "a new step of a group is that of all its parameters" "$("$OPTIMFS" cat \
    "$ck" optim/state/output_layer.weight/step)" 9

# The options of some parameters are in a file that is lost: they keep their own,
# and all others have groups.
take moe_swiglu_w4/ckpt/iter_0000007
rm "$ck/__2_0.distcp"
"$OPTIMFS" info "$ck" >"$scratch/info"
like "OFS657 says that groups are not known" "$(cat "$scratch/info")" \
    '*OFS657 options of * parameters cannot be read*'
like "their options are shown as they are stored" \
    "$("$OPTIMFS" ls "$ck" optim)" '*param_to_group_meta/*'
ok "the other tensors can be read" "$OPTIMFS" ls -R "$ck" model

done_testing
