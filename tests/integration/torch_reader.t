#!/bin/sh
# torch_reader.t - PyTorch 2.6 loads checkpoints of other formats into FSDP2
# models
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

script=$TOP_SRCDIR/tests/interop/torch_reader.py
find_python "$script" version || skip_all "no PyTorch 2.6 or later"
sanitized && skip_all "a sanitizer's library is not loaded into Python"
import_optimfs

# loads CHECKPOINT EXPECTED RANKS [HOW]
loads() {
	ok "$3 ranks load $1${4:+ ($4)} and go on training" "$python" \
	    "$script" "$TOP_SRCDIR/tests/data/$1" \
	    "$TOP_SRCDIR/tests/data/$2/expected/manifest.json" "$3" ${4:+"$4"}
}

ok "one process loads the values of a training loop, step too" "$python" "$script" values
ok "one process loads optimizers by their names" "$python" "$script" optimizers

zero=deepspeed/z3_ws2_bf16
megatron=fully_reshardable/iter_0000003
loads $zero/ckpt $zero 2
loads $zero/ckpt $zero 3
loads $zero/ckpt $zero 2 bfloat16
loads $zero/ckpt $zero 3 regrouped
loads $zero/ckpt $zero 2 recipe
loads deepspeed/z3_ws4_bf16/ckpt deepspeed/z3_ws4_bf16 2
loads deepspeed/z3_ws2_fp32/ckpt deepspeed/z3_ws2_fp32 3
loads megatron/llama_dp2/$megatron megatron/llama_dp2 2
loads megatron/llama_dp2/$megatron megatron/llama_dp2 3
loads megatron/gpt_tp2_dp2/$megatron megatron/gpt_tp2_dp2 2
loads megatron/gpt_tp2_dp2/$megatron megatron/gpt_tp2_dp2 3 renamed
loads pytorch/dcp_fsdp2_w3/ckpt pytorch/dcp_fsdp2_w3 2
done_testing
