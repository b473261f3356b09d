#!/bin/sh
# units.t - FSDP1 rank files without parameter IDs in units.json, and the option
# ids=
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

data=$TOP_SRCDIR/tests/data/pytorch/fsdp1_local_orig_fullshard_w2
ck=$data/ckpt
ids=$scratch/ids

# Checksum of all names and bytes of the optimizer.
tree() {
	"$OPTIMFS" tar -o "units=$data/units.json$1" "$ck" optim | cksum
}
list() {
	"$OPTIMFS" ls -R -o "units=$data/units.json,ids=$ids" "$ck" optim \
	    2>"$scratch/said" >/dev/null
}
# refuses WHAT TEXT: does ls with this ids= file fail with TEXT?
refuses() {
	not_ok "ids= with $1 fails" list
	ok "the message about $1 names the place" grep -qF "$2" "$scratch/said"
}

not_ok "the fixture's units.json lists no IDs" grep -q param_groups "$data/units.json"
like "a missing units= file fails with OFS162 and its name" \
    "$("$OPTIMFS" ls -o units=/nonexistent "$ck" 2>&1)" \
    "*OFS162 *units=/nonexistent: No such file*"
like "an index given as units= is not a units file" "$("$OPTIMFS" ls -o \
    units="$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w2/ckpt/.metadata" "$ck" 2>&1)" \
    "*OFS162 *not a units file: it is not JSON*dump_units.py*"
for i in 0 1 2; do
	"$OPTIMFS" cat -o "units=$data/units.json" "$ck" \
	    "optim/param_groups/$i/params" 2>/dev/null
done >"$ids"
n=$(wc -l <"$ids")
ok "IDs get names without ids=" [ "$n" -gt 3 ]
ok "ids= with the same names succeeds" list
is "ids= with the same names gives the same tree" \
    "$(tree ",ids=$ids")" "$(tree "")"
is "ids= avoids the warning OFS635" \
    "$("$OPTIMFS" cat -o "units=$data/units.json,ids=$ids" "$ck" \
	.optimfs/warnings | grep -c OFS635)" 0

cp "$ids" "$scratch/good"
sed '$d' "$scratch/good" >"$ids"
refuses "one name too few" "line $n: $((n - 1)) names, the optimizer has $n"
{ cat "$scratch/good"; echo more; } >"$ids"
refuses "one name too many" "line $((n + 1)): $((n + 1)) names"
sed '2s/.*/no.such.name/' "$scratch/good" >"$ids"
refuses "an unknown name" "line 2: ID 1 is no.such.name, which is in no unit"
{ sed -n 2,3p "$scratch/good"; sed -n 1p "$scratch/good"
sed 1,3d "$scratch/good"; } >"$ids"
refuses "names in another order" "but its state is not that one's"
ids=/nonexistent
refuses "a missing file" "ids=/nonexistent"

# Without the model, only the units file can tell the order of the parameters: the
# root has some before and some after those of the layers.
mkdir "$scratch/optim"
cp "$ck"/optim_rank*.pt "$scratch/optim"
like "nested units without an order are refused" \
    "$("$OPTIMFS" ls -o "units=$data/units.json" "$scratch/optim" 2>&1)" \
    "*OFS164 *order of the model is not known*needs parameters*"
python3 -c 'import json, sys
print(json.dumps(json.load(open(sys.argv[1]))[::-1]))' "$data/units.json" >"$scratch/reversed.json"
like "so are units that come before the one that they are parts of" \
    "$("$OPTIMFS" ls -o "units=$scratch/reversed.json" "$scratch/optim" 2>&1)" \
    "*OFS164 *order of the model is not known*needs parameters*"
printf '{"units": %s, "parameters": [%s]}\n' "$(cat "$data/units.json")" \
    "$(sed 's/.*/"&"/; $!s/$/,/' "$scratch/good")" >"$scratch/order.json"

# A tied weight has a second name that only units.json knows.
alone() {
	"$OPTIMFS" cat -o "units=$scratch/order.json" "$scratch/optim" "$@"
}
ok "optimizer files without the model can be read" alone optim/state/tok_embeddings.weight/step
is "the state of a tied weight can be read by its second name" \
    "$(alone optim/state/output.weight/exp_avg | cksum)" \
    "$(alone optim/state/tok_embeddings.weight/exp_avg | cksum)"
