#!/bin/sh
# diff.t - optimfs diff: how much two checkpoints differ, and where
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"

requires python3
export OPTIMFS
data=$TOP_SRCDIR/tests/data/pytorch
four=$data/dcp_fsdp2_w4/ckpt
three=$data/dcp_fsdp2_w3/ckpt
path=model/layers.0.w1.weight

ok "diff of two layouts of one state exits with 0" "$OPTIMFS" diff "$four" "$three"
is "diff of two layouts of one state prints nothing" "$(cat "$scratch/out")" ''

# What has the same bytes in the same files need not be read.
cp -rl "$four" "$scratch/linked" 2>"$scratch/err" || cp -r "$four" "$scratch/linked"
cp -r "$scratch/linked" "$scratch/copied"
reads() { # CHECKPOINT: of its data files, by a comparison with linked
	strace -f -y -o "$scratch/trace" -e trace=pread64,preadv "$OPTIMFS" diff \
	    -o subtree=model "$scratch/linked" "$1" || return 1
	grep -c distcp "$scratch/trace"
}
cp -rl "$scratch/linked" "$scratch/links"
if command -v strace >/dev/null && ! sanitized; then
	is "a tensor of the same file is equal without being read" "$(reads "$scratch/links")" 0
	ok "one of another file is read" test "$(reads "$scratch/copied")" -gt 0
else
	skip 2 "no strace"
fi

# In a copy of the four-rank checkpoint one element is scaled by 1.5.
cp -r "$four" "$scratch/new"
chmod -R u+w "$scratch/new"
python3 "$TOP_SRCDIR/tests/support/payload.py" "$scratch/new" $path 2 \
    scale 1.5 >"$scratch/where"
status "diff exits with 1 for one changed element" 1 "$OPTIMFS" diff -v "$four" "$scratch/new"
said=$(cat "$scratch/out")
like "diff prints the number of changed elements and the first one" "$said" \
    "$path: 1 of 228 elements differ, from element 120 on; *"
like "diff prints the greatest absolute and relative difference" \
    "$said" '*; by up to 0.0545 at element 120 (relative 0.333); *'
like "diff prints file and rank of the element on both sides" "$said" \
    '*; a: __2_0.distcp rank 2, b: __2_0.distcp rank 2'
like "diff prints relative rms and cosine" "$said" \
    '*; relative rms 0.0*, cosine 0.9*'
is "without -v they are in a table" "$("$OPTIMFS" diff "$four" "$scratch/new")" \
    "    differ   nan    max abs    max rel        rms     cosine  path
         1     0     0.0545      0.333     0.0223   0.999753  $path"
status "diff of different layouts exits with 1" 1 "$OPTIMFS" diff -v "$three" "$scratch/new"
like "diff of different layouts names the rank on each side" "$(cat "$scratch/out")" \
    '*; a: __1_0.distcp rank 1, b: __2_0.distcp rank 2'
ok "diff --rtol 0.34 accepts a relative difference of 0.333" \
    "$OPTIMFS" diff --rtol 0.34 "$four" "$scratch/new"
ok "diff --atol 1 accepts a difference of 0.05" "$OPTIMFS" diff --atol 1 "$four" "$scratch/new"
status "diff --atol 1e-9 rejects a difference of 0.05" 1 \
    "$OPTIMFS" diff --atol 1e-9 "$four" "$scratch/new"
status "diff --json exits with 1 for one changed element" 1 \
    "$OPTIMFS" diff --json "$four" "$scratch/new"
ok "diff --json has the same numbers" python3 - "$scratch/out" <<'END'
import json, sys
d, end = [json.loads(line) for line in open(sys.argv[1])]
assert end["schema"] == "optimfs.diff.summary" and end["elements"] == 1, end
assert d["schema"] == "optimfs.diff" and d["kind"] == "elements", d
assert d["at"] == 120 and d["differ"] == 1 and d["elements"] == 228, d
assert abs(d["max_rel"] - 1 / 3) < 1e-6 and d["ulps"] > 0, d
assert d["a"]["rank"] == 2 and d["b"]["file"] == "__2_0.distcp", d
assert 0 < d["rms"] < 1 and 0.9 < d["cosine"] < 1, d
END

