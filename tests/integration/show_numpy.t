#!/usr/bin/env python3
# show_numpy.t - optimfs show prints arrays and their slices as NumPy does
# SPDX-License-Identifier: Apache-2.0
import csv
import io
import json
import os
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

OPTIMFS = os.environ.get("OPTIMFS", "optimfs")
n = bad = 0


def ok(name, passed, why=""):
    global n, bad
    n += 1
    print(f"{'' if passed else 'not '}ok {n} - {name}")
    if not passed:
        bad += 1
        for line in str(why).split("\n"):
            print(f"# {line}")


def show(*arguments):
    p = subprocess.run([OPTIMFS, "show", *arguments], capture_output=True,
                       text=True)
    return p.stdout if p.returncode == 0 else p.stdout + p.stderr


def printed(a):
    # an array without dimensions is what print(a[0]) is given
    return (str(a[()]) if a.ndim == 0 else np.array2string(
        a, threshold=1000, edgeitems=3, max_line_width=75)) + "\n"


def as_json(v):
    """A value of tolist() as docs/json.md has it."""
    if isinstance(v, list):
        return [as_json(x) for x in v]
    if isinstance(v, complex):
        return [as_json(v.real), as_json(v.imag)]
    if isinstance(v, float) and v != v:
        return "NaN"
    if isinstance(v, float) and v in (float("inf"), float("-inf")):
        return "Infinity" if v > 0 else "-Infinity"
    return v


rng = np.random.RandomState(7)
x = rng.randn(24)
odd = np.array([np.nan, -np.inf, np.inf, 0., -0., 1.5, 1 / 3, 100.25])
arrays = {}
for t in "f8", "f4", "f2":
    arrays |= {
        f"normal_{t}": x.astype(t), f"small_{t}": (x * 1e-5).astype(t),
        f"matrix_{t}": x.reshape(4, 6).astype(t),
        f"cube_{t}": x.reshape(2, 3, 4).astype(t),
        f"wide_{t}": rng.randn(5, 40).astype(t),
        f"whole_{t}": np.arange(30, dtype=t),
        f"odd_{t}": odd.astype(t),
        f"only_nan_{t}": np.array([np.nan, np.nan], dtype=t),
        f"only_inf_{t}": np.array([-np.inf, np.nan], dtype=t),
        f"zeros_{t}": np.zeros((2, 3), dtype=t),
        f"spread_{t}": np.array([1e-3, 50., -3., np.nan, 0], dtype=t),
        f"large_{t}": rng.randn(40, 50).astype(t),
        f"long_{t}": rng.randn(5000).astype(t),
        f"deep_{t}": rng.randn(7, 2, 9, 10).astype(t),
        f"one_{t}": np.array([[[2.5]]], dtype=t),
        f"empty_{t}": np.zeros((0, 3), dtype=t)}
for t in "f8", "f4":
    arrays |= {f"huge_{t}": np.array([1e30, -1.5, 1e-30], dtype=t),
               f"million_{t}": np.array([1e7, 12345678.], dtype=t),
               f"billion_{t}": np.array([1e9, 1.], dtype=t)}
arrays["three_digits_f8"] = np.array([1e-300, 1.25, 5e-324, 1.7976931348623157e308])
arrays["denormal_f4"] = np.array([1e-45, 1.1754944e-38, 3.4028235e38], dtype="f4")
for t in "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1":
    i = np.iinfo(t)
    arrays |= {f"ends_{t}": np.array([i.min, i.max, 0, 7], dtype=t),
               f"rows_{t}": rng.randint(0, 100, (30, 41)).astype(t)}
arrays["bool"] = rng.randint(0, 2, (3, 5)).astype(bool)
arrays["true"] = np.ones(3, dtype=bool)
for t in "c16", "c8":
    z = (x[:12] + 1j * x[12:]).astype(t)
    arrays |= {f"plain_{t}": z, f"matrix_{t}": z.reshape(3, 4),
               f"odd_{t}": np.array([complex(np.nan, 1), complex(-2, np.inf),
                                     complex(0, -0.5), 3, 2j], dtype=t)}
SLICES = {1: ["[0]", "[-1]", "[1:3]", "[::-1]", "[-3:]", "[:-20]", "[5:2]",
              "[...]", "[100:]", "[-100:2:1]", "[1::2]"],
          2: ["[0]", "[1, 1]", "[-1, ::2]", "[..., 0]", "[1:, -2:]", "[::-1]",
              "[:, ::-2]", "[0:4, -3:]", "[0,...,1]", "[ 1 , 0:1 ]"],
          3: ["[0, 0]", "[..., 0]", "[0, ..., 0]", "[:, 0:1]", "[0, :, ::-1]",
              "[0, 0, 0]"],
          4: ["[0]", "[..., 2:4]", "[-1, 0, 3, -1]", "[::3, :, 1]", "[:, 0, :2]"]}

with tempfile.TemporaryDirectory() as scratch:
    made = os.path.join(scratch, "all.npz")
    np.savez(made, **arrays)
    listed = subprocess.run([OPTIMFS, "ls", "-R", made], capture_output=True,
                            text=True).stdout.split()
    path = {p.split("/")[-1]: p for p in listed}
    ok("the tree has every array", set(arrays) <= set(path), listed)
    for name, a in arrays.items():
        wrong = []
        for s in [""] + SLICES[a.ndim]:
            try:
                part = eval(f"a{s}") if s else a
            except IndexError:
                part = None
            got = show(made, path[name] + s)
            want = printed(np.asarray(part)) if part is not None else None
            if want is None and "out of bounds" not in got or \
                    want is not None and got != want:
                wrong.append(f"{s}\n{got}instead of\n{want}")
        ok(f"{name}: the array and its slices are those of NumPy", not wrong,
           "\n".join(wrong))
    wrong = []
    for name, a in arrays.items():
        got = json.loads(show("--json", made, path[name]))
        if got["values"] != as_json(a.tolist()) and a.size > 0 or \
                got["shape"] != list(a.shape):
            wrong.append((name, got))
    ok("--json has every element", not wrong, wrong)
    wrong = []
    for name, a in arrays.items():
        if a.ndim == 2 and a.dtype.kind == "f" and a.size > 0:
            rows = csv.reader(io.StringIO(show("--csv", made, path[name])))
            if not np.array_equal(np.array([[float(v) for v in r] for r in rows]),
                                  a):
                wrong.append(name)
    ok("--csv has every element of each row", not wrong, wrong)
print(f"1..{n}")
sys.exit(bad != 0)
