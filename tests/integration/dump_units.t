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

# With use_orig_params=False the optimizer has flat parameters. dump_units.py
# writes the names in each, and those of parameters that FSDP ignored.
data=$TOP_SRCDIR/tests/data/pytorch/fsdp1_local_flat_fullshard_w3
ck=$data/ckpt
ok "dump_units.py with an optimizer of flat parameters succeeds" dump flat
is "units.json lists the parameters in flat ones, and the ignored one" \
    "$(python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
want = [u["prefix"] + "." * (u["prefix"] != "") + n for u in d["units"]
        for n in u["fqns"]] + ["ignored"]
print(d["parameters"] == want, d["param_groups"] == [want])' "$new")" "True True"
python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
d["param_groups"][0].remove("ignored")
json.dump(d, open(sys.argv[1], "w"))' "$new"
is "this units.json without the ignored one gives the same tree" \
    "$(tree "$new")" "$(tree "$data/units.json")"
done_testing
