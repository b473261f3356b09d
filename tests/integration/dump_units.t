#!/bin/sh
# dump_units.t - units files by contrib/dump_units.py, of what FSDP recorded
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires python3
data=$TOP_SRCDIR/tests/data/pytorch/fsdp1_local_orig_fullshard_w2
ck=$data/ckpt
new=$scratch/units.json

# dump FROZEN...
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
# names UNITS: in the order of IDs
names() {
	for i in 0 1 2; do
		get "$1" "optim/param_groups/$i/params" 2>/dev/null
	done
}

names "$data/units.json" >"$scratch/names"
ok "without the optimizer" dump
not_ok "it does not name the IDs" grep -q param_groups "$new"
is "they are found all the same" "$(tree "$new")" "$(tree "$data/units.json")"
ok "with it, and two that are frozen" \
    dump adapter.weight adapter.bias <"$scratch/names"
ok "it names the IDs" grep -q param_groups "$new"
is "and leads to the same state" "$(tree "$new")" "$(tree "$data/units.json")"
like "state that frozen ones lack" \
    "$(get "$data/units.json" .optimfs/missing)" "*OFS642*adapter.weight*"
is "is not missing" "$(get "$new" .optimfs/missing)" ""
ok "to strict neither" "$OPTIMFS" ls -o "strict,units=$new" "$ck"
done_testing
