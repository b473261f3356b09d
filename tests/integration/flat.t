#!/bin/sh
# flat.t - flat FSDP1 optimizer state of up to 64 ranks, read through a mount
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

# holds SEED: has every parameter the state that mkflat generated with SEED?
holds() {
	while read -r fqn shape number; do
		at=$mnt/optim/state/$fqn
		"$mkdcp" -x "$1" -s "$shape" -v "$number" "$at/exp_avg" &&
		    "$mkdcp" -x "$1" -s "$shape" -v $((number + 1)) \
			"$at/exp_avg_sq" &&
		    [ "$(cat "$at/step")" = 1000.0 ] || return 1
	done <"$scratch/list"
}

# check OPTION...: generate flat rank files, mount them, and compare every state
check() {
	ok "mkflat $* writes a checkpoint" make_it -x 5 "$@"
	"$mkflat" -l "$@" >"$scratch/list"
	ok "mkflat $*: mount succeeds" mount_it
	is "mkflat $*: the tree has every parameter" \
	    "$(ls "$mnt/optim/state" | sort | tr '\n' ' ')" \
	    "$(cut -d ' ' -f 1 "$scratch/list" | sort | tr '\n' ' ')"
	ok "mkflat $*: every state has the generated contents" holds 5
	not_ok "mkflat $*: the contents of another seed are rejected" holds 4
	umount_it
}
umount_it() {
	"$OPTIMFS" umount "$mnt"
}

# Shards that end inside parameters; padding; ranks with nothing but padding.
check -u 3 -d 7
check -u 2 -d 1
# No padding; two ranks, and one.
check -u 2 -d 8 -r 2
check -u 1 -d 5 -r 1
# Parameters larger than any block.
check -u 2 -d 150 -r 3
# The parameters of a unit have one step, of which each rank has a copy.
make_it -u 2 -d 8 -r 4
mount_it
at=$mnt/optim/state/layers.0
reads() {
	sed -n 's/^local.reads //p' "$mnt/.optimfs/stats"
}
cat "$at.ffn_norm.weight/step" >"$scratch/step"
before=$(reads)
ok "a step is read" [ "$before" -gt 0 ]
ok "another parameter of the unit has the same step" \
    cmp "$at.attention.wq.weight/step" "$scratch/step"
is "it is not read again" "$(reads)" "$before"
ok "a parameter of another unit has the same step" \
    cmp "$mnt/optim/state/norm.weight/step" "$scratch/step"
ok "it is read" [ "$(reads)" -gt "$before" ]
umount_it
done_testing
