#!/bin/sh
# combined_numpy.t - differences and averages of all types, compared with NumPy
# SPDX-License-Identifier: Apache-2.0
. "${TOP_SRCDIR:-$(dirname "$0")/../..}/tests/tap/tap.sh"
python=
for p in python3 /usr/bin/python3; do
	"$p" -c 'import numpy' 2>/dev/null && python=$p && break
done
[ -n "$python" ] || skip_all "no NumPy"

cat >"$scratch/numbers" <<'END'
"""make DIR: three steps of any bits. compare OPTIMFS DIR NAME: prints the types
in which NAME is not what NumPy computes, and their number."""
import json, struct, subprocess, sys
import numpy as np

N = 4099  # not a multiple of a vector
PLAIN = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "C64": "<c8", "I64": "<i8",
         "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4",
         "U16": "<u2", "U8": "u1", "BOOL": "u1"}
# Types that NumPy lacks: bytes, bits of the exponent and the fraction, bias, and
# whether the last exponent has infinities, only one NaN, or neither.
SHORT = {"BF16": (2, 8, 7, 127, "ieee"), "F8_E5M2": (1, 5, 2, 15, "ieee"),
         "F8_E4M3": (1, 4, 3, 7, "one")}


def values(e, m, bias, kind):
    """The value of each code without its sign."""
    code = np.arange(1 << (e + m))
    exp, frac = code >> m, code & ((1 << m) - 1)
    v = np.where(exp == 0, frac * 2.0 ** (1 - bias - m),
                 (1 + frac / 2.0 ** m) * 2.0 ** (exp - float(bias)))
    if kind == "ieee":
        last = exp == (1 << e) - 1
        v[last] = np.where(frac[last] == 0, np.inf, np.nan)
    else:
        v[-1] = np.nan
    return v


def widen(code, e, m, bias, kind):
    top = 1 << (e + m)
    v = values(e, m, bias, kind)[code & (top - 1)]
    return np.where(code & top, -v, v)


def shorten(x, e, m, bias, kind):
    """As values again: the nearest one, of two the even code."""
    v = values(e, m, bias, kind)
    v = v[np.isfinite(v)]
    # what would follow the largest number
    v = np.append(v, 2 * v[-1] - v[-2])
    a = np.abs(x)
    hi = np.clip(np.searchsorted(v, np.nan_to_num(a, nan=0)), 1, len(v) - 1)
    lo = hi - 1
    middle = (v[lo] + v[hi]) / 2
    i = np.where((a > middle) | ((a == middle) & (hi % 2 == 0)), hi, lo)
    out = v[i]
    out[i == len(v) - 1] = np.inf if kind == "ieee" else np.nan
    out[np.isinf(a)] = np.inf if kind == "ieee" else np.nan
    out[np.isnan(a)] = np.nan
    return np.copysign(out, x)


def stored(step):
    """The bytes of each type in a step."""
    rng = np.random.default_rng(step)
    return {name: rng.integers(0, 2 if name == "BOOL" else 256, N * (
        SHORT[name][0] if name in SHORT else np.dtype(PLAIN[name]).itemsize),
        np.uint8).tobytes() for name in [*PLAIN, *SHORT]}


def make(where):
    for step in 1, 2, 3:
        header, data = {}, b""
        for name, b in stored(step).items():
            header[name] = {"dtype": name, "shape": [N],
                            "data_offsets": [len(data), len(data) + len(b)]}
            data += b
        h = json.dumps(header).encode()
        with open(f"{where}/step-{step}.safetensors", "wb") as f:
            f.write(struct.pack("<Q", len(h)) + h + data)


def numbers(name, b):
    if name in SHORT:
        size, *form = SHORT[name]
        return widen(np.frombuffer(b, f"<u{size}").astype(np.int64), *form)
    return np.frombuffer(b, PLAIN[name])


def wide(x):
    if x.dtype.kind == "c":
        return x.astype("<c16")
    return x.astype(np.float64 if x.dtype.kind == "f" else "<i8")


def cat(name, path):
    return subprocess.run([sys.argv[2], "cat", f"{sys.argv[3]}:{name}", "model/" + path],
                          check=True, capture_output=True).stdout


def compare(name, weights, divisor):
    good = 0
    steps = {step: stored(step) for step in (1, 2, 3)}
    for t in steps[1]:
        x = [numbers(t, steps[s][t]) for s in weights]
        kind = x[0].dtype.kind
        if kind == "c":  # two numbers, which do not meet
            x = [v.view("<f4") for v in x]
        got = cat(name, t)
        delta = name.startswith("delta")
        if kind in "iu" and not delta:
            good += got == steps[3][t] or print(t) or 0
            continue
        want = None
        for w, v in zip(weights.values(), x):
            v = wide(v) * (w if kind in "fc" else np.int64(w))
            want = v if want is None else want + v
        if kind in "fc":
            want = want / divisor
        if delta:
            to = "<i8" if kind in "iu" else "<f8" if t == "F64" else "<f4"
            want, got = want.astype(to), np.frombuffer(got, to)
        elif t in SHORT:
            want, got = shorten(want, *SHORT[t][1:]), numbers(t, got)
        else:
            got = numbers(t, got)
            got = got.view("<f4") if kind == "c" else got
            want = want.astype(got.dtype)
        same = np.array_equal(got, want, equal_nan=True) if kind in "fc" else \
            np.array_equal(got, want)
        if kind in "fc":
            there = ~np.isnan(want)
            same &= np.array_equal(np.signbit(got[there]), np.signbit(want[there]))
        good += same or print(t) or 0
    print(good)


np.seterr(all="ignore")
if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    steps, _, divisor = sys.argv[5].partition("/")
    compare(sys.argv[4], {int(w.split(":")[1]): float(w.split(":")[0])
                          for w in steps.split(",")}, float(divisor or 1))
END
"$python" "$scratch/numbers" make "$(point run)"
equals() { # NAME WEIGHT:STEP,...[/DIVISOR]
	is "$1 of 16 types is what NumPy computes" \
	    "$("$python" "$scratch/numbers" compare "$OPTIMFS" "$scratch/run" "$@" 2>&1)" 16
}
equals delta/1..3 -1:1,1:3
equals avg/1,3 1:1,1:3/2
equals avg/last3 1:1,1:2,1:3/3
equals lerp/1,3@0.25 0.75:1,0.25:3
equals ema/0.5@last3 0.25:1,0.25:2,0.5:3
done_testing
