#!/bin/sh
# limits.t - max_metadata=, parse_mem= and the limit of the size of files
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"

data=$TOP_SRCDIR/tests/data

# refused OPTION CODE STATUS: does ls with OPTION fail with CODE and STATUS?
refused() {
	status "$ck: ls with $1 exits with $3" "$3" "$OPTIMFS" ls -o "$1" "$data/$ck"
	like "$ck: ls with $1 reports $2" "$(cat "$scratch/err")" "*$2*"
}

for ck in pytorch/dcp_fsdp2_w4/ckpt pytorch/dcp_fsdp2_safetensors_w2/ckpt \
    pytorch/torchsave_full/ckpt/state.pt \
    pytorch/torchsave_full/ckpt/state_legacy.pt \
    pytorch/fsdp1_sharded_orig_fullshard_w2/ckpt_rankfiles \
    pytorch/fsdp1_local_flat_fullshard_w3/ckpt \
    deepspeed/bf16opt_ws2/ckpt deepspeed/z3_ws2_bf16/ckpt \
    megatron/gpt_tp2_dp2/fully_reshardable; do
	refused max_metadata=64 OFS440 5
	refused parse_mem=1k OFS441 3
	ok "$ck: ls without limits succeeds" "$OPTIMFS" ls "$data/$ck"
done
for ck in pytorch/safetensors_plain/ckpt pytorch/hf_storage_w2/ckpt; do
	refused max_metadata=64 OFS440 5
	ok "$ck: ls without limits succeeds" "$OPTIMFS" ls "$data/$ck"
done

# A DCP item with a pickle of its own, larger than the index.
ck=pytorch/dcp_torch113/ckpt
status "$ck: cp exits with 3 when an item exceeds parse_mem" 3 "$OPTIMFS" cp -r -o parse_mem=8k \
    "$data/$ck" / "$scratch/copy"
like "$ck: the item over the limit is reported as OFS441" "$(cat "$scratch/err")" "*OFS441*"

# A write past the limit of the size of files is an error, which ends nothing.
# small COMMAND...: with files of at most 4096 bytes
small() {
	(ulimit -f 8; exec "$@")
}
too_large='*File too large*'
cp -r "$data/pytorch/dcp_fsdp2_w2/ckpt" "$scratch/ck"
chmod -R u+w "$scratch/ck"
for to in dcp@1 torch safetensors; do
	status "reshard to $to past the limit of files exits with 3" 3 \
	    small "$OPTIMFS" reshard --to $to "$scratch/ck" "$scratch/new"
	like "reshard to $to past the limit of files says so" "$(cat "$scratch/err")" "$too_large"
	ok "reshard to $to past the limit of files leaves no checkpoint" \
	    test ! -e "$scratch/new"
	ok "reshard to $to continues without the limit" \
	    "$OPTIMFS" reshard --to $to "$scratch/ck" "$scratch/new"
	rm -rf "$scratch/new"
done
status "report past the limit of files exits with 3" 3 \
    small "$OPTIMFS" report -o "$scratch/report.html" "$scratch/ck"
like "report past the limit of files says so" "$(cat "$scratch/err")" "$too_large"
ok "report past the limit of files leaves no page" test ! -e "$scratch/report.html"
status "cp past the limit of files exits with 3" 3 \
    small "$OPTIMFS" cp "$scratch/ck" .optimfs/tensors.tsv "$scratch/tensors.tsv"
like "cp past the limit of files says so" "$(cat "$scratch/err")" "$too_large"
ok "cp past the limit of files leaves no file" test ! -e "$scratch/tensors.tsv"

done_testing
