#!/bin/sh
# combined.t - averages and differences of the checkpoints of a run
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires mount
requires python3 setfattr

data=$TOP_SRCDIR/tests/data/pytorch
run=$(point run)
mnt=$(point mnt)

# change ROOT SEED: other elements in all tensors of a mount, another step and
# another learning rate.
cat >"$scratch/change" <<'END'
import array, os, random, sys
root, seed = sys.argv[1], int(sys.argv[2])
r = random.Random(seed)
for d, _, names in os.walk(root):
    for p in (os.path.join(d, n) for n in names):
        try:
            shape = os.getxattr(p, "user.optimfs.shape")
        except OSError:
            continue
        if shape:
            x = array.array("f", open(p, "rb").read())
            for i in range(len(x)):
                x[i] += r.gauss(0, .01)
            with open(p, "r+b") as f:
                f.write(x.tobytes())
        elif p.endswith("/step"):
            open(p, "w").write(f"{seed}000.0\n")
open(root + "/optim/param_groups/0/lr", "w").write(f"{.001 / seed}\n")
END
# compare MOUNT NAME WEIGHT:STEP... [/DIVISOR]: tensors with dimensions of NAME
# are the weighted sums; prints those that are not, and their number.
cat >"$scratch/compare" <<'END'
import array, os, struct, sys
mnt, name, terms = sys.argv[1], sys.argv[2], sys.argv[3:]
divisor = float(terms.pop()[1:]) if terms[-1][0] == "/" else 1.0
terms = [(float(t.split(":")[0]), t.split(":")[1]) for t in terms]
n = 0
for d, _, names in os.walk(f"{mnt}/{name}"):
    for p in (os.path.join(d, x) for x in names):
        try:
            shape = os.getxattr(p, "user.optimfs.shape")
        except OSError:
            continue
        if not shape:
            continue
        rel = os.path.relpath(p, f"{mnt}/{name}")
        xs = [(w, array.array("f", open(f"{mnt}/steps/{s}/{rel}", "rb").read())) for w, s in terms]
        want = b""
        for i in range(len(xs[0][1])):
            v = xs[0][0] * xs[0][1][i]
            for w, x in xs[1:]:
                v += w * x[i]
            want += struct.pack("<f", v / divisor)
        n += 1
        if open(p, "rb").read() != want:
            print(rel)
print(n)
END

for s in 1 2 3 4; do
	cp -r "$data/dcp_fsdp2_w$s/ckpt" "$run/step-${s}000"
	"$OPTIMFS" mount -o rw "$run/step-${s}000" "$mnt" &&
	    python3 "$scratch/change" "$mnt" $s
	"$OPTIMFS" umount "$mnt" || bail_out "step $s"
done

ok "a run is mounted" "$OPTIMFS" mount "$run" "$mnt"
equals() {
	name=$1
	shift
	is "$name is the weighted sum of its steps" \
	    "$(python3 "$scratch/compare" "$mnt" "$name" "$@")" 82
}
equals avg/last3 1:2000 1:3000 1:4000 /3
equals avg/1000,latest 1:1000 1:4000 /2
equals avg/1500-3500 1:2000 1:3000 /2
equals delta/1000..4000 -1:1000 1:4000
equals delta/4000..1000 -1:4000 1:1000
equals lerp/4000,1000@0.25 .75:4000 .25:1000
equals ema/0.5@1000-3000 .25:1000 .25:2000 .5:3000

# What is not combined.
is "the step of an average is that of the newest" \
    "$(cat "$mnt/avg/last3/optim/state/norm.bias/step")" 4000.0
is "the step of an interpolation, too" \
    "$(cat "$mnt/lerp/4000,1000@0.5/optim/state/norm.bias/step")" 4000.0
is "a value that differs is that of the newest" \
    "$(cat "$mnt/avg/first,3000/optim/param_groups/0/lr")" \
    "$(cat "$mnt/steps/3000/optim/param_groups/0/lr")"
is "with a warning" "$(cat "$mnt/avg/first,3000/.optimfs/warnings")" \
    "OFS864 optim/param_groups/0/lr differs between the steps: it is that of step 3000"
is "the difference of a value says both" \
    "$(cat "$mnt/delta/1000..2000/optim/param_groups/0/lr")" '0.001 -> 0.0005'
is "the difference of a value that stays is that value" \
    "$(cat "$mnt/delta/1000..2000/optim/param_groups/0/eps")" 1e-08
is "the difference of steps is a number" \
    "$(cat "$mnt/delta/1000..3000/optim/state/norm.bias/step")" 2000.0
ok "the average of one step is that step" \
    "$OPTIMFS" diff "$run:avg/3000" "$run:3000"

