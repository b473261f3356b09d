#!/bin/sh
# show.t - optimfs show: the numbers of tensors
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires python3

ck=$TOP_SRCDIR/tests/data/pytorch/dcp_fsdp2_w4/ckpt
state=optim/state/layers.0.wq.weight

show() {
	"$OPTIMFS" show "$@" 2>&1
}

cat >"$scratch/make.py" <<'END'
import json, struct, sys

def put(path, tensors, data):
    h = json.dumps({k: {"dtype": d, "shape": s, "data_offsets": [a, b]}
                    for k, (d, s, a, b) in tensors.items()}).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + data)

bf16 = struct.pack("<8H", 0x3dcd, 0x3f80, 0xbf80, 0x4049, 0x7fc0, 0xff80, 0, 0x8000)
e4m3 = bytes([0x38, 0xb8, 0x7f, 0x01, 0x7e, 0])
e5m2 = bytes([0x3c, 0x7c, 0xfc, 0x01])
row = struct.pack("<1200f", *range(1200))
data, t = b"", {}
for name, dtype, shape, raw in [
        ("bf16", "BF16", [2, 4], bf16), ("e4m3", "F8_E4M3", [6], e4m3),
        ("e5m2", "F8_E5M2", [4], e5m2), ("e8m0", "F8_E8M0", [3], b"\x7f\x80\xff"),
        ("tiny", "BF16", [2], b"\1\0\x80\x3f"),
        ("w[0]", "I16", [3], struct.pack("<3h", -1, 20, 300)),
        ("row", "F32", [1200], row), ("cut", "F32", [1200], row),
        ("empty", "F32", [0, 3], b""), ("flags", "BOOL", [2], b"\0\1")]:
    t[name] = (dtype, shape, len(data), len(data) + len(raw))
    data += raw
put("x.safetensors", t, data)
# 20 dimensions of 4: no dimension is long enough to be left out
put("deep.safetensors", {"w": ("U8", [4] * 20, 0, 4 ** 20)}, b"")
with open("deep.safetensors", "r+b") as f:
    f.truncate(f.seek(0, 2) + 4 ** 20)
# a terabyte that a few kilobytes of disk hold
put("huge.safetensors", {"w": ("F32", [1 << 19, 1 << 19], 0, 1 << 40)}, b"")
with open("huge.safetensors", "r+b") as f:
    f.truncate(f.seek(0, 2) + (1 << 40))
END
cd "$scratch" || exit 99
python3 make.py
x=x.safetensors


is "show prints numbers of bfloat16 with their shortest decimals" "$(show $x model/bf16)" \
    '[[ 0.1   1.   -1.    3.14]
 [  nan  -inf  0.   -0.  ]]'
is "of float8_e4m3fn" "$(show $x model/e4m3)" \
    '[ 1.0e+00 -1.0e+00      nan  2.0e-03  4.5e+02  0.0e+00]'
is "of float8_e5m2" "$(show $x model/e5m2)" '[1.e+00    inf   -inf 2.e-05]'
is "of float8_e8m0fnu" "$(show $x model/e8m0)" '[ 1.  2. nan]'
is "denormal ones" "$(show $x model/tiny)" '[9.e-41 1.e+00]'
is "booleans" "$(show $x model/flags)" '[False  True]'
is "nothing of an empty tensor" "$(show $x model/empty)" '[]'
is "a name with brackets is no slice" "$(show $x 'model/w[0]')" '[ -1  20 300]'
is "but may have one" "$(show $x 'model/w[0][-1]')" 300
is "a slice of two dimensions" "$(show $x 'model/bf16[::-1, 1:3]')" \
    '[[-inf   0.]
 [  1.  -1.]]'
is "a single element" "$(show $x 'model/bf16[0, -1]')" 3.14
is "more than 1000 elements are summarized" "$(show $x model/row)" \
    '[0.000e+00 1.000e+00 2.000e+00 ... 1.197e+03 1.198e+03 1.199e+03]'
is "several paths have headings, texts are printed as they are" \
    "$(show "$ck" "$state/exp_avg[0, :4]" $state/step optim/param_groups/0/betas)" \
    "$state/exp_avg[0, :4]: float32 12,12
[-0.05398779 -0.05591603  0.08428051 -0.08599966]

$state/step:
3.0

optim/param_groups/0/betas:
[0.9, 0.999]"
is "the numbers are those of cat" \
    "$(show --csv "$ck" "$state/exp_avg[:, 0:1]")" \
    "$("$OPTIMFS" cat "$ck" $state/exp_avg | python3 -c '
import struct, sys
for v in struct.iter_unpack("<12f", sys.stdin.buffer.read()):
    print(v[0])')"
is "--json has the exact numbers" "$(show --json $x model/bf16 'model/e4m3[:2]')" \
    '{"schema": "optimfs.show", "v": 1, "path": "model/bf16", "slice": null, "dtype": "bfloat16", "shape": [2, 4], "values": [[0.10009765625, 1.0, -1.0, 3.140625], ["NaN", "-Infinity", 0.0, -0.0]]}
{"schema": "optimfs.show", "v": 1, "path": "model/e4m3", "slice": "[:2]", "dtype": "float8_e4m3fn", "shape": [2], "values": [1.0, -1.0]}'
is "--json of no elements is an empty list" \
    "$(show --json $x model/empty | sed 's/.*"shape"/"shape"/')" \
    '"shape": [0, 3], "values": []}'