not_ok "the second name of a tied weight is not listed" sh -c \
    "'$OPTIMFS' ls -o 'units=$data/units.json' '$scratch/optim' optim/state |
    grep -q output"

# A LOCAL_STATE_DICT in a DCP checkpoint.
dcp=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp1_local_orig_w3
plain=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp1_local_flat_w3
not_ok "DCP: without units a slice cannot be read" "$OPTIMFS" cat "$dcp/ckpt" model/1.weight
like "DCP: OFS166 says that the units are unknown" "$(cat "$scratch/err")" '*OFS166 model/1.weight: units unknown*'
ok "DCP: without units a flat parameter can be read" "$OPTIMFS" cat "$dcp/ckpt" model/2._flat_param
is "DCP: without use_orig_params there are no slices" \
    "$("$OPTIMFS" cat "$plain/ckpt" model/1.running_mean | wc -c)" 20
like "DCP: OFS167 says which names are not shown" \
    "$("$OPTIMFS" fsck -o "units=$dcp/units.json" "$dcp/ckpt" 2>&1)" '*OFS167*clean, 0 errors, 1 warning*'
like "DCP: units of another model fail with OFS160" \
    "$("$OPTIMFS" ls -o "units=$data/units.json" "$dcp/ckpt" 2>&1)" \
    '*OFS160 *.metadata has 2._flat_param, but the units file has no such unit*'
sed 's/5$/6/' "$plain/units.json" >"$scratch/units"
not_ok "DCP: units of other sizes are refused" "$OPTIMFS" cat -o "units=$scratch/units" \
    "$plain/ckpt" model/0.bias
like "DCP: the message about other sizes is OFS160" "$(cat "$scratch/err")" '*OFS160*'
cp -r "$dcp/ckpt" "$scratch/dcp"
cp "$dcp/units.json" "$scratch/dcp"
is "DCP: units.json in the checkpoint is used" "$("$OPTIMFS" cat "$scratch/dcp" model/1.weight | cksum)" \
    "$("$OPTIMFS" cat -o "units=$dcp/units.json" "$dcp/ckpt" model/1.weight | cksum)"
for name in model extra/ema; do
	is "DCP: $name has the second name of a tied weight" \
	    "$("$OPTIMFS" cat -o "units=$plain/units.json" "$plain/ckpt_ema" "$name/2.last.weight" | cksum)" \
	    "$("$OPTIMFS" cat -o "units=$plain/units.json" "$plain/ckpt" model/2.up.weight | cksum)"
done

# Local checkpoints of OLMo contain their units.
copy() {
	rm -rf "$scratch/olmo"
	cp -r "$TOP_SRCDIR/tests/data/extra/olmo_local/$1" "$scratch/olmo"
	chmod -R u+w "$scratch/olmo"
}
olmo() {
	verb=$1
	shift
	"$OPTIMFS" "$verb" "$scratch/olmo" "$@"
}
without() {
	rm "$scratch/olmo/model/rank$1.pt" "$scratch/olmo/optim/rank$1.pt"
}
copy new
without 1
ok "OLMo: ls succeeds when the files of a rank are missing" olmo ls
like "OLMo: .optimfs/missing lists the missing rank as OFS180" \
    "$(olmo cat .optimfs/missing)" "*OFS180*"
not_ok "OLMo: a tensor of the missing rank cannot be read" olmo cat model/blocks.0.c
is "OLMo: a tensor of rank 0 can be read without rank 1" "$(olmo cat model/blocks.0.att.weight |
    od -An -tf4 -N8 | tr -s ' ')" " 2000 2001"
copy new
cp "$scratch/olmo/model/rank0.pt" "$scratch/olmo/model/rank1.pt"
not_ok "OLMo: a file with the contents of another rank is rejected" olmo cat model/wte.weight
copy hybrid
without 2
without 3
ok "OLMo: one replica of a HYBRID_SHARD checkpoint is enough" olmo cat model/blocks.0.c
is "OLMo: nothing is missing with one replica" "$(olmo cat .optimfs/missing)" ""
is "OLMo: optimizer state can be read with one replica" \
    "$(olmo cat optim/state/wte.weight/exp_avg | wc -c)" 60
done_testing
