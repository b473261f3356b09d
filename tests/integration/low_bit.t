#!/bin/sh
# low_bit.t - tensors in 8 and 4 bits as float32
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
requires mount
requires python3

ck=$(point ck)
mnt=$(point mnt)

# Writes model.safetensors with each form, and DIR/NAME, the values that each
# tensor has, computed from the rules of the formats.
cat >"$scratch/make" <<'END'
import json, math, os, random, struct, sys
ck, want, seed = sys.argv[1:4]
r = random.Random(int(seed))
tensors = {}

def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]

def e4m3(c):
    sign, e, m = -1 if c & 128 else 1, c >> 3 & 15, c & 7
    return sign * (m * 2**-9 if e == 0 else (8 + m) * 2.0**(e - 10))

E2M1 = [0., .5, 1., 1.5, 2., 3., 4., 6.]
E2M1 += [-x for x in E2M1]

def floats(n):
    return [f32(r.uniform(.001, 2)) for _ in range(n)]

def fp8(n):
    return [c for c in (r.randrange(256) for _ in range(2 * n + 64)) if c & 127 != 127][:n]

def put(name, dtype, shape, fmt, values):
    tensors[name] = (dtype, shape, struct.pack(f"<{len(values)}{fmt}", *values))

def expect(name, values):
    open(f"{want}/{name}", "wb").write(struct.pack(f"<{len(values)}f", *values))

def nibbles(codes):
    return [a | b << 4 for a, b in zip(codes[::2], codes[1::2])]

