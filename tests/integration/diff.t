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
    "$path: 1 of 228 elements differ, from element 120 on; *"
like "by how much" "$said" '*; by up to 0.0545 at element 120 (relative 0.333); *'
like "which element, in which files of which ranks" "$said" \
    '*; a: __2_0.distcp rank 2, b: __2_0.distcp rank 2'
like "and how much that is of the tensor" "$said" \
    '*; relative rms 0.0*, cosine 0.9*'
status "across layouts too" 1 "$OPTIMFS" diff "$three" "$scratch/new"
like "with each side's rank" "$(cat "$scratch/out")" \
    '*; a: __1_0.distcp rank 1, b: __2_0.distcp rank 2'
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

# A number that became none.
cp -r "$four" "$scratch/nan"
chmod -R u+w "$scratch/nan"
python3 "$TOP_SRCDIR/tests/support/payload.py" "$scratch/nan" $path 3 nan 5 >/dev/null
status "a NaN" 1 "$OPTIMFS" diff "$four" "$scratch/nan"
is "is a NaN, not a difference of nothing" "$(cat "$scratch/out")" \
    "$path: 1 of 228 elements differ, from element 185 on; 1 is NaN in $scratch/nan only; a: __3_0.distcp rank 3, b: __3_0.distcp rank 3"
status "as JSON" 1 "$OPTIMFS" diff --json "$four" "$scratch/nan"
ok "it is counted, and no number stands for it" python3 - "$scratch/out" <<'END'
import json, sys
d, = [json.loads(line) for line in open(sys.argv[1])]
assert (d["nan_a"], d["nan_b"], d["inf_a"], d["inf_b"]) == (0, 1, 0, 0), d
assert d["max_abs"] is None and d["max_rel"] is None, d
assert d["cosine"] <= 1, d
END
python3 "$TOP_SRCDIR/tests/support/payload.py" "$scratch/nan" \
    model/layers.1.w1.weight 2 scale 1000 >/dev/null
for key in abs rel rms cosine; do
	status "a NaN by $key" 1 "$OPTIMFS" diff --sort $key "$four" "$scratch/nan"
	like "comes first" "$(cat "$scratch/out")" "$path: *layers.1.w1.weight: *"
done
if command -v script >/dev/null; then
	ok "a terminal" script -qec "'$OPTIMFS' diff '$four' '$three'" "$scratch/tty"
	like "is told of equality" "$(cat "$scratch/tty")" '*equal: * files compared*'
fi

# An infinity is within no tolerance of a number.
cp -r "$four" "$scratch/inf"
chmod -R u+w "$scratch/inf"
python3 "$TOP_SRCDIR/tests/support/payload.py" "$scratch/inf" $path 3 inf 5 >/dev/null
status "an infinity, with a relative tolerance" 1 \
    "$OPTIMFS" diff --rtol 0.5 "$four" "$scratch/inf"
like "differs" "$(cat "$scratch/out")" '*; 1 is infinite in *'

# Values that are longer than what is read at once, and infinite.
python3 - "$scratch" <<'END'
import pickle, sys, zipfile
for name, lr in ("long", 1.0), ("longer", float("inf")):
    with zipfile.ZipFile("%s/%s.pt" % (sys.argv[1], name), "w") as z:
        z.writestr("archive/data.pkl", pickle.dumps(
            {"lr": lr, "text": (3 << 20) * "a" + name}, 2))
        z.writestr("archive/version", "3\n")
END
status "long texts" 1 \
    "$OPTIMFS" diff --rtol 0.5 "$scratch/long.pt" "$scratch/longer.pt"
is "are not printed" "$(cat "$scratch/out")" 'extra/lr: 1.0 -> Infinity
extra/text: the value differs'

# What cannot be read does not hide what differs.
cp -r "$scratch/new" "$scratch/lost"
rm "$scratch/lost/__3_0.distcp"
python3 "$TOP_SRCDIR/tests/support/payload.py" "$scratch/lost" \
    model/conv.weight 0 scale 1.5 >/dev/null
status "a checkpoint without a file" 3 "$OPTIMFS" diff "$four" "$scratch/lost"
like "has unreadable tensors, with the reason" "$(cat "$scratch/err")" \
    "*OFS140 $scratch/lost: model/*__3_0.distcp is missing*"
[ "$(grep -c 'OFS140' "$scratch/err")" -gt 50 ]
tap_result $? "all of which are named"
like "and a difference, too" "$(cat "$scratch/out")" \
    "model/conv.weight: 1 of 90 elements differ, *"
status "in numbers" 3 "$OPTIMFS" diff --summary --json "$four" "$scratch/lost"
like "they are a kind" "$(cat "$scratch/out")" '*"unreadable": ?*}'

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
