# SPDX-License-Identifier: Apache-2.0
"""Two checkpoints by value, across formats and layouts."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, List, Union

from ._checkpoint import Checkpoint, PathLike, open as open_checkpoint
from ._tensor import Tensor

# A multiple of every element's size.
PIECE = 8 << 20


@dataclass(frozen=True)
class Difference:
    """What differs at a path. kind: "only in a", "only in b", "kind",
    "dtype", "shape", "value" (of a text) or "elements" (how many)."""
    path: str
    kind: str
    a: Any = None
    b: Any = None
    elements: int = 0

    def __str__(self) -> str:
        if self.kind.startswith("only"):
            return "%s: %s" % (self.path, self.kind)
        if self.kind == "elements":
            return "%s: %d elements differ" % (self.path, self.elements)
        return "%s: %s is %r, and %r in b" % (self.path, self.kind, self.a,
                                              self.b)


def _differing(a: bytes, b: bytes, item: int) -> int:
    if a == b:
        return 0
    return sum(a[i:i + item] != b[i:i + item]
               for i in range(0, max(len(a), len(b)), item))


def _tensors(path: str, x: Tensor, y: Tensor) -> Iterator[Difference]:
    if x.dtype != y.dtype:
        yield Difference(path, "dtype", x.dtype, y.dtype)
    elif x.shape != y.shape:
        yield Difference(path, "shape", x.shape, y.shape)
    elif not x.shape:
        a, b = x.item(), y.item()
        if repr(a) != repr(b):
            yield Difference(path, "value", a, b)
    else:
        differ = 0
        with x.checkpoint._tree.open(path) as f, \
                y.checkpoint._tree.open(path) as g:
            for off in range(0, x.nbytes, PIECE):
                differ += _differing(f.read(off, min(PIECE, x.nbytes - off)),
                                     g.read(off, min(PIECE, x.nbytes - off)),
                                     x.itemsize)
        if differ:
            yield Difference(path, "elements", elements=differ)


def _compare(a: Checkpoint, b: Checkpoint) -> Iterator[Difference]:
    for path in a:
        if path not in b:
            yield Difference(path, "only in a")
            continue
        x, y = a[path], b[path]
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            yield from _tensors(path, x, y)
        elif isinstance(x, Tensor) or isinstance(y, Tensor):
            yield Difference(path, "kind", type(x).__name__, type(y).__name__)
        elif repr(x) != repr(y):
            yield Difference(path, "value", x, y)
    for path in b:
        if path not in a:
            yield Difference(path, "only in b")


def diff(a: Union[PathLike, Checkpoint], b: Union[PathLike, Checkpoint]
         ) -> List[Difference]:
    """Compare two checkpoints, of any formats and layouts, byte for byte.

    a and b are paths or opened checkpoints. [] says that they hold the same
    training state.

    >>> for d in optimfs.diff("step-1000", "step-2000"):
    ...     print(d)
    """
    opened = []
    try:
        both = []
        for ck in (a, b):
            if not isinstance(ck, Checkpoint):
                ck = open_checkpoint(ck)
                opened.append(ck)
            both.append(ck)
        return list(_compare(*both))
    finally:
        for ck in opened:
            ck.close()