# FP8 in blocks of 128 x 128, partial at the edges
rows, cols = 130, 300
c, s = fp8(rows * cols), floats(2 * 3)
put("block.weight", "F8_E4M3", [rows, cols], "B", c)
put("block.weight_scale_inv", "F32", [2, 3], "f", s)
expect("block.weight", [f32(e4m3(c[i * cols + j]) * s[i // 128 * 3 + j // 128]) for i in range(rows) for j in range(cols)])
# for each row, in bfloat16, and for all
c, s = fp8(12 * 10), [0x3f00 + r.randrange(256) for _ in range(12)]
put("row.weight", "F8_E4M3", [12, 10], "B", c)
put("row.weight_scale", "BF16", [12, 1], "H", s)
expect("row.weight", [f32(e4m3(c[i]) * struct.unpack("<f", struct.pack("<I", s[i // 10] << 16))[0]) for i in range(120)])
c, s = fp8(60), floats(1)
put("all.weight", "F8_E4M3", [3, 4, 5], "B", c)
put("all.weight_scale", "F32", [], "f", s)
expect("all.weight", [f32(e4m3(x) * s[0]) for x in c])
# MXFP4, in two forms
c, s = [r.randrange(16) for _ in range(2 * 3 * 64)], [r.randrange(100, 140) for _ in range(2 * 3 * 2)]
put("experts_blocks", "U8", [2, 3, 2, 16], "B", nibbles(c))
put("experts_scales", "U8", [2, 3, 2], "B", s)
expect("experts", [E2M1[x] * 2.0**(s[i // 32] - 127) for i, x in enumerate(c)])
c, s = [r.randrange(16) for _ in range(5 * 64)], [r.randrange(100, 140) for _ in range(5 * 2)]
put("mx.weight_packed", "U8", [5, 32], "B", nibbles(c))
put("mx.weight_scale", "U8", [5, 2], "B", s)
expect("mx.weight", [E2M1[x] * 2.0**(s[i // 32] - 127) for i, x in enumerate(c)])
# NVFP4, in two forms
c, s, g = [r.randrange(16) for _ in range(7 * 32)], fp8(7 * 2), floats(1)
put("nv.weight", "U8", [7, 16], "B", nibbles(c))
put("nv.weight_scale", "F8_E4M3", [7, 2], "B", s)
put("nv.weight_scale_2", "F32", [], "f", g)
put("nv.input_scale", "F32", [], "f", floats(1))
expect("nv.weight", [f32(E2M1[x] * f32(e4m3(s[i // 16]) * g[0])) for i, x in enumerate(c)])
c, s, g = [r.randrange(16) for _ in range(7 * 32)], fp8(7 * 2), floats(1)
put("ct.weight_packed", "U8", [7, 16], "B", nibbles(c))
put("ct.weight_scale", "F8_E4M3", [7, 2], "B", s)
put("ct.weight_global_scale", "F32", [1], "f", g)
expect("ct.weight", [f32(E2M1[x] * f32(e4m3(s[i // 16]) / g[0])) for i, x in enumerate(c)])
# a moment of an 8-bit optimizer of bitsandbytes, in blocks of 256
c, s, q = [r.randrange(256) for _ in range(2 * 3000)], floats(24), [f32(r.uniform(-1, 1)) for _ in range(256)]
put("state1", "U8", [2, 3000], "B", c)
put("absmax1", "F32", [24], "f", s)
put("qmap1", "F32", [256], "f", q)
expect("state1", [f32(q[x] * s[i // 256]) for i, x in enumerate(c)])
# AdEMAMix: two moments with scales of their own
c, s, q = [r.randrange(256) for _ in range(2 * 700)], floats(6), [f32(r.uniform(-1, 1)) for _ in range(256)]
put("state2", "U8", [2, 7, 100], "B", c)
put("absmax2", "F32", [2, 3], "f", s)
put("qmap2", "F32", [256], "f", q)
expect("state2", [f32(q[x] * s[i // 700 * 3 + i % 700 // 256]) for i, x in enumerate(c)])
# bitsandbytes: a weight in 4 bits, whose scales are float32; one whose scales are
# codes, too, with an odd number of elements; one that is stored as another type
def state(kind, **more):
    return list(json.dumps(dict(quant_type=kind, blocksize=64, dtype="bfloat16", **more)).encode())

def first_high(codes):
    return [a << 4 | b for a, b in zip(codes[::2], codes[1::2])]

def bnb(name, kind, shape, nested, storage=None, **wrong):
    n = math.prod(shape)
    c, table = [r.randrange(16) for _ in range(n + n % 2)], [f32(r.uniform(-1, 1)) for _ in range(16)]
    packed = first_high(c)
    if storage:
        size, dtype, fmt = storage
        packed = struct.unpack(f"<{len(packed) // size}{fmt}", bytes(packed))
        put(name, dtype, [len(packed), 1], fmt, packed)
    else:
        put(name, "U8", [len(packed), 1], "B", packed)
    put(name + ".quant_map", "F32", [16], "f", table)
    blocks = -(-n // 64)
    more = {}
    if nested:
        s, q, a = [r.randrange(256) for _ in range(blocks)], floats(256), floats(-(-blocks // 256))
        more = dict(nested_blocksize=256, nested_dtype="float32", nested_offset=f32(0.051))
        put(name + ".absmax", "U8", [blocks], "B", s)
        put(name + ".nested_absmax", "F32", [len(a)], "f", a)
        put(name + ".nested_quant_map", "F32", [256], "f", q)
        scale = [f32(f32(q[x] * a[i // 256]) + f32(0.051)) for i, x in enumerate(s)]
    else:
        scale = floats(blocks)
        put(name + ".absmax", "F32", [blocks], "f", scale)
    text = state(kind, shape=shape, **more)
    text = wrong.get("text", text)
    put(name + ".quant_state.bitsandbytes__" + kind, "U8", [len(text)], "B", text)
    if not wrong:
        expect(name, [f32(table[x] * scale[i // 64]) for i, x in enumerate(c[:n])])

bnb("fp.weight", "fp4", [30, 32], False)
bnb("nf.weight", "nf4", [1111, 33], True)
bnb("stored.weight", "nf4", [100, 64], True, (2, "BF16", "H"))
# in 8 bits, with the largest number of each row
c, s = [r.randrange(-127, 128) for _ in range(7 * 20)], floats(7)
put("int8.weight", "I8", [7, 20], "b", c)
put("int8.SCB", "F32", [7], "f", s)
put("int8.weight_format", "U8", [], "B", [0])
expect("int8.weight", [f32(f32(x * s[i // 20]) * f32(1 / 127)) for i, x in enumerate(c)])
if len(sys.argv) > 4:
    bnb("bad.weight", "nf4", [4, 32], False, text=list(sys.argv[4].encode()))
# others
put("plain.weight", "BF16", [3], "H", [0x3f80, 0xc000, 0x7fc0])
put("double", "F64", [2], "d", [.1, 2])
put("count", "I32", [2], "i", [3, -4])
# nearly: no form
put("odd.weight", "F8_E4M3", [4, 4], "B", fp8(16))
put("odd.weight_scale_inv", "F32", [2, 2], "f", floats(4))
put("taken.weight_packed", "U8", [5, 32], "B", [0] * 160)
put("taken.weight_scale", "U8", [5, 2], "B", [127] * 10)
put("taken.weight", "F32", [2], "f", [1, 2])

header, data = {}, b""
for name, (dtype, shape, b) in tensors.items():
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(b)]}
    data += b
h = json.dumps(header).encode()
open(f"{ck}/model.safetensors", "wb").write(struct.pack("<Q", len(h)) + h + data)
END
mkdir "$scratch/want"
python3 "$scratch/make" "$ck" "$scratch/want" 4 || bail_out "make"

ok "it is mounted" "$OPTIMFS" mount "$ck" "$mnt"
f32=$mnt/.optimfs/f32/model
for name in block.weight row.weight all.weight experts mx.weight nv.weight ct.weight state1 state2 \
    fp.weight nf.weight stored.weight int8.weight; do
	ok "$name is the product of codes and scales" cmp "$scratch/want/$name" "$f32/$name"
done
is "names are those of the whole, without scales" "$(ls "$f32" | tr '\n' ' ')" \
    "all.weight block.weight count ct.weight double experts fp.weight int8.weight mx.weight \
nf.weight nv.weight odd.weight odd.weight_scale_inv plain.weight row.weight state1 state2 stored.weight \
taken.weight taken.weight_packed taken.weight_scale "
attr() {
	getfattr --absolute-names --only-values -n "user.optimfs.$1" "$2"
}
if command -v getfattr >/dev/null; then
	is "attributes say what is shown" \
	    "$(attr dtype "$f32/experts") $(attr shape "$f32/experts")" 'float32 2,3,64'
	is "of a short type, too" \
	    "$(attr dtype "$f32/plain.weight") $(attr shape "$f32/plain.weight")" 'float32 3'
else
	skip 2 "no getfattr"
fi
is "bfloat16 is widened" "$(od -An -tx4 "$f32/plain.weight")" ' 3f800000 c0000000 7fc00000'
is "float64 is rounded" "$(od -An -tx4 "$f32/double")" ' 3dcccccd 40000000'
is "integers stay" "$(od -An -td4 "$f32/count" | tr -s ' ')" ' 3 -4'
is "the raw tensors are in the tree" \
    "$(ls "$mnt/model" | grep -c .)" 50
is "any range can be read" \
    "$(tail -c +30002 "$f32/block.weight" | head -c 70000 | cksum)" \
    "$(tail -c +30002 "$scratch/want/block.weight" | head -c 70000 | cksum)"
not_ok "a part has no file of its own" cat "$f32/mx.weight_scale"
"$OPTIMFS" umount "$mnt"
ok "it is the same without a mount" sh -c \
    "\"$OPTIMFS\" cat '$ck' .optimfs/f32/model/experts | cmp - '$scratch/want/experts'"

# Conversion.
ok "reshard unpacks" \
    "$OPTIMFS" reshard -q --to safetensors,hf,dequantize "$ck" "$scratch/float"
for name in block.weight experts ct.weight; do
	ok "$name is float32 there" sh -c \
	    "\"$OPTIMFS\" cat '$scratch/float' model/$name | cmp - '$scratch/want/$name'"
done
is "what was not packed is as it was" \
    "$("$OPTIMFS" ls "$scratch/float" model | tr '\n' ' ')" \
    "all.weight block.weight count ct.weight double experts fp.weight int8.weight mx.weight \
nf.weight nv.input_scale nv.weight odd.weight odd.weight_scale_inv plain.weight row.weight \
state1 state2 stored.weight taken.weight taken.weight_packed taken.weight_scale "
ok "also to another format and type" \
    "$OPTIMFS" reshard -q --to dcp@2,dequantize,dtype=bf16 "$ck" "$scratch/bf16"
like "with that type" "$("$OPTIMFS" ls -l "$scratch/bf16" model/experts)" 'bfloat16 *'
"$OPTIMFS" mount -o rw,scratch "$ck" "$mnt"
is "in a writable mount names are those of the whole, too" \
    "$(ls "$f32" | grep ct) $(cksum <"$f32/ct.weight")" \
    "ct.weight $(cksum <"$scratch/want/ct.weight")"
"$OPTIMFS" umount "$mnt"
cp -r "$ck" "$scratch/edited"
"$OPTIMFS" mount -o rw "$scratch/edited" "$mnt"
printf '\377' | dd of="$mnt/model/ct.weight_packed" conv=notrunc 2>/dev/null
ok "codes are written" "$OPTIMFS" umount "$mnt"
is "and the number is another" \
    "$("$OPTIMFS" cat "$scratch/edited" .optimfs/f32/model/ct.weight | cmp - "$scratch/want/ct.weight" |
    sed 's/.*differ/differ/')" 'differ: char 1, line 1'

# A weight of bitsandbytes whose description does not fit it.
odd() { # NAME TEXT WORDS
	mkdir "$scratch/odd.$1" "$scratch/none"
	python3 "$scratch/make" "$scratch/odd.$1" "$scratch/none" 4 "$2" || bail_out "make"
	rm -r "$scratch/none"
	like "$1: a warning says why it is shown as it is stored" \
	    "$("$OPTIMFS" cat "$scratch/odd.$1" .optimfs/warnings)" \
	    "*OFS867*bad.weight.quant_state.bitsandbytes__nf4: the weight is shown as it is stored*$3*"
	is "$1: and so it is" "$("$OPTIMFS" ls -l "$scratch/odd.$1" .optimfs/f32/model |
	    sed -n 's/^\([^ ]*\) *\([^ ]*\).* bad.weight$/\1 \2/p')" "uint8 64,1"
}
odd text 'nothing' 'expected a value'
odd block '{"blocksize": 0, "shape": [4, 32]}' 'not a size'
odd none '{"shape": [4, 32]}' 'no blocksize'
odd shape '{"blocksize": 64, "shape": [4, 33]}' 'not those of the other tensors'
odd dims '{"blocksize": 64, "shape": [4294967296, 4294967296, 4294967296, 4]}' 'not those of'
odd negative '{"blocksize": 64, "shape": [-4, -32]}' 'not a shape'
odd nested '{"blocksize": 64, "shape": [4, 32], "nested_blocksize": 256, "nested_offset": 0}' \
    'not those of the other tensors'
odd offset '{"blocksize": 64, "shape": [4, 32], "nested_offset": 1e999}' 'not finite'

cp -r "$ck" "$scratch/gpu"
python3 - "$scratch/gpu/model.safetensors" <<'END'
import json, struct, sys
b = bytearray(open(sys.argv[1], "rb").read())
n, = struct.unpack("<Q", b[:8])
b[8 + n + json.loads(b[8:8 + n])["int8.weight_format"]["data_offsets"][0]] = 2
open(sys.argv[1], "wb").write(b)
END
like "a weight in the order of a GPU is not unpacked" \
    "$("$OPTIMFS" cat "$scratch/gpu" .optimfs/warnings)" \
    "*OFS867 int8.weight_format: *in an order for certain GPUs*"
like "info counts what is in few bits" "$("$OPTIMFS" info "$ck")" \
    "*few bits    13 tensors of codes and scales, * elements; as float32 in .optimfs/f32, *"

# Optimizers of torchao.
ao=$TOP_SRCDIR/tests/data/torchao
torchao() { # CHECKPOINT PATH SHA256
	is "$1: $2 is what torchao's dequantize() gives" \
	    "$("$OPTIMFS" cat "$ao/$1" ".optimfs/f32/optim/state/$2" | sha256sum)" "$3  -"
}
torchao 4bit.pt 0/exp_avg 616dd1dd3739cca5e4d1aebbcdd24951732874c70ae51e68a929325aa4a56043
torchao 4bit.pt 0/exp_avg_sq 6f0b0bc17668feb3f48079fd3fe2178141114d6f759b9e63e58319bcf3c9299b
torchao fp8.pt 0/exp_avg 57ccc276fda87d13d8a072dcecf259f459e78f35c7e9db446c2af10294856936
torchao fp8.pt 0/exp_avg_sq 8341c7c2a738020e879fbe88bde85834b8053ed595813a1b2bb0c38968c55e6b
torchao 8bit_fsdp2_w2 0.weight/exp_avg 7d16eac32908ed1f817dccad8cbcfc01b661b2ef84fb0c24c517abeff3eb89b0
torchao 8bit_fsdp2_w2 0.weight/exp_avg_sq f1ba4c58a2343812b5ed205f841a99e79b173d8ada9430bb27d59fcac4c245a3
torchao 8bit_fsdp2_w2 1.weight/exp_avg 0e13e43f85ae526fef6ce14ee01c9135bd1402f7ffcb2c0dfc102d3f448b6aa3
ok "in a distributed checkpoint they are in the tree, too" sh -c \
    "\"$OPTIMFS\" cat '$ao/8bit_fsdp2_w2' optim/state/0.weight/exp_avg | sha256sum | grep -q ^7d16eac3"
"$OPTIMFS" mount -o rw,scratch "$ao/4bit.pt" "$mnt"
ok "a tensor is renamed" mv "$mnt/model/small" "$mnt/model/tiny"
not_ok "a view of that cannot unpack" ls "$mnt/.optimfs/view/torch,dequantize"
like "the error says why" "$(cat "$mnt/.optimfs/errors")" \
    "*OFS865*view torch,dequantize: names have changed*"
"$OPTIMFS" umount "$mnt"
cp -r "$ao/8bit_fsdp2_w2" "$scratch/dcp"
chmod -R u+w "$scratch/dcp"
"$OPTIMFS" mount -o rw "$scratch/dcp" "$mnt"
not_ok "what is computed cannot be written" \
    sh -c "head -c 4 /dev/zero | dd of='$mnt/optim/state/0.weight/exp_avg' conv=notrunc"
like "the error says why" "$(cat "$mnt/.optimfs/errors")" "*OFS866*is computed from others*"
echo 0.5 >"$mnt/optim/param_groups/0/lr"
ok "other changes are committed" "$OPTIMFS" umount "$mnt"
is "they are there" "$("$OPTIMFS" cat "$scratch/dcp" optim/param_groups/0/lr)" 0.5
ok "and the packed tensors are as before" sh -c \
    "\"$OPTIMFS\" cat '$scratch/dcp' optim/state/0.weight/exp_avg | sha256sum | grep -q ^7d16eac3"
ok "they can be converted" \
    "$OPTIMFS" reshard -q --to torch,dequantize "$ao/4bit.pt" "$scratch/dense"
ok "to dense tensors" sh -c \
    "\"$OPTIMFS\" cat '$scratch/dense' optim/state/0/exp_avg | sha256sum | grep -q ^616dd1dd"
ok "statistics of what was written" "$OPTIMFS" stat "$scratch/float" model/experts

# Averages and differences: a sum of codes would mean nothing.
run=$scratch/run
mkdir -p "$run/step-2" "$scratch/want2"
cp -r "$ck" "$run/step-1"
python3 "$scratch/make" "$run/step-2" "$scratch/want2" 5 || bail_out "make"
cat >"$scratch/sum" <<'END'
import array, sys
a, b = (array.array("f", open(p, "rb").read()) for p in sys.argv[1:3])
wa, wb = (float(w) for w in sys.argv[3:])
sys.stdout.buffer.write(array.array("f", (wa * x + wb * y for x, y in zip(a, b))).tobytes())
END
combined() { # CHECKPOINT NAME WEIGHT WEIGHT
	python3 "$scratch/sum" "$scratch/want/$2" "$scratch/want2/$2" "$3" "$4" >"$scratch/summed"
	ok "$1: $2 is combined as what it stands for" sh -c \
	    "\"$OPTIMFS\" cat '$run:$1' .optimfs/f32/model/$2 | cmp - '$scratch/summed'"
}
for name in block.weight experts mx.weight ct.weight; do
	combined avg/last2 $name .5 .5
	combined delta/1..2 $name -1 1
done
ok "its codes are those of one step" sh -c \
    "\"$OPTIMFS\" cat '$run:delta/1..2' model/experts_blocks >'$scratch/codes' &&
    \"$OPTIMFS\" cat '$run:2' model/experts_blocks | cmp - '$scratch/codes'"
is "a warning says so, once" "$("$OPTIMFS" cat "$run:avg/last2" .optimfs/warnings | grep 'few bits')" \
    "OFS864 tensors in few bits, as model/absmax1, are stored as in step 2: \
.optimfs/f32 and views with dequantize have what is computed"
ok "an average is written out" \
    "$OPTIMFS" reshard -q --to safetensors,dequantize "$run:avg/last2" "$scratch/mean"
python3 "$scratch/sum" "$scratch/want/experts" "$scratch/want2/experts" .5 .5 >"$scratch/summed"
ok "with its values" sh -c \
    "\"$OPTIMFS\" cat '$scratch/mean' model/experts | cmp - '$scratch/summed'"
done_testing
