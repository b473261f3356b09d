#!/bin/sh
# deepspeed.t - DeepSpeed loads what optimfs writes, and saves the same state
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

script=$TOP_SRCDIR/tests/interop/deepspeed.py
find_python "$script" version || skip_all "$why"

# An optimizer of a newer PyTorch adds options to its groups.
keeps_options() {
	(cd "$scratch/want/optim" && find param_groups -type f) | while read -r f; do
		cmp "$scratch/want/optim/$f" "$scratch/got/optim/$f" || return 1
	done
}

again() { # CHECKPOINT VIEW RANKS
	rm -rf "$scratch/view" "$scratch/new" "$scratch/want" "$scratch/got"
	"$OPTIMFS" cp -r "$1" .optimfs/view/"$2" "$scratch/view"
	ok "${1##*data/} as $2: DeepSpeed loads and saves it" "$python" "$script" again \
	    "$scratch/view" "$scratch/new" "$3"
	"$OPTIMFS" cp -r "$scratch/view" . "$scratch/want"
	"$OPTIMFS" cp -r "$scratch/new" . "$scratch/got"
	ok "${1##*data/} as $2: DeepSpeed saves the same optim/state/" diff -r \
	    "$scratch/want/optim/state" "$scratch/got/optim/state"
	ok "${1##*data/} as $2: DeepSpeed saves the same options" keeps_options
	# DeepSpeed does not load buffers and frozen parameters of a universal
	# checkpoint.
	[ "$2" = universal ] ||
	    ok "${1##*data/} as $2: DeepSpeed saves the same model/" diff -r "$scratch/want/model" \
		"$scratch/got/model"
}

# For the parameters that are trained; DeepSpeed has fp32 besides.
same_training() {
	ls "$scratch/want/optim/state" >"$scratch/names"
	[ -s "$scratch/names" ] || return 1
	while read -r name; do
		for file in "model/$name" "optim/state/$name/exp_avg" \
		    "optim/state/$name/exp_avg_sq" "optim/state/$name/step"; do
			cmp "$scratch/want/$file" "$scratch/got/$file" || return 1
		done
	done <"$scratch/names"
}

trains() { # CASE: DeepSpeed's own load, and FSDP2 by StorageReader
	from=$TOP_SRCDIR/tests/data/deepspeed/$1
	rm -rf "$scratch/new" "$scratch/want"
	ok "$1: DeepSpeed loads it and trains two steps" "$python" "$script" \
	    train "$from/ckpt" "$scratch/new" 2
	"$OPTIMFS" cp -r "$scratch/new" . "$scratch/want"
	for ranks in 2 3; do
		rm -rf "$scratch/fsdp2" "$scratch/got"
		ok "$1: FSDP2 loads it by StorageReader on $ranks ranks and trains two steps" \
		    "$python" "$reader" "$from/ckpt" \
		    "$from/expected/manifest.json" $ranks "save=$scratch/fsdp2"
		"$OPTIMFS" cp -r "$scratch/fsdp2" . "$scratch/got"
		ok "$1: both have the same weights and states" same_training
	done
}

data=$TOP_SRCDIR/tests/data
again "$data/deepspeed/z2_ws2_bf16/ckpt" zero1@3 3
again "$data/deepspeed/z3_ws2_subgroups/ckpt" zero3@3 3
again "$data/deepspeed/z2_ws2_bf16/ckpt" universal 2
again "$data/pytorch/dcp_fsdp2_w3/ckpt" zero2@2 2

# What thin --drop optim leaves.
weights() { # CASE RANKS TAG [universal]
	from=$data/deepspeed/$1/ckpt${4:+_universal}
	rm -rf "$scratch/run" "$scratch/new"
	mkdir "$scratch/run"
	cp -r "$from/$3" "$scratch/run/global_step1"
	cp -r "$from/$3" "$scratch/run/global_step9"
	chmod -R u+w "$scratch/run"
	"$OPTIMFS" thin --keep-last 1 --drop optim --yes "$scratch/run" >/dev/null
	is "$1${4:+, $4}: the moments are gone" "$("$OPTIMFS" ls -R "$scratch/run/global_step1" | grep exp_avg)" ''
	echo global_step1 >"$scratch/run/latest${4:+_universal}"
	ok "$1${4:+, $4}: DeepSpeed loads the model alone" "$python" "$script" weights \
	    "$from" "$scratch/new" "$2" "$scratch/run"
	rm -rf "$scratch/want" "$scratch/got"
	"$OPTIMFS" cp -r "$from" . "$scratch/want"
	"$OPTIMFS" cp -r "$scratch/new" . "$scratch/got"
	if [ $# = 4 ]; then
		ok "$1, $4: which is the same where it is trained" same_trained
	else
		ok "$1: which is the same" diff -r "$scratch/want/model" "$scratch/got/model"
	fi
}
same_trained() {
	ls "$scratch/want/optim/state" >"$scratch/names"
	[ -s "$scratch/names" ] || return 1
	while read -r name; do
		cmp "$scratch/want/model/$name" "$scratch/got/model/$name" || return 1
	done <"$scratch/names"
}
weights v0.19.6_z1_ws2_bf16 2 global_step3
weights v0.19.6_z2_ws4_round_robin 4 global_step3
weights v0.18.5_z3_ws4_subgroups 4 global_step3
weights z2_ws2_bf16 2 global_step3_universal universal
weights v0.18.5_z3_ws2_bf16 2 global_step3_universal universal

reader=$TOP_SRCDIR/tests/interop/torch_reader.py
if ! sanitized && "$python" "$reader" version; then
	import_optimfs
	trains z3_ws2_fp32
else
	skip 5 "no PyTorch 2.6 or later"
fi
done_testing
