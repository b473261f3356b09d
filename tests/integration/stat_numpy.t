#!/usr/bin/env python3
# stat_numpy.t - optimfs stat agrees with NumPy for every fixture and dtype
# SPDX-License-Identifier: Apache-2.0
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    if sys.executable != "/usr/bin/python3" and \
            os.access("/usr/bin/python3", os.X_OK):
        os.execv("/usr/bin/python3", ["/usr/bin/python3"] + sys.argv)
    print("1..0 # SKIP no numpy")
    sys.exit(0)

TOP = os.environ.get("TOP_SRCDIR", ".")
OPTIMFS = os.environ.get("OPTIMFS", "optimfs")
DATA = os.path.join(TOP, "tests/data")
# NumPy's names of the dtypes; a complex number is two of a real dtype.
PLAIN = {"float64": "<f8", "float32": "<f4", "float16": "<f2",
         "int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "i1",
         "uint64": "<u8", "uint32": "<u4", "uint16": "<u2", "uint8": "u1",
         "bool": "?", "qint8": "i1", "quint8": "u1", "qint32": "<i4"}
COMPLEX = {"complex128": "float64", "complex64": "float32",
           "complex32": "float16", "bcomplex32": "bfloat16"}
# Dtypes that NumPy lacks: bytes, bits of exponent and mantissa, bias, encoding of
# infinity and NaN.
SMALL = {"bfloat16": (2, 8, 7, 127, "ieee"),
         "float8_e5m2": (1, 5, 2, 15, "ieee"),
         "float8_e4m3fn": (1, 4, 3, 7, "fn"),
         "float8_e4m3fnuz": (1, 4, 3, 8, "fnuz"),
         "float8_e5m2fnuz": (1, 5, 2, 16, "fnuz")}
BITS = {"bits8": 1, "bits16": 2, "bits1x8": 1, "bits2x4": 1, "bits4x2": 1,
        "quint4x2": 1, "quint2x4": 1, "float4_e2m1fn_x2": 1}
# The smallest normal number.
NORMAL = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14}
NORMAL.update({t: 2.0**(1 - bias) for t, (_, _, _, bias, _) in SMALL.items()})
# Names of dtypes in safetensors.
STORED = {"float64": "F64", "float32": "F32", "float16": "F16",
          "bfloat16": "BF16", "int16": "I16", "uint16": "U16", "int8": "I8",
          "uint8": "U8", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
          "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
          "float8_e8m0fnu": "F8_E8M0"}
n = bad = 0
seen = set()


def ok(name, passed, why=""):
    global n, bad
    n += 1
    print(f"{'' if passed else 'not '}ok {n} - {name}")
    if not passed:
        bad += 1
        print(f"# {why}")


def itemsize(dtype):
    if dtype in COMPLEX:
        return 2 * itemsize(COMPLEX[dtype])
    if dtype in PLAIN:
        return np.dtype(PLAIN[dtype]).itemsize
    if dtype == "float8_e8m0fnu":
        return 1
    return SMALL[dtype][0] if dtype in SMALL else BITS[dtype]


def small(raw, size, ebits, mbits, bias, kind):
    code = np.frombuffer(raw, dtype="<u2" if size == 2 else "u1").astype(int)
    sign = np.where(code >> (ebits + mbits) & 1, -1.0, 1.0)
    exp = code >> mbits & ((1 << ebits) - 1)
    man = code & ((1 << mbits) - 1)
    v = np.where(exp == 0, np.ldexp(man.astype(float), 1 - bias - mbits),
                 np.ldexp(man + float(1 << mbits), exp - bias - mbits))
    if kind == "ieee":
        top = exp == (1 << ebits) - 1
        v = np.where(top, np.where(man == 0, np.inf, np.nan), v)
    elif kind == "fn":
        v = np.where((exp == 15) & (man == 7), np.nan, v)
    else:
        v = np.where(code == 0x80, np.nan, v)
    return sign * v


def numbers(raw, dtype):
    """The elements as doubles; None: the dtype has no numeric values."""
    dtype = COMPLEX.get(dtype, dtype)
    if dtype in SMALL:
        return small(raw, *SMALL[dtype])
    if dtype == "float8_e8m0fnu":
        code = np.frombuffer(raw, dtype="u1")
        return np.where(code == 255, np.nan,
                        np.ldexp(1.0, code.astype(int) - 127))
    if dtype not in PLAIN:
        return None
    return np.frombuffer(raw, dtype=PLAIN[dtype]).astype(np.float64)


