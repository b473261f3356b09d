#!/bin/sh
# diff.t - how different two checkpoints are, and where
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires python3
export OPTIMFS
data=$TOP_SRCDIR/tests/data/pytorch
four=$data/dcp_fsdp2_w4/ckpt
three=$data/dcp_fsdp2_w3/ckpt
path=model/layers.0.w1.weight

ok "layouts of one state are equal" "$OPTIMFS" diff "$four" "$three"
is "and nothing is said" "$(cat "$scratch/out")" ''

# Two elements of four ranks' checkpoint are others: 1.5 times and NaN.
cp -r "$four" "$scratch/new"
chmod -R u+w "$scratch/new"
python3 "$TOP_SRCDIR/tests/support/payload.py" "$scratch/new" $path 2 \
    scale 1.5 >"$scratch/where"
status "a value differs" 1 "$OPTIMFS" diff "$four" "$scratch/new"
said=$(cat "$scratch/out")
like "how many, and which is the first" "$said" \
    "$path: 1 of 228 elements differ, the first is 120, *"
like "by how much" "$said" '*, by up to 0.0545 (relative 0.333, * ulps) *'
like "which element, in which files of which ranks" "$said" \
    '*) at 120 in __2_0.distcp of rank 2 and __2_0.distcp of rank 2; *'
like "and how much that is of the tensor" "$said" \
    '*; rms 0.0* of the values?, cosine 0.9*'
status "across layouts too" 1 "$OPTIMFS" diff "$three" "$scratch/new"
like "with each side's rank" "$(cat "$scratch/out")" \
    '*) at 120 in __1_0.distcp of rank 1 and __2_0.distcp of rank 2; *'
ok "a tolerance that is relative" "$OPTIMFS" diff --rtol 0.34 "$four" "$scratch/new"
ok "one that is absolute" "$OPTIMFS" diff --atol 1 "$four" "$scratch/new"
status "one that is too small" 1 "$OPTIMFS" diff --atol 1e-9 "$four" "$scratch/new"
status "as JSON" 1 "$OPTIMFS" diff --json "$four" "$scratch/new"
ok "it can be read" python3 - "$scratch/out" <<'END'
import json, sys
d, = [json.loads(line) for line in open(sys.argv[1])]
assert d["schema"] == "optimfs.diff" and d["kind"] == "elements", d
assert d["at"] == 120 and d["differ"] == 1 and d["elements"] == 228, d
assert abs(d["max_rel"] - 1 / 3) < 1e-6 and d["ulps"] > 0, d
assert d["a"]["rank"] == 2 and d["b"]["file"] == "__2_0.distcp", d
assert 0 < d["rms"] < 1 and 0.9 < d["cosine"] < 1, d
END

# What is not there, and values.
"$OPTIMFS" reshard --to torch,only=optim "$four" "$scratch/optim" 2>/dev/null
status "a checkpoint without a model" 1 \
    "$OPTIMFS" diff --summary "$four" "$scratch/optim"
like "is told in numbers" "$(cat "$scratch/out")" 'compared *removed *'
"$OPTIMFS" mkfs --like "$four" --layout dcp@2 "$scratch/made" 2>/dev/null
status "two runs of one model" 1 "$OPTIMFS" diff --sort rel \
    "$data/dcp_opt_sgd_w2/ckpt" "$data/dcp_opt_amsgrad_w2/ckpt"
said=$(cat "$scratch/out")
like "values in full" "$said" '*optim/param_groups/0/lr: 0.* -> 0.*'
status "what is no key" 2 "$OPTIMFS" diff --sort size "$four" "$three"
status "what is no number" 2 "$OPTIMFS" diff --atol x "$four" "$three"
done_testing