# Objects and tuples with a tensor inside, for which the tree has no file.
"$OPTIMFS" reshard -q --to dcp@1 "$four" "$scratch/two"
cp -r "$scratch/two" "$scratch/three"
for number in two:2 three:3; do
	python3 "$TOP_SRCDIR/tests/support/opaque.py" --number ${number#*:} \
	    "$scratch/${number%:*}/__0_0.distcp" "$scratch/items-${number%:*}"
done
status "diff exits with 1 for tensors inside an object and a tuple" 1 \
    "$OPTIMFS" diff "$scratch/two" "$scratch/three"
is "diff names the object and the tuple whose tensors differ" \
    "$(sed 's/: .*//' "$scratch/out")" "optim/param_groups/0/lr
optim/param_groups/0/weight_decay"
"$OPTIMFS" reshard -q --to dcp@2x2,zstd "$scratch/two" "$scratch/again"
ok "diff finds no difference between tensors inside an object and their copies" \
    "$OPTIMFS" diff "$scratch/two" "$scratch/again"

# One element becomes NaN.
cp -r "$four" "$scratch/nan"
chmod -R u+w "$scratch/nan"
python3 "$TOP_SRCDIR/tests/support/payload.py" "$scratch/nan" $path 3 nan 5 >/dev/null
status "diff exits with 1 for a NaN" 1 "$OPTIMFS" diff -v "$four" "$scratch/nan"
is "diff says that one side is NaN and prints no difference" "$(cat "$scratch/out")" \
    "$path: 1 of 228 elements differ, from element 185 on; 1 is NaN in $scratch/nan only; a: __3_0.distcp rank 3, b: __3_0.distcp rank 3"
status "diff --json exits with 1 for a NaN" 1 "$OPTIMFS" diff --json "$four" "$scratch/nan"
ok "diff --json counts the NaN and has null for the differences" python3 - "$scratch/out" <<'END'
import json, sys
d, end = [json.loads(line) for line in open(sys.argv[1])]
assert end["schema"] == "optimfs.diff.summary" and end["elements"] == 1, end
assert (d["nan_a"], d["nan_b"], d["inf_a"], d["inf_b"]) == (0, 1, 0, 0), d
assert d["max_abs"] is None and d["max_rel"] is None, d
assert d["cosine"] <= 1, d
END
python3 "$TOP_SRCDIR/tests/support/payload.py" "$scratch/nan" \
    model/layers.1.w1.weight 2 scale 1000 >/dev/null
for key in abs rel rms cosine; do
	status "diff --sort $key exits with 1 for a NaN" 1 \
	    "$OPTIMFS" diff -v --sort $key "$four" "$scratch/nan"
	like "diff --sort $key prints the NaN before a finite difference" \
	    "$(cat "$scratch/out")" "$path: *layers.1.w1.weight: *"
done
# Two steps of one run: each step and many values differ, too.
tags=$TOP_SRCDIR/tests/data/deepspeed/z3_ws2_two_tags/ckpt
for key in rms cosine differ; do
	"$OPTIMFS" diff -v --sort $key "$tags/global_step2" "$tags/global_step3" >"$scratch/out"
	is "diff --sort $key prints all tensors before the first value" \
	    "$(awk '/ -> / { v++ } / elements differ/ { n += v > 0; t++ } END { print (v > 0), (t > 0), n + 0 }' \
	        "$scratch/out")" '1 1 0'
done
is "without --sort what is no tensor is first, and what is equal is one line" \
    "$("$OPTIMFS" diff "$tags/global_step2" "$tags/global_step3" | head -n 5 | cut -c1-42)" \
    'extra/global_samples: 8 -> 12
extra/global_steps: 2 -> 3
extra/iteration: 2 -> 3
optim/state/*/step (15): 2.0 -> 3.0
    differ   nan    max abs    max rel    '
escapes() { # escapes VARIABLE=VALUE...: bytes that begin a colour
	script -qec "env -u NO_COLOR TERM=xterm $* '$OPTIMFS' diff '$four' '$scratch/nan'" /dev/null |
	    tr -dc '\033' | wc -c
}
if command -v script >/dev/null; then
	is "on a terminal the heading and the NaN have a colour" "$(escapes)" 4
	is "NO_COLOR takes it away" "$(escapes NO_COLOR=1)" 0
	is "so does a dumb terminal" "$(escapes TERM=dumb)" 0
	ok "diff on a terminal succeeds" \
	    script -qec "'$OPTIMFS' diff '$four' '$three'" "$scratch/tty"
	like "diff on a terminal says that the checkpoints are equal" \
	    "$(cat "$scratch/tty")" '*equal: * files compared*'
	script -qec "stty cols 100; '$OPTIMFS' diff -v '$four' '$scratch/nan'" /dev/null |
	    tr -d '\r' >"$scratch/tty"
	is "diff on a terminal prints no line longer than the terminal" \
	    "$(grep -c '.\{101\}' "$scratch/tty") $(grep -c '^[^ ]' "$scratch/tty")" '0 2' ||
	    diag "$(cat "$scratch/tty")"
fi

# No tolerance accepts an infinity.
cp -r "$four" "$scratch/inf"
chmod -R u+w "$scratch/inf"
python3 "$TOP_SRCDIR/tests/support/payload.py" "$scratch/inf" $path 3 inf 5 >/dev/null
status "diff --rtol exits with 1 for an infinity" 1 \
    "$OPTIMFS" diff -v --rtol 0.5 "$four" "$scratch/inf"
like "diff says that one element is infinite" "$(cat "$scratch/out")" '*; 1 is infinite in *'

# Values longer than one read, and an infinite value.
python3 - "$scratch" <<'END'
import pickle, sys, zipfile
for name, lr in ("long", 1.0), ("longer", float("inf")):
    with zipfile.ZipFile("%s/%s.pt" % (sys.argv[1], name), "w") as z:
        z.writestr("archive/data.pkl", pickle.dumps(
            {"lr": lr, "text": (3 << 20) * "a" + name}, 2))
        z.writestr("archive/version", "3\n")
END
status "diff of long texts exits with 1" 1 \
    "$OPTIMFS" diff --rtol 0.5 "$scratch/long.pt" "$scratch/longer.pt"
is "diff prints an infinite value, but no long texts" "$(cat "$scratch/out")" 'extra/lr: 1.0 -> Infinity
extra/text: the value differs'

# Integers that are equal as doubles.
python3 - "$scratch" <<'END'
import json, struct, sys
for name, x in ("even", 2**53), ("odd", 2**53 + 1):
    header = json.dumps(
        {"i": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]},
         "u": {"dtype": "U64", "shape": [1], "data_offsets": [8, 16]}}).encode()
    with open("%s/%s.safetensors" % (sys.argv[1], name), "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header +
                struct.pack("<qQ", -x, x + 2**63))
END
status "diff --atol 0.5 rejects a difference of 1 of large integers" 1 \
    "$OPTIMFS" diff -v --atol 0.5 "$scratch/even.safetensors" "$scratch/odd.safetensors"
is "diff prints that difference of int64 and uint64" \
    "$(grep -c 'by up to 1 ' "$scratch/out")" 2
ok "diff --atol 1 accepts a difference of 1 of large integers" \
    "$OPTIMFS" diff --atol 1 "$scratch/even.safetensors" "$scratch/odd.safetensors"
python3 - "$scratch" <<'END'
import pickle, sys, zipfile
for name, x in ("seed", 2**53), ("other", 2**53 + 1), ("nested", {"a": 1}):
    with zipfile.ZipFile("%s/%s.pt" % (sys.argv[1], name), "w") as z:
        z.writestr("archive/data.pkl", pickle.dumps({"seed": x}, 2))
        z.writestr("archive/version", "3\n")
END
status "diff --atol 0.5 rejects a difference of 1 of large integer values" 1 \
    "$OPTIMFS" diff --atol 0.5 "$scratch/seed.pt" "$scratch/other.pt"
for pair in "nested seed" "seed nested"; do
	set -- $pair
	status "diff of $1.pt and $2.pt, which have a directory and a file, exits with 1" 1 \
	    "$OPTIMFS" diff "$scratch/$1.pt" "$scratch/$2.pt"
	is "diff prints what $1.pt and $2.pt have in its place" "$(cat "$scratch/out")" \
	    "extra/seed: a file in one, a directory in the other
extra/seed/a: only in $scratch/nested.pt"
done

# A missing file does not hide differences in other files.
cp -r "$scratch/new" "$scratch/lost"
rm "$scratch/lost/__3_0.distcp"
python3 "$TOP_SRCDIR/tests/support/payload.py" "$scratch/lost" \
    model/conv.weight 0 scale 1.5 >/dev/null
status "diff with a missing file exits with 3" 3 "$OPTIMFS" diff "$four" "$scratch/lost"
like "diff names the missing file once, with its checkpoint and the number of tensors" \
    "$(cat "$scratch/err")" \
    "optimfs: OFS140 $scratch/lost: __3_0.distcp is missing: [1-9]? tensors and values cannot be read (*)"
[ "$("$OPTIMFS" diff --json "$four" "$scratch/lost" | grep -c OFS140)" -gt 50 ]
tap_result $? "diff --json names every unreadable tensor"
like "diff prints a difference besides unreadable tensors" "$(cat "$scratch/out")" \
    "*  path
         1 *  model/conv.weight"
status "diff --summary --json with a missing file exits with 3" 3 \
    "$OPTIMFS" diff --summary --json "$four" "$scratch/lost"
like "diff --summary --json counts unreadable tensors" "$(cat "$scratch/out")" '*"unreadable": ?*}'

# An index names tensors that are in no file.
"$OPTIMFS" reshard -q --to safetensors,hf,only=model "$four" "$scratch/hf"
cp -r "$scratch/hf" "$scratch/lost-hf"
sed -i '/"layers[.]0[.]/s/model-00001/model-00002/' "$scratch/lost-hf/model.safetensors.index.json"
python3 - "$scratch/lost-hf/model-00001-of-00001.safetensors" <<'END'
import sys
with open(sys.argv[1], "r+b") as f:
    text = f.read()
    f.seek(0)
    f.write(text.replace(b'"layers.0.', b'"layers.9.'))
END
status "diff with a missing file of an index exits with 3" 3 "$OPTIMFS" diff "$scratch/lost-hf" "$scratch/hf"
is "diff names the missing file of an index, not the types of its tensors" "$(cat "$scratch/err")" \
    "optimfs: OFS661 $scratch/lost-hf: model-00002-of-00001.safetensors is missing: 7 tensors and values cannot be read (optimfs diff --json lists them)"
is "fsck has one line for a missing file of an index" "$("$OPTIMFS" fsck "$scratch/lost-hf" | grep '^error')" \
    "error: OFS661 model-00002-of-00001.safetensors is missing: reading its tensors fails (EIO) (7 tensors and values)"

# Missing paths, and values of scalars.
"$OPTIMFS" reshard --to torch,only=optim "$four" "$scratch/optim" 2>/dev/null
status "diff --summary of a checkpoint without model exits with 1" 1 \
    "$OPTIMFS" diff --summary "$four" "$scratch/optim"
like "diff --summary counts the removed paths" "$(cat "$scratch/out")" 'compared *removed *'
"$OPTIMFS" mkfs --like "$four" --layout dcp@2 "$scratch/made" 2>/dev/null
status "diff of two optimizers of one model exits with 1" 1 "$OPTIMFS" diff --sort rel \
    "$data/dcp_opt_sgd_w2/ckpt" "$data/dcp_opt_amsgrad_w2/ckpt"
said=$(cat "$scratch/out")
like "diff prints both values of lr" "$said" '*optim/param_groups/0/lr: 0.* -> 0.*'
status "diff --sort with an unknown key exits with 2" 2 "$OPTIMFS" diff --sort size "$four" "$three"
status "diff --atol with a word exits with 2" 2 "$OPTIMFS" diff --atol x "$four" "$three"
# Squares that are too large for a number.
python3 - "$scratch" <<'END'
import json, struct, sys
for name, x in ("plus", 1e200), ("minus", -1e200):
    header = json.dumps({"x": {"dtype": "F64", "shape": [2],
                               "data_offsets": [0, 16]}}).encode()
    with open("%s/%s.safetensors" % (sys.argv[1], name), "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header +
                struct.pack("<dd", x, 1))
END
status "opposite numbers" 1 "$OPTIMFS" diff --json \
    "$scratch/plus.safetensors" "$scratch/minus.safetensors"
like "have no cosine that can be told" "$(cat "$scratch/out")" \
    '*"max_abs": 2e+200, "max_rel": 2.0, "rms": null, "cosine": null, *'

# Texts of equal bytes that are values of different types.
for value in '"1"' 1; do
	python3 - "$scratch/text-$value.pkl" "$value" <<'END'
import json, pickle, sys
pickle.dump({"x": json.loads(sys.argv[2]), "y": "s"}, open(sys.argv[1], "wb"), 2)
END
done
status "a string and a number with the same text" 1 "$OPTIMFS" diff \
    "$scratch/text-\"1\".pkl" "$scratch/text-1.pkl"
is "differ, and diff says how" "$(cat "$scratch/out")" \
    "extra/x: 1 is a string, and a scalar in $scratch/text-1.pkl"

done_testing
