#!/bin/sh
# torch_checkpointing.t - checkpoints of PyTorch's torch_checkpointing
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/fixture.sh"

requires mount python3
data=$TOP_SRCDIR/tests/data/torch_checkpointing

# Changes the index of $ck: m is what it holds.
change() {
	python3 -c 'import pickle, sys
path = sys.argv[1] + "/metadata.pkl"
m = pickle.load(open(path, "rb"))
model = m["metadata"]["model"]
tensors = model["nested_path_to_metadata"]
emb = tensors["[\"emb.weight\"]"][0]["sharding_metadata"]["data"]
exec(sys.argv[2])
pickle.dump(m, open(path, "wb"), protocol=4)' "$ck" "$1"
}

for case in fsdp2_w3 fsdp2_w2_safetensors hsdp_w4_safetensors \
    fsdp2_tp_w4_safetensors; do
	ck=$data/$case/ckpt/step_3
	ok "$case: the tree is what the ranks held" same "$ck" "$case"
	like "$case: nothing is missing" "$("$OPTIMFS" info "$ck")" '*
trainer     torch_checkpointing
*missing     nothing
damaged     nothing*'
	ok "$case: fsck finds no fault, and equal copies" \
	    "$OPTIMFS" fsck -q --data "$ck"
	ok "$case: it becomes a checkpoint of 3 ranks" "$OPTIMFS" reshard -q \
	    --to dcp@3 "$ck" "$scratch/$case.3"
	ok "$case: and one of 2 ranks again" "$OPTIMFS" reshard -q --to dcp@2 \
	    "$scratch/$case.3" "$scratch/$case.2"
	ok "$case: that still is the truth" same "$scratch/$case.2" "$case"
done

take fsdp2_w2_safetensors/ckpt/step_3
rm "$ck/weights/model-1.safetensors"
like "a missing file of the index is named" "$("$OPTIMFS" info "$ck")" \
    '*weights/model-1.safetensors*'
not_ok "its elements cannot be read" "$OPTIMFS" cat "$ck" model/emb.weight
ok "the optimizer's can" "$OPTIMFS" cat "$ck" optim/state/emb.weight/exp_avg

take fsdp2_w2_safetensors/ckpt/step_3
change 'm["metadata"]["ema"] = {"nested_path_to_metadata": {},
    "rank_to_layout_info": {0: {"file_path": "x/ema.zarr",
        "serialization_format": {"type": "ZarrSerialization"}}}}'
like "OFS766: an item of an unknown form is named" \
    "$("$OPTIMFS" info "$ck")" '*OFS766 ema is not read*x/ema.zarr*'
change 'm["metadata"]["ema"]["rank_to_layout_info"][0] = {
    "file_path": "note.bin", "serialization_format":
        {"type": "RawSerialization"}}'
ok "an item of bytes is a file" sh -c \
    "'$OPTIMFS' cat '$ck' extra/ema | cmp - '$ck/note.bin'"

change 'model["rank_to_layout_info"][0] = None'
like "OFS766: an item with files of several forms is named" \
    "$("$OPTIMFS" info "$ck")" '*OFS766 model is not read*model-1.safetensors*'
take fsdp2_w2_safetensors/ckpt/step_3
change 'tensors["[\"emb.weight\",1.5]"] = tensors.pop("[\"emb.weight\"]")'
not_ok "a path with a fraction is refused" "$OPTIMFS" ls "$ck"
like "OFS653 says what a path is" "$(cat "$scratch/err")" \
    '*OFS653 *a path is not of strings and indexes*'

# Each of these makes only one tensor unreadable.
while read -r what how; do
	take fsdp2_w2_safetensors/ckpt/step_3
	change "$how"
	not_ok "OFS767: $what: the tensor cannot be read" \
	    "$OPTIMFS" cat "$ck" model/emb.weight
	ok "$what: another can" "$OPTIMFS" cat "$ck" model/scale
done <<'END'
no-mesh emb["mesh_spec"] = None
absurd-mesh emb["mesh_spec"]["mesh_shape"] = (2**40, 2**40)
too-few-ranks emb["mesh_spec"]["mesh_data"] = (0,)
placement emb["placements"] = [{"type": "Shard", "dim": 9}]
partial emb["placements"] = [{"type": "Partial"}]
shape emb["global_shape"] = [2**62, 2**62]
size emb["global_shape"] = [999, 16]
chunks emb["global_shape"] = [2**40, 16]; emb["placements"] = [{"type": "StridedShard", "dim": 0, "split_factor": 2**40}]
dtype emb["dtype"] = "torch.int3"
type tensors["[\"emb.weight\"]"][0]["sharding_metadata"]["type"] = "X"
END
take fsdp2_w2_safetensors/ckpt/step_3
change 'del tensors["[\"emb.weight\"]"]'
like "a tensor of which the index does not know is counted" \
    "$("$OPTIMFS" info "$ck")" '*OFS767 *model-0.safetensors has 1 tensors*'
take fsdp2_w2_safetensors/ckpt/step_3
change 'model["rank_to_layout_info"][0]["file_path"] = "../../x"'
not_ok "a path out of the checkpoint is refused" "$OPTIMFS" ls "$ck"

# step_0.pt, step_1.pt are of ranks, not of steps.
take fsdp2_w3/ckpt/step_3
rm "$ck/metadata.pkl"
like "without an index the files are of the ranks that their names say" \
    "$("$OPTIMFS" info "$ck")" '*job *3 ranks*missing *nothing*'

# Edits: of a tensor in several files, and its copies.
take hsdp_w4_safetensors/ckpt/step_3
mnt=$(point m)
"$OPTIMFS" mount -q -o rw "$ck" "$mnt"
printf '\0\0\200\77' | dd of="$mnt/model/emb.weight" bs=4 seek=300 \
    conv=notrunc 2>"$scratch/dd"
echo 0.5 >"$mnt/optim/param_groups/0/lr"
ok "a commit changes a tensor and a group" "$OPTIMFS" umount "$mnt"
"$OPTIMFS" diff "$data/hsdp_w4_safetensors/ckpt/step_3" "$ck" >"$scratch/diff"
is "the next mount has the changes and no others" \
    "$(sed '/^ *differ/d; s/: .*//; s/.* //' "$scratch/diff" | sort)" "model/emb.weight
optim/param_groups/0/lr"
ok "all copies have the new element" "$OPTIMFS" fsck -q --data "$ck"

done_testing
