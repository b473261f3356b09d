#!/bin/sh
# dtype.t - views with dtype=: rounding to bf16, f16 and f32, and .optimfs/npy32
. "${TOP_SRCDIR:-.}/tests/tap/tap.sh"
. "$TOP_SRCDIR/tests/tap/python.sh"

data=$TOP_SRCDIR/tests/data/pytorch
ck=$data/dcp_fsdp2_w3/ckpt
"$OPTIMFS" cp -r "$ck" . "$scratch/want"

# Every format has the same elements; the reference rounding is the definition.
cat >"$scratch/bf16.py" <<'EOF'
import os, struct, sys
want, got = sys.argv[1:]
n = 0
for top, dirs, files in os.walk(want):
    for name in files:
        a = open(os.path.join(top, name), "rb").read()
        b = open(os.path.join(got, os.path.relpath(top, want), name), "rb").read()
        if a == b:
            continue  # text
        bits = struct.unpack("<%dI" % (len(a) // 4), a)
        ref = [(x + 0x7fff + (x >> 16 & 1)) >> 16 for x in bits]
        assert b == struct.pack("<%dH" % len(ref), *ref), (top, name)
        n += 1
assert n > 20, n
EOF
for view in dcp@1 dcp@3 dcp@16 torch safetensors safetensors,hf; do
	rm -rf "$scratch/view" "$scratch/got"
	"$OPTIMFS" cp -r "$ck" ".optimfs/view/$view,dtype=bf16" "$scratch/view"
	"$OPTIMFS" cp -r "$scratch/view" . "$scratch/got"
	ok "$view,dtype=bf16 rounds every tensor to nearest even" \
	    python3 "$scratch/bf16.py" "$scratch/want" \
	    "$scratch/got"
done
ok "dtype=bf16 does not round a step" cmp \
    "$scratch/want/optim/state/norm.weight/step" \
    "$scratch/got/optim/state/norm.weight/step"

# Widening and rounding again gives the original. Other types are not changed.
"$OPTIMFS" cp -r "$scratch/view" .optimfs/view/dcp@2,dtype=f32 "$scratch/up"
"$OPTIMFS" cp -r "$scratch/up" .optimfs/view/torch,dtype=bf16 "$scratch/down"
status "bfloat16 to float32 and back is unchanged" 0 "$OPTIMFS" diff "$scratch/view" \
    "$scratch/down"
dtypes=$data/dcp_dtypes/ckpt
for case in 8:dcp@3,dtype=f16 3:torch,dtype=f32; do
	view=${case#*:}
	rm -rf "$scratch/view"
	"$OPTIMFS" cp -r "$dtypes" ".optimfs/view/$view" "$scratch/view"
	"$OPTIMFS" diff -v "$dtypes" "$scratch/view" >"$scratch/differ"
	is "$view of all dtypes changes ${case%%:*} tensors" "$(grep -c . \
	    "$scratch/differ")" "${case%%:*}"
	is "$view of all dtypes changes floats only" \
	    "$(grep -vcE 'float(16|32|64).* float(16|32|64)' \
	    "$scratch/differ")" 0
done

status "reshard --to dcp@5,dtype=f16 exits with 0" 0 "$OPTIMFS" reshard \
    --to dcp@5,dtype=f16 "$ck" "$scratch/sums"
status "fsck --data accepts dcp@5,dtype=f16" 0 "$OPTIMFS" fsck --data "$scratch/sums"
like "dcp@5,dtype=f16 has checksums for every item" "$(cat "$scratch/out")" '*0 errors, 0 warnings*'
for name in dcp@1,dtype= dcp@1,dtype=int8 dcp@1,dtype=bf17 torch,dtype; do
	status "$name is rejected as a view name" 2 "$OPTIMFS" ls "$ck" ".optimfs/view/$name"
done

mnt=$(point mnt)
if "$OPTIMFS" mount "$ck" "$mnt" 2>"$scratch/err"; then
	for view in dcp@1,dtype=bf16 torch,crc,dtype=f16; do
		ok "$view reads the same in random small pieces" \
		    python3 - "$mnt/.optimfs/view/$view" \
		    <<'EOF'
import os, random, sys
random.seed(1)
for name in sorted(os.listdir(sys.argv[1])):
    path = os.path.join(sys.argv[1], name)
    size = os.stat(path).st_size
    whole = open(path, "rb").read()
    assert len(whole) == size
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    for k in range(500):
        at, n = random.randrange(size), random.choice((1, 2, 3, 511, 4097))
        assert os.pread(fd, n, at) == whole[at:at + n], (name, at, n)
    os.close(fd)
EOF
	done
	"$OPTIMFS" umount "$mnt"
else
	skip 2 "no mounts here: $(head -1 "$scratch/err")"
fi

# Reference: the rounding of PyTorch.
find_python -c 'import torch, numpy'
cat >"$scratch/make.py" <<'EOF'
import numpy, sys, torch
r = numpy.random.RandomState(7)
half = numpy.arange(65536, dtype=numpy.uint16).view(numpy.int16)
single = r.randint(-2**31, 2**31, 200000, dtype=numpy.int64).astype(numpy.int32)
double = numpy.concatenate([
    r.randint(-2**63, 2**63 - 1, 100000, dtype=numpy.int64),
    (r.randn(100000) * 10.0 ** r.randint(-50, 50, 100000)).view(numpy.int64)])
torch.save({
    "f16": torch.from_numpy(half.copy()).view(torch.float16),
    "bf16": torch.from_numpy(half).view(torch.bfloat16),
    "f32": torch.from_numpy(single).view(torch.float32),
    "f64": torch.from_numpy(double).view(torch.float64),
    "near": torch.from_numpy(r.randn(300000).astype(numpy.float32)),
}, sys.argv[1])
EOF
# PyTorch's vectorized code makes NaN 0x7fc0 or 0xffff in bfloat16.
cat >"$scratch/same.py" <<'EOF'
import sys, torch
dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
old, new = torch.load(sys.argv[1]), torch.load(sys.argv[2])
to = dtype[sys.argv[3]]
for key, t in old.items():
    want, got = t.to(to), new[key]
    assert got.dtype == to and got.shape == want.shape, key
    assert torch.equal(torch.isnan(want), torch.isnan(got)), key
    if t.dtype != to: # which bits of a NaN remain depends on the version
        want, got = want[~torch.isnan(want)], got[~torch.isnan(got)]
    bits = torch.int32 if to == torch.float32 else torch.int16
    assert torch.equal(want.view(bits), got.view(bits)), key
EOF
if [ -n "$python" ]; then
	"$python" "$scratch/make.py" "$scratch/all.pt"
	for to in bf16 f16 f32; do
		rm -rf "$scratch/view"
		"$OPTIMFS" cp -r "$scratch/all.pt" \
		    .optimfs/view/torch,dtype=$to "$scratch/view"
		ok "dtype=$to gives the bits of PyTorch's .to()" "$python" \
		    "$scratch/same.py" "$scratch/all.pt" \
		    "$scratch"/view/*.pt $to
	done
else
	skip 3 "no PyTorch here"
fi

# Reference for .optimfs/npy32: the definition of each type.
cat >"$scratch/npy32.py" <<'EOF'
import math, os, struct, sys
want, got, names = sys.argv[1], sys.argv[2], sys.argv[3:]
def value(code, exp_bits, man_bits, bias, special):
    man, sign = code & ((1 << man_bits) - 1), code >> (exp_bits + man_bits)
    exp = code >> man_bits & ((1 << exp_bits) - 1)
    if special == "fnuz" and code == 1 << (exp_bits + man_bits):
        return math.nan
    if special == "ieee" and exp == (1 << exp_bits) - 1:
        return math.nan if man else (-1) ** sign * math.inf
    if special == "fn" and code & 0x7f == 0x7f:
        return math.nan
    v = math.ldexp(man, 1 - bias - man_bits) if exp == 0 else \
        math.ldexp(man + (1 << man_bits), exp - bias - man_bits)
    return -v if sign else v
types = {"bfloat16": (8, 7, 127, "ieee"), "float16": (5, 10, 15, "ieee"),
    "float8_e4m3fn": (4, 3, 7, "fn"), "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e4m3fnuz": (4, 3, 8, "fnuz"), "float8_e5m2fnuz": (5, 2, 16, "fnuz")}
assert sorted(names) == sorted("t.%s.npy" % t for t in types), names
for t, form in types.items():
    raw = open(os.path.join(want, "t." + t), "rb").read()
    npy = open(os.path.join(got, "t.%s.npy" % t), "rb").read()
    n = len(raw) * 8 // (1 + form[0] + form[1])
    codes = struct.unpack("<%d%s" % (n, "B" if n == len(raw) else "H"), raw)
    assert npy.startswith(b"\x93NUMPY") and b"'<f4'" in npy[:128], npy[:128]
    numbers = struct.unpack("<%df" % n, npy[-4 * n:])
    assert len(npy) == 128 + 4 * n, (t, len(npy))
    for code, number in zip(codes, numbers):
        ref = value(code, *form)
        assert number == ref or (number != number and ref != ref), (t, code)
EOF
"$OPTIMFS" cp -r "$data/dcp_dtypes/ckpt" model "$scratch/types"
"$OPTIMFS" cp -r "$data/dcp_dtypes/ckpt" .optimfs/npy32/model "$scratch/npy32"
ok "npy32 has the exact values of bf16, f16 and fp8 as float32" python3 "$scratch/npy32.py" \
    "$scratch/types" "$scratch/npy32" $(ls "$scratch/npy32")
done_testing
