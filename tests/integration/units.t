#!/bin/sh
# units.t - FSDP1 rank files whose units file names no IDs, and ids=
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

data=$TOP_SRCDIR/tests/data/pytorch/fsdp1_local_orig_fullshard_w2
ck=$data/ckpt
ids=$scratch/ids

# Names and bytes of everything that the optimizer has.
tree() {
	"$OPTIMFS" tar -o "units=$data/units.json$1" "$ck" optim | cksum
}
list() {
	"$OPTIMFS" ls -R -o "units=$data/units.json,ids=$ids" "$ck" optim \
	    2>"$scratch/said" >/dev/null
}
# refuses WHAT TEXT: with these ids= it is refused, saying TEXT.
refuses() {
	not_ok "$1" list
	ok "and says where" grep -qF "$2" "$scratch/said"
}

not_ok "its units file lists no IDs" grep -q param_groups "$data/units.json"
for i in 0 1 2; do
	"$OPTIMFS" cat -o "units=$data/units.json" "$ck" \
	    "optim/param_groups/$i/params" 2>/dev/null
done >"$ids"
n=$(wc -l <"$ids")
ok "IDs have names all the same" [ "$n" -gt 3 ]
ok "ids= with these names" list
is "leads to the same tree" \
    "$(tree ",ids=$ids")" "$(tree "")"
is "and warns of nothing" \
    "$("$OPTIMFS" cat -o "units=$data/units.json,ids=$ids" "$ck" \
	.optimfs/warnings | grep -c OFS635)" 0

cp "$ids" "$scratch/good"
sed '$d' "$scratch/good" >"$ids"
refuses "a name too few" "line $n: $((n - 1)) names, the optimizer has $n"
{ cat "$scratch/good"; echo more; } >"$ids"
refuses "a name too many" "line $((n + 1)): $((n + 1)) names"
sed '2s/.*/no.such.name/' "$scratch/good" >"$ids"
refuses "a name of nothing" "line 2: ID 1 is no.such.name, which is in no unit"
{ sed -n 2,3p "$scratch/good"; sed -n 1p "$scratch/good"
sed 1,3d "$scratch/good"; } >"$ids"
refuses "another order" "but its state is not that one's"
ids=/nonexistent
refuses "no file" "ids=/nonexistent"

# Tied names, of which nothing but the units file knows.
mkdir "$scratch/optim"
cp "$ck"/optim_rank*.pt "$scratch/optim"
alone() {
	"$OPTIMFS" cat -o "units=$data/units.json" "$scratch/optim" "$@"
}
ok "the optimizer's files alone" alone optim/state/tok_embeddings.weight/step
is "state by the other name" \
    "$(alone optim/state/output.weight/exp_avg | cksum)" \
    "$(alone optim/state/tok_embeddings.weight/exp_avg | cksum)"
not_ok "which is not listed" sh -c \
    "'$OPTIMFS' ls -o 'units=$data/units.json' '$scratch/optim' optim/state |
    grep -q output"

# OLMo's local checkpoints bring their units.
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
ok "OLMo's without a rank" olmo ls
like "it is missing" "$(olmo cat .optimfs/missing)" "*OFS180*"
not_ok "and so are its elements" olmo cat model/blocks.0.c
is "a parameter of rank 0's" "$(olmo cat model/blocks.0.att.weight |
    od -An -tf4 -N8 | tr -s ' ')" " 2000 2001"
copy new
cp "$scratch/olmo/model/rank0.pt" "$scratch/olmo/model/rank1.pt"
not_ok "a file of another rank" olmo cat model/wte.weight
copy hybrid
without 2
without 3
ok "HYBRID_SHARD of which one replica was saved" olmo cat model/blocks.0.c
is "nothing is missing" "$(olmo cat .optimfs/missing)" ""
is "nor is state" "$(olmo cat optim/state/wte.weight/exp_avg | wc -c)" 60
done_testing