# They are checkpoints: views, verbs, statistics, files of .optimfs.
ok "a view of an average is copied" \
    cp -r "$mnt/avg/last3/.optimfs/view/dcp@3" "$scratch/averaged"
ok "it is the average" "$OPTIMFS" diff "$scratch/averaged" "$run:avg/last3"
status "it has no files of its own" 3 "$OPTIMFS" ls "$run:avg/last3" .optimfs/view/source
like "the view of them says so" "$(cat "$scratch/err")" "*OFS771*computed from others*"
ok "reshard writes one without a mount" \
    "$OPTIMFS" reshard -q --to torch "$run:avg/last3" "$scratch/torch"
ok "it is the same" "$OPTIMFS" diff "$scratch/torch" "$scratch/averaged"
status "an average and a step differ" 1 "$OPTIMFS" diff "$run:avg/last3" "$run:4000"
is "statistics are those of the computed elements" \
    "$("$OPTIMFS" stat --json "$run:avg/last3" model/norm.bias)" \
    "$("$OPTIMFS" stat --json "$scratch/averaged" model/norm.bias)"
is "also in the mount" "$(cat "$mnt/avg/last3/.optimfs/stat/model/norm.bias")" \
    "$(cat "$mnt/avg/2000,3000,4000/.optimfs/stat/model/norm.bias")"
ok "every byte can be read" "$OPTIMFS" fsck -q --data "$run:avg/last3"
like "info says what it is" "$("$OPTIMFS" info "$run:avg/last3")" \
    '*computed    average of steps 2000, 3000 and 4000*'
like "the layout of a tensor, too" \
    "$(cat "$mnt/avg/last3/.optimfs/layout/model/norm.bias")" '*"encoding": "derived"*'
is "a path in it is one of a checkpoint" \
    "$("$OPTIMFS" cat "$run:avg/last3/optim/state/norm.bias" step)" 4000.0
one=$(point one)
ok "one is mounted alone" "$OPTIMFS" mount "$run:delta/1000..4000" "$one"
ok "it shows the same" diff -r "$one/optim" "$mnt/delta/1000..4000/optim"
ok "a command finds the checkpoint of that mount" \
    "$OPTIMFS" info "$one"
"$OPTIMFS" umount "$one"

# Names.
refused() {
	status "$1" "$2" "$OPTIMFS" $3
	like "$1: the error says why" "$(cat "$scratch/err")" "optimfs: $4*"
}
refused "a step that is not there" 3 "ls $run:avg/1000,7" "OFS851 $run: no step 7"
refused "a range without steps" 3 "ls $run:avg/1-9" "OFS851 $run: no step from 1 to 9"
refused "more steps than there are" 3 "ls $run:avg/last5" "OFS851 $run: last5: steps/ has 4"
refused "a step twice" 3 "ls $run:avg/1000,last4" "OFS863 step 1000 is selected twice"
refused "a word that selects nothing" 3 "ls $run:avg/lastt" "OFS863 'lastt' selects no"
refused "a decay above 1" 3 "ls $run:ema/2@last2" "OFS863 ema/2@last2: give"
refused "an average without decay" 3 "ls $run:ema/last2" "OFS863 ema/last2: give"
refused "a difference of one step" 3 "ls $run:delta/1000" "OFS863 delta/1000: give"
refused "a difference of many" 3 "ls $run:delta/1000..last2" "OFS863 1000 and last2: each"
refused "an interpolation without a number" 3 "ls $run:lerp/1000,2000@x" \
    "OFS863 lerp/1000,2000@x: give"
refused "a mount for writing" 3 "mount -o rw $run:avg/last2 $one" "OFS854 $run:avg/last2 is computed"
is "a name that means nothing is not there" \
    "$(ls "$mnt/avg/nothing" 2>&1 | sed 's/.*: //')" 'No such file or directory'

# The steps change.
cp -r "$run/step-1000" "$scratch/new"
mv "$scratch/new" "$run/step-5000"
eventually [ -e "$mnt/steps/5000" ]
equals avg/last2 1:4000 1:5000 /2
"$OPTIMFS" umount "$mnt"

# Steps that do not have the same tensors, of many types.
cat >"$scratch/make" <<'END'
import json, struct, sys
def put(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, fmt, values) in tensors.items():
        b = struct.pack(f"<{len(values)}{fmt}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(b)]}
        data += b
    h = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(h)) + h + data)
