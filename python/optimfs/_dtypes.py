# SPDX-License-Identifier: Apache-2.0
"""Element types: their names in a checkpoint, in NumPy and in PyTorch."""
from __future__ import annotations

import functools
from typing import Any, Optional

_SIZES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
    "complex128": 16, "complex64": 8, "complex32": 4, "bcomplex32": 4,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1,
    "bits8": 1, "bits16": 2, "bits1x8": 1, "bits2x4": 1, "bits4x2": 1,
    "qint8": 1, "quint8": 1, "qint32": 4, "quint4x2": 1, "quint2x4": 1,
}

# What NumPy has itself, by its own name there.
_NUMPY = {n: n for n in (
    "float64", "float32", "float16", "int64", "int32", "int16", "int8",
    "uint64", "uint32", "uint16", "uint8", "bool", "complex128", "complex64")}
_NUMPY.update(bits8="uint8", bits16="uint16", qint8="int8", quint8="uint8",
              qint32="int32")

# exponent bits, mantissa bits, bias, form
_FLOAT8 = {
    "float8_e4m3fn": (4, 3, 7, "fn"),
    "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e4m3fnuz": (4, 3, 8, "fnuz"),
    "float8_e5m2fnuz": (5, 2, 16, "fnuz"),
    "float8_e8m0fnu": (8, 0, 127, "e8m0"),
}


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    try:
        return _SIZES[dtype]
    except KeyError:
        raise TypeError("elements of type %s are not known" % dtype) from None


def numpy_dtype(dtype: str) -> Any:
    """The NumPy type that holds these elements; TypeError if none does."""
    import numpy as np
    if dtype in _NUMPY:
        return np.dtype(_NUMPY[dtype])
    try:
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, dtype))
    except (ImportError, AttributeError):
        pass
    wide = widened(dtype)
    asks = ", .numpy(%r) for a copy of that type" % wide if wide else ""
    raise TypeError(
        "NumPy has no type %s: ask for .torch()%s, or .tobytes(), or install "
        "ml_dtypes if that has it" % (dtype, asks))


def widened(dtype: str) -> Optional[str]:
    """The NumPy type that holds every value of one it lacks; None if none."""
    if dtype == "bfloat16" or dtype in _FLOAT8:
        return "float32"
    return "complex64" if dtype in ("complex32", "bcomplex32") else None


def raw_dtype(dtype: str) -> Any:
    """An unsigned NumPy type of the same size, to move elements with."""
    import numpy as np
    if dtype in ("complex32", "bcomplex32"):
        return np.dtype("uint32")
    size = itemsize(dtype)
    return np.dtype(_NUMPY.get(dtype, "uint%d" % (8 * size)))


def _float8(bits: int, exponent: int, mantissa: int, bias: int,
            form: str) -> float:
    if form == "e8m0":
        return float("nan") if bits == 255 else 2.0 ** (bits - bias)
    sign = -1.0 if bits >> (exponent + mantissa) else 1.0
    e = bits >> mantissa & (1 << exponent) - 1
    m = bits & (1 << mantissa) - 1
    top = (1 << exponent) - 1
    if form == "fnuz" and bits == 0x80:
        return float("nan")
    if form == "fn" and bits & 0x7F == 0x7F:
        return float("nan")
    if form == "ieee" and e == top:
        return sign * float("inf") if m == 0 else float("nan")
    if e == 0:
        return sign * m * 2.0 ** (1 - bias - mantissa)
    return sign * (1 + m / (1 << mantissa)) * 2.0 ** (e - bias)


@functools.lru_cache(maxsize=None)
def _float8_table(dtype: str) -> Any:
    import numpy as np
    return np.array([_float8(b, *_FLOAT8[dtype]) for b in range(256)],
                    dtype="float32")


def widen(raw: Any, dtype: str) -> Any:
    """Elements that raw_dtype() holds, as the type that widened() names."""
    import numpy as np
    flat = np.ascontiguousarray(raw).reshape(-1)
    if dtype == "bfloat16":
        wide = (flat.astype(np.uint32) << 16).view(np.float32)
    elif dtype == "complex32":
        wide = flat.view(np.float16).astype(np.float32).view(np.complex64)
    elif dtype == "bcomplex32":
        halves = flat.view(np.uint16).astype(np.uint32)
        wide = (halves << 16).view(np.complex64)
    else:
        wide = _float8_table(dtype)[flat]
    return wide.reshape(raw.shape)


def torch_dtype(dtype: str) -> Any:
    """The PyTorch type; TypeError where this PyTorch is too old for it."""
    import torch
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        raise TypeError("PyTorch %s has no type %s"
                        % (torch.__version__, dtype))
    return found


def name_of(dtype: Any) -> str:
    """The name in a checkpoint of a NumPy or PyTorch type."""
    name = getattr(dtype, "name", None) or str(dtype).replace("torch.", "")
    if name not in _SIZES:
        raise TypeError("a checkpoint has no elements of type %s" % (dtype,))
    return name


def narrow(value: Any, dtype: str) -> int:
    """The bits of a number that the type holds exactly."""
    import struct
    if dtype == "bfloat16":
        return int.from_bytes(struct.pack("<f", value)[2:], "little")
    if dtype in _FLOAT8:
        for bits, x in enumerate(_float8_table(dtype).tolist()):
            if repr(x) == repr(float(value)):
                return bits
    raise TypeError("a number of type %s" % dtype)


def _round_bfloat16(a: Any) -> Any:
    """float32 to the nearest bfloat16, ties to even, a NaN stays one."""
    import numpy as np
    bits = a.view(np.uint32)
    rounded = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
    return np.where(np.isnan(a), 0x7FC0, rounded).astype(np.uint16)


def _torch_bytes(value: Any, shape: Any, dtype: str) -> bytes:
    import ctypes
    import torch
    kind = torch_dtype(dtype)
    if not torch.can_cast(value.dtype, kind):
        raise TypeError("a tensor of type %s cannot be cast to %s"
                        % (value.dtype, kind))
    t = value.detach().to(device="cpu", dtype=kind)
    try:
        t = t.expand(shape).contiguous()
    except RuntimeError:
        raise ValueError("a tensor of shape %s does not fit %s" % (
            list(t.shape), list(shape))) from None
    return ctypes.string_at(t.data_ptr(), t.numel() * t.element_size())


def spread(a: Any, shape: Any) -> Any:
    import numpy as np
    try:
        return np.broadcast_to(a, shape)
    except ValueError:
        raise ValueError("an array of shape %s does not fit %s" % (
            list(a.shape), list(shape))) from None


def to_bytes(value: Any, shape: Any, dtype: str) -> bytes:
    """The elements to write for an array, tensor, list or number.

    It is broadcast to shape and converted as NumPy's "same_kind" allows.
    """
    if type(value).__module__.split(".")[0] == "torch":
        return _torch_bytes(value, shape, dtype)
    import numpy as np
    a = np.asarray(value)
    if dtype == "bfloat16" and a.dtype.name != dtype:
        a = spread(a, shape).astype(np.float32, casting="same_kind")
        return bytes(_round_bfloat16(np.ascontiguousarray(a)).tobytes())
    kind = numpy_dtype(dtype)
    if isinstance(value, (int, float, list, tuple)):
        a = a.astype(kind)  # Python's numbers have no type of their own
    a = a.astype(kind, casting="same_kind", copy=False)
    return bytes(spread(a, shape).tobytes())
