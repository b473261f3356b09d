#!/bin/sh
# megatron.t - FSDP2 goes on from a checkpoint as Megatron-Core does, and
# Megatron-Core loads what optimfs has edited
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

script=$TOP_SRCDIR/tests/interop/megatron.py
reader=$TOP_SRCDIR/tests/interop/torch_reader.py
find_python "$script" version || skip_all "$why"
sanitized && skip_all "a sanitizer's library is not loaded into Python"
import_optimfs

# Megatron-Core trains the float32 copies of its weights.
same_training() {
	ls "$scratch/want/optim/state" >"$scratch/names"
	[ -s "$scratch/names" ] || return 1
	while read -r name; do
		want=$scratch/want/optim/state/$name got=$scratch/got/optim/state/$name
		cmp "$want/fp32" "$scratch/got/model/$name" || return 1
		for file in exp_avg exp_avg_sq step; do
			cmp "$want/$file" "$got/$file" || return 1
		done
	done <"$scratch/names"
}

trains() { # CASE RANKS [TP]: Megatron-Core's own load, and FSDP2 by StorageReader
	from=$TOP_SRCDIR/tests/data/megatron/$1
	rm -rf "$scratch/new" "$scratch/fsdp2" "$scratch/want" "$scratch/got"
	ok "$1: $2 ranks of Megatron-Core load it and train two steps" "$python" \
	    "$script" train "$from/$latest" "$scratch/new" "$2" "${3:-1}"
	ok "$1: FSDP2 loads it by StorageReader on $2 ranks and trains two steps" \
	    "$python" "$reader" "$from/$latest" \
	    "$from/expected/manifest.json" "$2" "save=$scratch/fsdp2"
	"$OPTIMFS" cp -r "$scratch/new" . "$scratch/want"
	"$OPTIMFS" cp -r "$scratch/fsdp2" . "$scratch/got"
	ok "$1: both have the same weights and states" same_training
}

edits() { # CHECKPOINT
	cp -rL "$1" "$scratch/edited"
	"$python" - "$scratch/edited" <<-'END' || return 1
	import sys, optimfs
	with optimfs.edit(sys.argv[1]) as ck:
	    ck["model/decoder.layers.1.mlp.linear_fc1.weight"][3:7] = 0.5
	    ck["optim/state/decoder.layers.1.mlp.linear_fc2.weight/exp_avg"][:, 5] = 3
	END
	"$python" "$script" again "$scratch/edited" "$scratch/loaded" 1 || return 1
	rm -rf "$scratch/want" "$scratch/got"
	"$OPTIMFS" cp -r "$scratch/edited" . "$scratch/want"
	"$OPTIMFS" cp -r "$scratch/loaded" . "$scratch/got"
	diff -r "$scratch/want/model" "$scratch/got/model" &&
	    diff -r "$scratch/want/optim" "$scratch/got/optim"
}

# One state, saved in each way that Megatron-Core has.
kinds() { # CASE RANKS TP
	from=$TOP_SRCDIR/tests/data/megatron/$1/$latest
	rm -rf "$scratch/kinds"
	ok "$1: $2 ranks of Megatron-Core save it in each way" "$python" "$script" \
	    kinds "$from" "$scratch/kinds" "$2" "$3"
	"$OPTIMFS" diff "$scratch/kinds/fully_reshardable" "$scratch/kinds/dp_reshardable" \
	    >"$scratch/out" 2>&1
	not_ok "$1: model and state are the same, with names and without" \
	    grep -v '^extra/' "$scratch/out"
	like "$1: all parameters were found by their weights" \
	    "$("$OPTIMFS" info "$scratch/kinds/dp_reshardable")" \
	    '*buckets     * parameters found by their weights, 0 by order*'
}

# What thin --drop optim leaves, as with --no-load-optim.
weights() { # CASE KIND RANKS TP
	from=$TOP_SRCDIR/tests/data/megatron/$1/$2/iter_0000003
	rm -rf "$scratch/run" "$scratch/new" "$scratch/want" "$scratch/got"
	mkdir "$scratch/run"
	cp -r "$from" "$scratch/run/iter_0000003"
	cp -r "$from" "$scratch/run/iter_0000009"
	chmod -R u+w "$scratch/run"
	"$OPTIMFS" thin --keep-last 1 --drop optim --yes "$scratch/run" >/dev/null
	is "$1, $2: the optimizer is gone" \
	    "$("$OPTIMFS" ls "$scratch/run/iter_0000003" | tr '\n' ' ')" "extra/ model/ "
	ok "$1, $2: $3 ranks of Megatron-Core load the model alone" "$python" \
	    "$script" weights "$scratch/run/iter_0000003" "$scratch/new" "$3" "$4"
	"$OPTIMFS" cp -r "$from" model "$scratch/want"
	"$OPTIMFS" cp -r "$scratch/new" model "$scratch/got"
	ok "$1, $2: which is the same" diff -r "$scratch/want" "$scratch/got"
}

weights llama_dp2 dp_reshardable 1 1
weights gpt_tp2_dp2 fully_reshardable 2 2
latest=fully_reshardable/iter_0000003
kinds llama_dp2 2 1
kinds gpt_tp2_dp2 2 2
trains llama_dp2 2
trains llama_dp2 3
trains gpt_tp2_dp2 2 2
ok "Megatron-Core loads and saves what optimfs has edited" edits \
    "$TOP_SRCDIR/tests/data/megatron/llama_dp2/$latest"
done_testing
