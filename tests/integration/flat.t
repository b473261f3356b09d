#!/bin/sh
# flat.t - FSDP1's flat optimizer state of up to 64 ranks, through a mount
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires mount
mkdcp=$TOP_BUILDDIR/tests/bench/mkdcp
mkflat=$TOP_BUILDDIR/tests/bench/mkflat
dir=$scratch/ck
mnt=$(point mnt)

make_it() {
	rm -rf "$dir"
	"$mkflat" "$@" "$dir"
}
mount_it() {
	"$OPTIMFS" mount -o "units=$dir/units.json" "$dir" "$mnt"
}

# holds SEED: each state of each parameter is the one that mkflat cut up.
holds() {
	while read -r fqn shape number; do
		at=$mnt/optim/state/$fqn
		"$mkdcp" -x "$1" -s "$shape" -v "$number" "$at/exp_avg" &&
		    "$mkdcp" -x "$1" -s "$shape" -v $((number + 1)) \
			"$at/exp_avg_sq" &&
		    [ "$(cat "$at/step")" = 1000.0 ] || return 1
	done <"$scratch/list"
}

# check OPTION...
check() {
	ok "$*" make_it -x 5 "$@"
	"$mkflat" -l "$@" >"$scratch/list"
	ok "mount" mount_it
	is "it has these parameters" \
	    "$(ls "$mnt/optim/state" | sort | tr '\n' ' ')" \
	    "$(cut -d ' ' -f 1 "$scratch/list" | sort | tr '\n' ' ')"
	ok "each is whole" holds 5
	not_ok "and not another" holds 4
	umount_it
}
umount_it() {
	"$OPTIMFS" umount "$mnt"
}

# Shards that end in parameters, with padding; ranks that have nothing else.
check -u 3 -d 7
check -u 2 -d 1
# Without padding; of two ranks and of one.
check -u 2 -d 8 -r 2
check -u 1 -d 5 -r 1
# Parameters larger than any block.
check -u 2 -d 150 -r 3
done_testing
