# SPDX-License-Identifier: Apache-2.0
"""Two checkpoints by value, across formats and layouts."""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Iterator, List, Optional, Union

from ._checkpoint import Checkpoint, PathLike, open as open_checkpoint
from ._tensor import Tensor


@dataclass(frozen=True)
class Difference:
    """A difference at a path.

    kind      "only in a", "only in b", "kind", "dtype", "shape", "value" (of a
              text; a and b are both) or "elements"

    Of "elements":

    elements  how many differ
    first, at flat indexes of the first and of the one that differs most
    max_abs   the greatest difference; max_rel relative to the greater of both;
              ulps in steps of the type. None if no two numbers differ
    rms       of the differences, relative to the rms of a's values
    cosine    of the angle between a and b; None if one is zero
    """
    path: str
    kind: str
    a: Any = None
    b: Any = None
    elements: int = 0
    of: int = 0
    first: Optional[int] = None
    at: Optional[int] = None
    max_abs: Optional[float] = None
    max_rel: Optional[float] = None
    ulps: Optional[int] = None
    rms: Optional[float] = None
    cosine: Optional[float] = None

    def __str__(self) -> str:
        if self.kind.startswith("only"):
            return "%s: %s" % (self.path, self.kind)
        if self.kind == "elements":
            by = "" if self.max_abs is None else \
                ", by up to %.3g" % self.max_abs
            return "%s: %d of %d elements differ%s" % (
                self.path, self.elements, self.of, by)
        return "%s: %s is %r, and %r in b" % (self.path, self.kind, self.a,
                                              self.b)


def _elements(path: str, x: Tensor, y: Tensor, rtol: float, atol: float
              ) -> Iterator[Difference]:
    m = x.checkpoint._tree.compare(x._node, y.checkpoint._tree, y._node, rtol,
                                   atol)
    if m.differ:
        known = m.finite > 0
        yield Difference(
            path, "elements", elements=m.differ, of=m.elements, first=m.first,
            at=m.at, max_abs=m.max_abs if known else None,
            max_rel=m.max_rel if known else None,
            ulps=m.ulps if m.ulps != 2 ** 64 - 1 else None, rms=m.rms,
            cosine=None if math.isnan(m.cosine) else m.cosine)


def _same(a: Any, b: Any, rtol: float, atol: float) -> bool:
    if repr(a) == repr(b):
        return True
    if not (rtol or atol) or not isinstance(a, (int, float)) or \
            not isinstance(b, (int, float)):
        return False
    most = max(abs(a), abs(b))
    return a == b or math.isfinite(most) and \
        abs(a - b) <= atol + rtol * most


def _tensors(path: str, x: Tensor, y: Tensor, rtol: float, atol: float
             ) -> Iterator[Difference]:
    if x.dtype != y.dtype:
        yield Difference(path, "dtype", x.dtype, y.dtype)
    elif x.shape != y.shape:
        yield Difference(path, "shape", x.shape, y.shape)
    elif x.shape:
        yield from _elements(path, x, y, rtol, atol)
    else:
        a, b = x.item(), y.item()
        if not _same(a, b, rtol, atol):
            yield Difference(path, "value", a, b)


def _compare(a: Checkpoint, b: Checkpoint, rtol: float, atol: float
             ) -> Iterator[Difference]:
    for path in a:
        if path not in b:
            yield Difference(path, "only in a")
            continue
        x, y = a[path], b[path]
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            yield from _tensors(path, x, y, rtol, atol)
        elif isinstance(x, Tensor) or isinstance(y, Tensor):
            yield Difference(path, "kind", type(x).__name__, type(y).__name__)
        elif not _same(x, y, rtol, atol):
            yield Difference(path, "value", x, y)
    for path in b:
        if path not in a:
            yield Difference(path, "only in b")


def diff(a: Union[PathLike, Checkpoint], b: Union[PathLike, Checkpoint], *,
         rtol: float = 0, atol: float = 0) -> List[Difference]:
    """Compare two checkpoints, of any formats and layouts, by value.

    a and b are paths or opened checkpoints. [] means that they have the same
    training state: equal bits, or with rtol and atol numbers x and y with
    |x - y| <= atol + rtol * max(|x|, |y|). Tensors are compared in the
    library, by several threads and in bounded memory.

    >>> for d in optimfs.diff("step-1000", "step-2000"):
    ...     print(d, d.rms)
    """
    if not (rtol >= 0 and atol >= 0):
        raise ValueError("a tolerance is a number of at least 0")
    opened = []
    try:
        both = []
        for ck in (a, b):
            if not isinstance(ck, Checkpoint):
                ck = open_checkpoint(ck)
                opened.append(ck)
            both.append(ck)
        return list(_compare(both[0], both[1], rtol, atol))
    finally:
        for ck in opened:
            ck.close()
