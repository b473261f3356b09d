#!/bin/sh
# json.t - what --json prints is what docs/json.md and its schema say
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires python3

data=$TOP_SRCDIR/tests/data
schema=$TOP_SRCDIR/docs/json.schema.json
cd "$scratch" || exit 99
cp -r "$data/pytorch/dcp_fsdp2_w4/ckpt" ck
cp -r ck lost
rm lost/__1_0.distcp
mkdir run
cp -r ck run/step-1
cp -r ck run/step-2
mkdir run/step-3
python3 "$TOP_SRCDIR/tests/support/payload.py" run/step-2 model/layers.0.w1.weight 2 scale 1.5 >where
cp -r ck nan
python3 "$TOP_SRCDIR/tests/support/payload.py" nan model/layers.0.w1.weight 3 nan 5 >where
w=model/layers.0.w1.weight

# valid LAST COMMAND...: each object is valid, and the last one has this schema
valid() {
	last=$1
	shift
	"$OPTIMFS" "$@" >json 2>said
	ok "optimfs $*: valid" \
	    python3 "$TOP_SRCDIR/tests/support/json_schema.py" "$schema" <json
	is "optimfs $*: the last object" \
	    "$(tail -n 1 json | sed 's/^{"schema": "\([^"]*\)", "v": [0-9]*, .*/\1/')" "optimfs.$last"
	cat json >>all
}
valid info info --json ck
valid info info --json lost
valid info info --json "$data/deepspeed/z3_ws2_bf16/ckpt"
valid info info --json "$data/megatron/llama_dp2/dp_reshardable"
valid info.directory info --json ck model
valid info.file info --json ck optim/param_groups/0/lr $w
valid info.file info --json lost $w
valid info.run info --json run
valid ls.summary ls --json -lR ck
valid ls.summary ls --json run steps latest
valid fsck.summary fsck --json ck
valid fsck.summary fsck --json lost
valid stat.summary stat --json --by rank nan $w
valid stat.summary stat --json lost model
valid check.summary check --json -v nan
valid diff.summary diff --json ck nan
valid diff.summary diff --json run:1 run:2
valid diff.summary diff --json --summary ck lost
valid log.summary log --json run
valid log.summary log --json run $w optim/param_groups/0/lr
valid error log --json run $w none
valid thin thin --json --keep-last 1 run
valid sum sum --json --all ck
valid show show --json nan $w "${w}[0, :2]" optim/param_groups/0/lr optim/state/norm.bias/step
valid plan plan --json --sweep 2..4 ck dcp
valid map.summary map --json lost
valid made reshard --json --to torch ck new
valid plan reshard -n --json --to torch ck
valid made mkfs --json --like ck --layout dcp@2 made
valid explain explain --json OFS002
valid error ls --json ck none
valid error plan --json ck none
valid error reshard --json --to torch ck new
valid error show --json lost $w
valid error cat --json ck $w
valid error none --json ck
ok "every object that the schema has was printed, except commit's" python3 - "$schema" all <<'END'
import json, sys
names = {d["properties"]["schema"]["const"] for d in json.load(open(sys.argv[1]))["$defs"].values()
         if "schema" in d.get("properties", {})}
missing = names - {json.loads(line)["schema"] for line in open(sys.argv[2])}
assert missing == {"optimfs.commit"}, missing
END
ok "docs/json.md describes each of them" python3 - "$schema" "$TOP_SRCDIR/docs/json.md" <<'END'
import json, sys
page = open(sys.argv[2]).read()
for name, d in json.load(open(sys.argv[1]))["$defs"].items():
    assert name.endswith("summary") or "optimfs." not in name or f"`{name}`" in page, name
    for member in d.get("properties", {}):
        assert f"`{member}`" in page or f".{member}`" in page, (name, member)
END
printf '%s\n' '{"schema": "optimfs.map.summary", "v": 1, "tensors": "1"}' \
    '{"schema": "optimfs.map.summary", "v": 1}' '{"schema": "optimfs.none", "v": 1}' \
    '{"schema": "optimfs.map.summary", "v": 1, "tensors": 1, "more": 1}' >wrong
is "the validator finds what is wrong" "$(python3 "$TOP_SRCDIR/tests/support/json_schema.py" \
    "$schema" <wrong | sed '/^  in /d')" "/tensors: '1' is not integer
: no member tensors
: 'optimfs.none' is no schema
: unknown member more"
done_testing
