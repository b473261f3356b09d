#!/bin/sh
# generated.t - generated DCP checkpoints of many shardings, dtypes and file
# layouts
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

mkdcp=$TOP_BUILDDIR/tests/bench/mkdcp
# mkdcp verifies the contents it generates. Where there is PyTorch, it must
# accept the checkpoint.
find_python -c 'import torch'

# holds NUMBER PATH: does the file have the contents of tensor NUMBER?
holds() {
	# shellcheck disable=SC2086
	"$OPTIMFS" cat "$dir" "$2" | "$mkdcp" -v "$1" $options /dev/stdin
}

# Checks every tensor, and the step of every parameter.
all_right() {
	i=0
	for w in attention.wq attention.wk attention.wv; do
		holds $((4 * i)) model/layers.0.$w.weight || return 1
		state=optim/state/layers.0.$w.weight
		holds $((4 * i + 1)) $state/exp_avg || return 1
		holds $((4 * i + 2)) $state/exp_avg_sq || return 1
		[ "$("$OPTIMFS" cat "$dir" $state/step)" = 1000.0 ] || return 1
		i=$((i + 1))
	done
}

# check OPTION...: make a checkpoint with these options, and verify it
check() {
	options="-n 3 $*"
	dir=$scratch/ck
	rm -rf "$dir"
	# shellcheck disable=SC2086
	"$mkdcp" -o $options "$dir" 2>"$scratch/why"
	if grep -q 'no zstd' "$scratch/why"; then
		skip 2 "this build has no zstd"
		return
	fi
	ok "mkdcp $*: every tensor has the generated contents" all_right
	ok "mkdcp $*: fsck --data finds no fault" "$OPTIMFS" fsck --data "$dir"
	[ -z "$python" ] ||
	    ok "mkdcp $*: PyTorch reads the checkpoint" "$python" \
		"$TOP_SRCDIR/tests/integration/generated.py" "$dir"
}

check -s 256,256
check -s 19,12 -r 4
check -s 2,7 -r 4
check -s 7,1000 -r 3 -S columns
check -s 7,3,100 -r 3 -S columns -t bfloat16
check -s 64,200 -r 6 -S 2x3
check -s 5,9 -r 6 -S 3x2 -t float64
check -s 1000 -r 2 -S replicated -t int64
check -s 100,3 -r 2 -c 50 -t uint8
check -s 33,10 -r 2 -f 3
check -s 33,10 -r 2 -f items
check -s 300,70 -r 2 -z 3
check -s 300,700 -r 3 -S columns -z 19 -t bfloat16
check -s 0,4 -r 2
check -s 300000 -r 2 -C

# A tensor larger than any buffer.
options="-n 1 -s 4099,1031"
dir=$scratch/large
"$mkdcp" $options -r 5 -S columns "$dir"
ok "a tensor of 17 MB in five column shards has the generated contents" \
    holds 0 model/layers.0.attention.wq.weight
"$mkdcp" -n 20000 -s 1 "$scratch/many"
is "ls lists 20,000 parameters" "$("$OPTIMFS" ls "$scratch/many" model | wc -l)" 20000
done_testing