d = sys.argv[1]
put(d + "/step-1.safetensors", {
    "i": ("I64", [3], "q", [2**62, -5, 7]), "u": ("U8", [3], "B", [250, 0, 9]), "b": ("BOOL", [2], "B", [1, 0]),
    "d": ("F64", [2], "d", [.1, 1e300]), "f": ("F32", [2], "f", [1, 2]), "h": ("BF16", [2], "H", [0x3f80, 0x4000]),
    "c": ("C64", [1], "f", [1, 2]), "shape": ("F32", [2], "f", [1, 2]), "kind": ("F32", [1], "f", [1]),
    "first": ("F32", [1], "f", [5]), "s": ("F32", [], "f", [.5])})
put(d + "/step-2.safetensors", {
    "i": ("I64", [3], "q", [-2**62, 5, 9]), "u": ("U8", [3], "B", [5, 0, 10]), "b": ("BOOL", [2], "B", [0, 0]),
    "d": ("F64", [2], "d", [.3, 1e300]), "f": ("F64", [2], "d", [.1, 2]), "h": ("BF16", [2], "H", [0x3f81, 0x4000]),
    "c": ("C64", [1], "f", [3, 5]), "shape": ("F32", [3], "f", [1, 2, 3]), "kind": ("I32", [1], "i", [1]),
    "second": ("F32", [1], "f", [5]), "s": ("F32", [], "f", [.25])})
END
mixed=$(point mixed)
python3 "$scratch/make" "$mixed"
numbers() { # NAME FORMAT PATH
	"$OPTIMFS" cat "$mixed:$1" "model/$3" | python3 -c 'import struct, sys
d = sys.stdin.buffer.read()
n = struct.calcsize("<" + sys.argv[1])
print(*(x for i in range(0, len(d), n) for x in struct.unpack("<" + sys.argv[1], d[i:i + n])))' "$2"
}
is "differences of int64 wrap" "$(numbers delta/1..2 q i)" '-9223372036854775808 10 2'
is "those of uint8 are int64" "$(numbers delta/1..2 q u)" '-245 0 1'
is "those of booleans, too" "$(numbers delta/1..2 q b)" '-1 0'
is "those of float64 are float64" "$(numbers delta/1..2 d d)" '0.19999999999999998 0.0'
is "and those of float32 and float64" "$(numbers delta/1..2 d f)" '-0.9 0.0'
is "those of bfloat16 are float32" "$(numbers delta/1..2 f h)" '0.0078125 0.0'
is "those of complex numbers are complex" "$(numbers delta/1..2 f c)" '2.0 3.0'
is "those of a number are one" "$("$OPTIMFS" cat "$mixed:delta/1..2" model/s)" -0.25
is "a mean of float64" "$(numbers avg/last2 d d)" '0.2 1e+300'
is "a mean has the type of the newest" "$(numbers avg/last2 H h)" '16256 16384'
is "integers are those of the newest" "$(numbers avg/last2 B u)" '5 0 10'
is "a parameter without dimensions is averaged" "$("$OPTIMFS" cat "$mixed:avg/last2" model/s)" 0.375
is "what the newest does not have is left out" \
    "$("$OPTIMFS" cat "$mixed:avg/last2" .optimfs/missing)" \
    'OFS862 model/first: step 1 has it, step 2 has not: it is left out'
unread() { # NAME PATH WHY
	status "$1 of $2 cannot be read" 3 "$OPTIMFS" cat "$mixed:$1" "model/$2"
	like "$1 of $2: the error says why" "$(cat "$scratch/err")" "*OFS861 model/$2: $3*"
}
unread avg/last2 second 'step 1 has no such tensor'
unread avg/last2 shape 'its shape is 2 at step 1, 3 at step 2'
unread delta/1..2 kind 'int32 at step 2 cannot be combined with float32'
truncate -s -1 "$mixed/step-1.safetensors"
status "an average of a damaged step cannot be read" 3 "$OPTIMFS" cat "$mixed:avg/last2" model/f
ok "average writes the mean of the last ones" "$OPTIMFS" average -q --to dcp@2 \
    "$run" last2 "$scratch/mean"
ok "which is avg/" "$OPTIMFS" diff "$scratch/mean" "$run:avg/last2"
like "it says what it wrote" "$("$OPTIMFS" average -q --json --to safetensors \
    "$run" latest "$scratch/mean-2")" '*safetensors*'
status "average of no step" 3 "$OPTIMFS" average -q --to dcp@2 "$run" 7 \
    "$scratch/none"
like "which is named" "$(cat "$scratch/err")" '*no step 7*'
status "average to no layout" 2 "$OPTIMFS" average "$run" last2 "$scratch/none"
status "average of a checkpoint" 2 "$OPTIMFS" average -q --to dcp@2 \
    "$scratch/mean" last2 "$scratch/none"
not_ok "nothing is left of them" test -e "$scratch/none"
done_testing
