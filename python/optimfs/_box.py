# SPDX-License-Identifier: Apache-2.0
"""Indexing without data: which bytes of a file an index of a tensor covers.

A box is a tuple of Python ranges, one for each dimension of the tensor, with
positive steps. A dimension that was indexed by an integer has one element in
the box, and is not in the shape of the result.
"""
from __future__ import annotations

from typing import Any, Iterator, List, Sequence, Tuple

Box = Tuple[range, ...]

# Two runs with fewer bytes between them are read as one.
GAP = 512


def whole(shape: Sequence[int]) -> Box:
    return tuple(range(n) for n in shape)


def _pick(r: range, index: Any, dim: int) -> Tuple[range, bool]:
    if isinstance(index, slice):
        picked = r[index]
        if picked.step < 0:
            raise IndexError("dimension %d: a step must be positive" % dim)
        return picked, True
    try:
        if isinstance(index, bool) or \
                str(getattr(index, "dtype", "")).endswith("bool"):
            raise AttributeError  # a mask to NumPy, not 0 or 1
        n = index.__index__()
    except (AttributeError, TypeError):  # an array has it, and refuses
        raise TypeError(
            "a tensor takes integers, slices and ... as an index, not %s; "
            "call .numpy() or .torch() first" % type(index).__name__
        ) from None
    try:
        at = r[n]
    except IndexError:
        raise IndexError("index %d is out of range: dimension %d has %d "
                         "elements" % (n, dim, len(r))) from None
    return range(at, at + 1), False


def index(box: Box, kept: Sequence[int], key: Any) -> Tuple[Box, List[int]]:
    """Apply key, the index in brackets, to the kept dimensions of box."""
    keys = list(key) if isinstance(key, tuple) else [key]
    dots = [i for i, k in enumerate(keys) if k is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can have one ...")
    if dots:
        fill = len(kept) - (len(keys) - 1)
        keys[dots[0]:dots[0] + 1] = [slice(None)] * max(fill, 0)
    if len(keys) > len(kept):
        raise IndexError("too many indices: the tensor has %d dimensions"
                         % len(kept))
    picked, left = list(box), []
    for i, dim in enumerate(kept):
        stays = True
        if i < len(keys):
            picked[dim], stays = _pick(box[dim], keys[i], i)
        if stays:
            left.append(dim)
    return tuple(picked), left


def count(box: Box) -> int:
    n = 1
    for r in box:
        n *= len(r)
    return n


def _inner(shape: Sequence[int], box: Box) -> int:
    """The first dimension from which on the box's elements are one run: all
    dimensions behind it are whole, and it has step 1."""
    dim = len(shape)
    while dim > 0:
        r = box[dim - 1]
        if len(r) > 1 and r.step != 1:
            break
        dim -= 1
        if len(r) != shape[dim]:
            break
    return dim


def runs(shape: Sequence[int], box: Box) -> Iterator[Tuple[int, int]]:
    """Each run of elements that are neighbours, as (first element, how many),
    in order."""
    if count(box) == 0:
        return
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * shape[d + 1]
    inner = _inner(shape, box)
    length = count(box[inner:])
    start = sum(box[d].start * strides[d] for d in range(inner, len(shape)))

    def walk(d: int, at: int) -> Iterator[int]:
        if d == inner:
            yield at
            return
        for i in box[d]:
            yield from walk(d + 1, at + i * strides[d])

    for at in walk(0, start):
        yield at, length


def reads(shape: Sequence[int], box: Box, item: int, most: int
          ) -> Iterator[Tuple[int, int, List[Tuple[int, int, int]]]]:
    """What to read: (offset, length, pieces), in bytes.

    pieces say what of it is wanted: (offset in what was read, offset in the
    result, length). A read has one piece unless small gaps were not worth
    several, and then at most `most` bytes. A longer run is not cut.
    """
    off = end = out = 0
    pieces: List[Tuple[int, int, int]] = []
    for first, n in runs(shape, box):
        at, length = first * item, n * item
        if pieces and (at - end > GAP or at + length - off > most):
            yield off, end - off, pieces
            pieces = []
        if not pieces:
            off = at
        pieces.append((at - off, out, length))
        end = at + length
        out += length
    if pieces:
        yield off, end - off, pieces
