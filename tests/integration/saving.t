#!/bin/sh
# saving.t - commits while a trainer saves into the checkpoint every 10 ms
# SPDX-License-Identifier: Apache-2.0
# Part of "make check-faults". ROUNDS commits of each format (1000).
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

requires python3
sanitized && skip_all "a sanitizer's library is not loaded into Python"
limit=36000
import_optimfs
data=$TOP_SRCDIR/tests/data
cd "$scratch" || exit 99
race() { # NAME PATH: the checkpoint is in dir/
	ok "$1: ${ROUNDS:-1000} commits and a trainer lose nothing of each other" \
	    python3 "$TOP_SRCDIR/tests/integration/saving.py" "$ck" \
	    "${ROUNDS:-1000}" "$2"
	diag "$(cat "$scratch/out")"
}

for from in dcp=pytorch/dcp_fsdp2_w2/ckpt \
    ranks=pytorch/fsdp1_sharded_orig_fullshard_w2/ckpt_rankfiles \
    zero1=deepspeed/z1_ws2_bf16/ckpt \
    zero3=deepspeed/z3_ws2_bf16/ckpt \
    megatron=megatron/llama_dp2/dp_reshardable \
    fsdp_dtensor=fsdp_dtensor/swiglu_w3/ckpt \
    universal=deepspeed/z2_ws2_bf16/ckpt_universal \
    torch=pytorch/torchsave_full/ckpt/state.pt; do
	rm -rf dir && mkdir dir && cp -r "$data/${from#*=}" dir/ && chmod -R u+w dir
	ck=dir/$(basename "$from")
	race "${from%%=*}" optim/param_groups/0/lr
done
rm -rf dir && mkdir dir
ck=dir/ck
"$OPTIMFS" reshard -q --to safetensors "$data/pytorch/dcp_fsdp2_w2/ckpt" $ck
race safetensors optim/state/norm.weight/step
done_testing