def first(mask, dtype):
    at = np.flatnonzero(mask)
    return int(at[0]) // (2 if dtype in COMPLEX else 1) if at.size else None


def agrees(s, raw):
    dtype = s["dtype"]
    x = numbers(raw, dtype)
    if x is None:
        return s["finite"] == 0
    f = x[np.isfinite(x)]
    normal = NORMAL.get(COMPLEX.get(dtype, dtype), 0)
    want = {"finite": f.size, "nan": np.isnan(x).sum(),
            "inf": np.isinf(x).sum(), "zeros": (f == 0).sum(),
            "denormals": ((f != 0) & (np.abs(f) < normal)).sum(),
            "first_nan": first(np.isnan(x), dtype),
            "first_inf": first(np.isinf(x), dtype)}
    if any(s[k] != v for k, v in want.items()):
        return False
    if f.size == 0:
        return s["mean"] is None
    want = {"min": f.min(), "max": f.max(), "mean": f.mean(), "std": f.std(),
            "l1": np.abs(f).sum(), "l2": np.sqrt((f * f).sum()),
            "linf": np.abs(f).max(), "rms": np.sqrt((f * f).mean())}
    scale = {"mean": np.abs(f).mean(), "std": np.sqrt((f * f).mean())}
    for k, v in want.items():
        if not np.isfinite(v):
            if s[k] is not None:
                return False
        elif s[k] is None or abs(s[k] - v) > 1e-12 * max(abs(v), scale.get(k, 0)):
            return False
    e = np.frexp(f[f != 0])[1] - 1
    return s["exponents"] == {str(k): int(c) for k, c in
                              zip(*np.unique(e, return_counts=True))}


def differing(ck):
    """The number of tensors in ck that were compared, and those that differ from
    NumPy; (0, None): ck is no checkpoint."""
    out = subprocess.run([OPTIMFS, "stat", "--json", ck], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in out.stdout.splitlines()]
    lines = [s for s in lines if "path" in s and "error" not in s]
    if not lines:
        return 0, None
    elements = subprocess.run([OPTIMFS, "cat", ck] + [s["path"] for s in lines],
                              stdout=subprocess.PIPE, check=True).stdout
    wrong, at = [], 0
    for s in lines:
        size = s["elements"] * itemsize(s["dtype"])
        seen.add(s["dtype"])
        with np.errstate(all="ignore"):
            if not agrees(s, elements[at:at + size]):
                wrong.append(s)
        at += size
    return len(lines), wrong if at == len(elements) else "the sizes differ"


def compare(name, at):
    """Compares all checkpoints at or below a path; returns the number of tensors."""
    count, wrong = differing(at)
    if wrong is not None:
        ok(f"{name}: {count} tensors agree with NumPy", not wrong, wrong)
    elif os.path.isdir(at):
        count = sum(compare(f"{name}/{d}", os.path.join(at, d))
                    for d in sorted(os.listdir(at))
                    if os.path.isdir(os.path.join(at, d)))
    return count


for kind in "deepspeed", "extra", "megatron", "pytorch":
    for fixture in sorted(os.listdir(os.path.join(DATA, kind))):
        at = os.path.join(DATA, kind, fixture)
        if os.path.isdir(at):
            ok(f"{kind}/{fixture} has tensors to compare",
               compare(f"{kind}/{fixture}", at) > 0)
compare("numpy", os.path.join(DATA, "numpy"))

# Every code of the dtypes of one or two bytes, and all exponents of wider ones.
with tempfile.TemporaryDirectory() as scratch:
    header, body = {}, b""
    every = np.arange(65536, dtype="<u2")
    for dtype, stored in STORED.items():
        if itemsize(dtype) == 1:
            raw = bytes(range(256))
        elif itemsize(dtype) == 2:
            raw = every.tobytes()
        elif dtype == "float32":
            raw = (every.astype("<u4") << 16 | 0x4321).tobytes()
        else:
            raw = (every.astype("<u8") << 48 | 0x4321).tobytes()
        header["model." + dtype] = {
            "dtype": stored, "shape": [len(raw) // itemsize(dtype)],
            "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    made = os.path.join(scratch, "codes.safetensors")
    with open(made, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)
    ok("every dtype of safetensors was compared",
       compare("all codes", made) == len(STORED))
missing = (set(PLAIN) | set(COMPLEX) | set(SMALL)) - seen
ok("every numeric dtype was compared", not missing, missing)
print(f"1..{n}")
sys.exit(bad != 0)
