#!/bin/sh
# read_errors.t - a disk that fails while a checkpoint is opened is what is told
# SPDX-License-Identifier: Apache-2.0
# A directory that cannot be listed is not one that is not there: the checkpoint
# would be taken for another one.
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

faultlib=$TOP_BUILDDIR/.libs/faultlib.so
if [ ! -e "$faultlib" ] || sanitized; then
	skip_all "faultlib.so cannot be preloaded"
fi
requires awk
cd "$scratch" || exit 99
EIO=5 FAIL=4
cp -r "$TOP_SRCDIR/tests/data/deepspeed/z2_ws2_bf16/ckpt_universal" ck && chmod -R u+w ck

# Runs the command as often as it opens a directory with this end, and lets that
# fail. Prints what was told, and seen, each time.
with_errors() { # END COMMAND...
	end=$1
	shift
	rm -f trace
	env LD_PRELOAD="$faultlib" FAULT_TRACE="$scratch/trace" "$@" >good 2>&1
	for call in $(awk -F '\t' -v end="$end" \
	    'substr($4, length($4) - length(end) + 1) == end { print $1 }' trace); do
		env LD_PRELOAD="$faultlib" FAULT_AT="$call" FAULT_HOW=$FAIL \
		    FAULT_CODE=$EIO "$@" >out 2>said
		if grep -q 'OFS755.*nput/output error' said; then
			echo told
		elif cmp -s out good; then
			echo same
		else
			echo "call $call: $(head -n 1 said)"
		fi
	done | sort -u
}

is "a directory of a checkpoint that cannot be listed is an error" \
    "$(with_errors /zero/. "$OPTIMFS" ls -R ck | grep -v same)" told
data=$TOP_SRCDIR/tests/data/torch_checkpointing/fsdp2_w2_safetensors
is "an index that cannot be opened is an error" "$(with_errors /metadata.pkl \
    "$OPTIMFS" ls -R "$data/ckpt/step_3" | grep -v same)" told
data=$TOP_SRCDIR/tests/data/megatron/llama_dp2/fully_reshardable/iter_0000003
is "a file that names the format is read, or it is an error" \
    "$(with_errors /metadata.json "$OPTIMFS" ls -R "$data" | grep -v same)" told
data=$TOP_SRCDIR/tests/data/jobs/world_sizes
is "so is one that says of how many ranks the files are" \
    "$(with_errors /fsdp_config.json "$OPTIMFS" ls -R "$data" | grep -v same)" told
data=$TOP_SRCDIR/tests/data/delta/slime_xxh3/ckpt/deltas
is "nor are changes taken for a state" \
    "$(with_errors /model.safetensors.index.json "$OPTIMFS" ls -R \
    "$data/weight_v000003" | grep -v same)" told
done_testing
