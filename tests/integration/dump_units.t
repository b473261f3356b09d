#!/bin/sh
# dump_units.t - contrib/dump_units.py writes usable units files
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires python3
data=$TOP_SRCDIR/tests/data/pytorch/fsdp1_local_orig_fullshard_w2
ck=$data/ckpt
new=$scratch/units.json

# dump FROZEN...: write units.json for the recorded model with these parameters
# frozen
dump() {
	python3 "$TOP_SRCDIR/tests/integration/dump_units.py" \
	    "$TOP_SRCDIR/contrib" "$data/units.json" "$new" "$@"
}
tree() {
	"$OPTIMFS" tar -o "units=$1" "$ck" optim | cksum
}
get() {
	"$OPTIMFS" cat -o "units=$1" "$ck" "$2"
}
# names UNITS: parameter names in the order of IDs
names() {
	for i in 0 1 2; do
		get "$1" "optim/param_groups/$i/params" 2>/dev/null
	done
}

names "$data/units.json" >"$scratch/names"
ok "dump_units.py without an optimizer succeeds" dump
not_ok "units.json without an optimizer lists no IDs" grep -q param_groups "$new"
is "units.json without an optimizer gives the same tree" \
    "$(tree "$new")" "$(tree "$data/units.json")"
ok "dump_units.py with an optimizer and frozen parameters succeeds" \
    dump adapter.weight adapter.bias <"$scratch/names"
ok "units.json with an optimizer lists the IDs" grep -q param_groups "$new"
is "units.json with an optimizer gives the same tree" "$(tree "$new")" "$(tree "$data/units.json")"
like "the state of frozen parameters is missing with the old units.json" \
    "$(get "$data/units.json" .optimfs/missing)" "*OFS642*adapter.weight*"
is "nothing is missing when units.json marks frozen parameters" "$(get "$new" .optimfs/missing)" ""
ok "ls -o strict accepts the units.json with frozen parameters" \
    "$OPTIMFS" ls -o "strict,units=$new" "$ck"
done_testing
