#!/usr/bin/env python3
# stat_numpy.t - statistics of all dtypes agree with NumPy's
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys

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
DATA = os.path.join(TOP, "tests/data/pytorch")
CHECKPOINTS = [os.path.join(DATA, d, "ckpt") for d in
               ("dcp_dtypes", "dcp_fsdp2_w2", "dcp_3d_w8", "dcp_tp_fsdp_w4")]
CHECKPOINTS += [os.path.join(TOP, "tests/data/deepspeed", d)
                for d in ("z1_ws2_bf16", "z3_ws2_fp32")]
PLAIN = {"float64": "<f8", "float32": "<f4", "float16": "<f2",
         "int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "i1",
         "uint64": "<u8", "uint32": "<u4", "uint16": "<u2", "uint8": "u1",
         "bool": "?", "complex128": "<c16", "complex64": "<c8"}
# Types that NumPy has not: bits of exponent and mantissa, bias, how infinity
# and NaN are spelled.
SMALL = {"bfloat16": (2, 8, 7, 127, "ieee"),
         "float8_e5m2": (1, 5, 2, 15, "ieee"),
         "float8_e4m3fn": (1, 4, 3, 7, "fn"),
         "float8_e4m3fnuz": (1, 4, 3, 8, "fnuz"),
         "float8_e5m2fnuz": (1, 5, 2, 16, "fnuz")}
n = bad = 0


def ok(name, passed, why=""):
    global n, bad
    n += 1
    print(f"{'' if passed else 'not '}ok {n} - {name}")
    if not passed:
        bad += 1
        print(f"# {why}")


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
    if dtype in SMALL:
        return small(raw, *SMALL[dtype])
    if dtype not in PLAIN:
        return None
    x = np.frombuffer(raw, dtype=PLAIN[dtype])
    if x.dtype.kind == "c":
        x = x.view("<f8" if x.itemsize == 16 else "<f4")
    return x.astype(np.float64)


def agrees(s, raw):
    x = numbers(raw, s["dtype"])
    if x is None:
        return s["finite"] == 0
    f = x[np.isfinite(x)]
    want = {"finite": f.size, "nan": np.isnan(x).sum(),
            "inf": np.isinf(x).sum(), "zeros": (f == 0).sum()}
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


for ck in CHECKPOINTS:
    out = subprocess.run([OPTIMFS, "stat", "--json", ck],
                         capture_output=True, text=True)
    lines = [json.loads(line) for line in out.stdout.splitlines()]
    ok(f"{ck} has tensors", out.returncode == 0 and lines, out.stderr)
    for s in lines:
        raw = subprocess.run([OPTIMFS, "cat", ck, s["path"]],
                             capture_output=True, check=True).stdout
        with np.errstate(all="ignore"):
            ok(f"{s['path']} ({s['dtype']})", agrees(s, raw), s)
print(f"1..{n}")
sys.exit(bad != 0)
