#!/bin/sh
# frameworks.t - checkpoints that installed releases of libraries write here
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

script=$TOP_SRCDIR/tests/interop/frameworks.py
: "${OMP_NUM_THREADS:=1}"
export OMP_NUM_THREADS

# Has optimfs the values of all tensors that the library had? What is in few bits
# is float32 in .optimfs/f32.
same_values() { # CASE
	(cd "$1/want" && find . -type f | sed 's,^\./,,') >"$scratch/paths"
	[ -s "$scratch/paths" ] || return 1
	while read -r path; do
		"$OPTIMFS" cat "$1/ck" "$path" >"$scratch/got" 2>"$scratch/err" &&
		    cmp -s "$1/want/$path" "$scratch/got" && continue
		"$OPTIMFS" cat "$1/ck" ".optimfs/f32/$path" >"$scratch/got" &&
		    cmp "$1/want/$path" "$scratch/got" || return 1
	done <"$scratch/paths"
}

for library in transformers peft accelerate lightning torchtitan torch_checkpointing verl \
    torchao bitsandbytes; do
	if ! find_python "$script" version "$library"; then
		skip 1 "$why"
		continue
	fi
	version=$("$python" "$script" version "$library" 2>/dev/null | tail -n 1)
	mkdir "$scratch/$library"
	ok "$library $version trains and saves" "$python" "$script" write "$library" \
	    "$scratch/$library"
	for case in "$scratch/$library"/*/want; do
		case=${case%/want}
		ok "$library $version, ${case##*/}: all values are read" same_values "$case"
		ok "$library $version, ${case##*/}: fsck finds nothing" \
		    "$OPTIMFS" fsck --data "$case/ck"
		not_ok "$library $version, ${case##*/}: nothing is damaged or missing" sh -c \
		    "\"$OPTIMFS\" info '$case/ck' | grep '^missing \|^damaged ' | grep -v ' nothing'"
	done
done

# Has names= a rule for each name that transformers gives, there and back?
if find_python "$script" version transformers; then
	mkdir "$scratch/families"
	ok "transformers makes a model of each family" "$python" "$script" write families \
	    "$scratch/families"
	for model in "$scratch/families"/*; do
		family=${model##*/}
		ok "$family gets names of Megatron-Core" "$OPTIMFS" reshard -q \
		    --to "dcp@2,names=megatron:$family" "$model" "$scratch/megatron.$family"
		is "$family: all of them" "$(tap_said)" ''
		ok "$family: the way back gives the same" "$OPTIMFS" reshard -q \
		    --to "safetensors,hf,names=$family,heads=4,groups=2,vocab=96" \
		    --verify "$model" "$scratch/megatron.$family" "$scratch/back.$family"
	done
else
	skip 1 "$why"
fi

# Is it what the mappings of Megatron-Bridge make of what transformers saves?
if find_python "$script" version megatron_bridge; then
	mkdir "$scratch/bridge"
	ok "the mappings of Megatron-Bridge make checkpoints" "$python" "$script" write \
	    megatron_bridge "$scratch/bridge"
	for case in "$scratch/bridge"/*; do
		family=${case##*/}
		options=names=$family,heads=4,groups=2
		ok "$family: they become what transformers saved" "$OPTIMFS" reshard -q \
		    --to "safetensors,hf,$options,vocab=96" --verify "$case/hf" \
		    "$case/megatron" "$scratch/bridge.$family"
		ok "$family: the way back" "$OPTIMFS" reshard -q \
		    --to "dcp@2,names=megatron:${options#names=}" "$case/hf" "$case/back"
		# norms have several names, and the way back knows one
		is "$family: ... gives the same" "$("$OPTIMFS" diff "$case/megatron" \
		    "$case/back" 2>&1 | grep -v norm)" ''
	done
else
	skip 1 "$why"
fi

# Names of Hugging Face, as the converter that verl uses makes them.
if find_python "$script" version mbridge; then
	mkdir "$scratch/mbridge"
	ok "mbridge converts a checkpoint of Megatron-Core" "$python" "$script" write mbridge \
	    "$scratch/mbridge"
	ok "names=llama gives the same names and elements" "$OPTIMFS" reshard -q \
	    --to safetensors,hf,names=llama --verify "$scratch/mbridge" \
	    "$TOP_SRCDIR/tests/data/megatron/llama_dp2/fully_reshardable/iter_0000003" "$scratch/hf"
else
	skip 2 "$why"
fi
done_testing