is "a tensor without dimensions is a number in JSON, a text a string" \
    "$(show --json "$ck" $state/step optim/param_groups/0/lr | sed 's/.*"dtype"/"dtype"/')" \
    '"dtype": "float32", "shape": [], "values": 3.0}
"dtype": null, "text": "0.001\u000a"}'
is "--csv has a row a line" "$(show --csv $x model/bf16)" \
    '0.10009765625,1.0,-1.0,3.140625
NaN,-Infinity,0.0,-0.0'
mkdir run
cp -r "$ck" run/step-7
cp -r "$ck" run/step-8
is "a name in a run is taken" "$(show run:latest "$state/exp_avg[0, 0]")" -0.05398779
is "so is a path in a run" "$(show run "steps/7/$state/exp_avg[0, 0]")" -0.05398779

# refuse NAME STATUS PATTERN ARGUMENT...
refuse() {
	refused=$1 want=$2 pattern=$3
	shift 3
	status "$refused" "$want" "$OPTIMFS" show "$@"
	like "$refused: it says so" "$(cat "$scratch/err")" "$pattern"
}
refuse "an index that is out of bounds is refused" 2 \
    'optimfs: OFS011 model/bf16\[2\]: index 2 is out of bounds for dimension 0, which has 2*' \
    $x 'model/bf16[2]'
refuse "more indexes than dimensions are refused" 2 \
    '*model/row\[1,2\]: 2 indexes for 1 dimensions*' $x 'model/row[1,2]'
refuse "a step of 0 is refused" 2 '*: a step of 0*' $x 'model/row[::0]'
for slice in '[]' '[a]' '[1:2:3:4]' '[1 2]' '[1,]' '[..., ...]' '[1:x]' '[--1]'; do
	status "the slice $slice is refused" 2 "$OPTIMFS" show $x "model/bf16$slice"
done
is "a bound beyond 64 bits is the end" \
    "$(show $x 'model/w[0][-99999999999999999999:99999999999999999999]')" '[ -1  20 300]'
is "so is a step" "$(show $x 'model/w[0][::99999999999999999999]')" '[-1]'
is "and a negative one" "$(show $x 'model/w[0][::-99999999999999999999]')" '[300]'
refuse "a slice of a text is refused" 2 '*/step: is text, which has no elements*' \
    "$ck" "$state/step[0]"
refuse "a directory is refused" 3 '*model: is a directory: optimfs ls*' $x model
refuse "a .npy is refused" 2 '*show the tensor itself*' \
    "$ck" .optimfs/npy/$state/exp_avg.npy
refuse "both --json and --csv are refused" 2 '*--csv or --json, not both*' --json --csv $x model/row
refuse "a path that is not there is an error" 3 '*model/none: no such name*' $x 'model/none[0]'

# What is claimed is not allocated: a gigabyte of address space is enough.
show() {
	(
		sanitized || ulimit -v 1000000
		exec "$OPTIMFS" show "$@" 2>&1
	)
}
refuse "a tensor of 20 dimensions without edges is refused" 2 \
    '*model/w: too many dimensions*' deep.safetensors model/w
is "a part of it is shown" \
    "$(show deep.safetensors 'model/w[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,...]' | head -n 1)" \
    '[[0 0 0 0]'
is "of a terabyte only the corners are read" \
    "$(show huge.safetensors model/w | head -n 2)" \
    '[[0. 0. 0. ... 0. 0. 0.]
 [0. 0. 0. ... 0. 0. 0.]'
is "and an element far away" "$(show huge.safetensors 'model/w[-1, -1]')" 0.0

cp -r "$ck" lost
rm lost/__1_0.distcp
status "show of a lost part fails" 3 "$OPTIMFS" show lost $state/exp_avg
"$OPTIMFS" cat lost $state/exp_avg 2>cat.err >/dev/null
is "with the error of cat" "$(cat "$scratch/err")" "$(cat cat.err)"
is "and prints no numbers" "$(cat "$scratch/out")" ''
status "--json of a lost part fails" 3 "$OPTIMFS" show --json lost $state/exp_avg
is "and each line is an object" \
    "$(python3 -c 'import json, sys
for line in open(sys.argv[1]):
    d = json.loads(line)
    print(d["schema"], "error" in d, "values" in d)' "$scratch/out")" \
    'optimfs.show True False
optimfs.error False False'
is "rows that are stored elsewhere are shown" \
    "$(show lost "$state/exp_avg[0, :2]")" '[-0.05398779 -0.05591603]'
for word in print head; do
	"$OPTIMFS" $word $x 2>err
	like "the unknown command $word suggests show" "$(cat err)" \
	    "*unknown command '$word'; did you mean 'show'?*"
done
done_testing
