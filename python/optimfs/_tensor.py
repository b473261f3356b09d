# SPDX-License-Identifier: Apache-2.0
"""A tensor of a checkpoint: its description now, its elements when asked."""
from __future__ import annotations

import ctypes as c
import json
import sys
from dataclasses import dataclass
from typing import (TYPE_CHECKING, Any, Dict, Iterator, List, Optional,
                    Sequence, Tuple)

from . import _box, _dtypes, _show
from ._tree import File, Part, Tree, address

if TYPE_CHECKING:
    from ._checkpoint import Checkpoint

# What is read at once where small gaps are read along.
SCRATCH = 4 << 20
# Runs that are read by one call.
TOGETHER = 65536
# print() shows more elements than these only of a slice.
MANY = 1000


@dataclass(frozen=True)
class Shard:
    """A stored box of a tensor: where it begins, how large it is, and where
    its bytes are."""
    offsets: Tuple[int, ...]
    sizes: Tuple[int, ...]
    rank: Optional[int]
    file: str
    offset: int
    length: int
    encoding: str
    codec: Optional[str] = None
    replica: bool = False


class Tensor:
    """A tensor of a checkpoint, or a slice of one. Nothing is read until
    .numpy(), .torch(), .tobytes(), .item() or .read_into() is called.

    path      where it is in the tree: "model/norm.weight"
    shape     a tuple; () for a scalar
    dtype     "float32", "bfloat16", "float8_e4m3fn", ...
    nbytes    how many bytes the elements have

    t[1000:2000, :64] is again a Tensor, of which only the bytes that it
    covers (give or take a page) are read:

    >>> w = ck["model/tok_embeddings.weight"]     # (128256, 4096) bfloat16
    >>> w[1000:2000, :64].numpy("float32").shape
    (1000, 64)
    """

    def __init__(self, checkpoint: "Checkpoint", path: str, node: int,
                 dtype: str, shape: Tuple[int, ...],
                 box: Optional[_box.Box] = None,
                 kept: Optional[List[int]] = None) -> None:
        self.checkpoint = checkpoint
        self.path = path
        self.dtype = dtype
        self._node = node
        self._full = shape
        self._box = _box.whole(shape) if box is None else box
        self._kept = list(range(len(shape))) if kept is None else kept
        self.shape: Tuple[int, ...] = tuple(
            len(self._box[d]) for d in self._kept)

    # What is known without reading.

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return _box.count(self._box)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _dtypes.itemsize(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def name(self) -> str:
        """The parameter's name below optim/state, the key elsewhere."""
        return self._attribute("fqn") or self.path

    @property
    def attributes(self) -> Dict[str, str]:
        """The attributes of optimfs(5) that this tensor has, but crc32."""
        names = ("fqn", "raw_fqn", "kind", "dtype", "shape", "shards",
                 "owners", "source", "unit", "index", "requires_grad", "error")
        found = {n: self._attribute(n) for n in names}
        return {n: v for n, v in found.items() if v is not None}

    @property
    def shards(self) -> List[Shard]:
        """The stored boxes of the whole tensor."""
        text = self.checkpoint._tree.read(".optimfs/layout/" + self.path)
        return [Shard(tuple(s["offsets"]), tuple(s["sizes"]), s.get("rank"),
                      s["file"], s["offset"], s["length"], s["encoding"],
                      s.get("codec"), s.get("replica", False))
                for s in json.loads(text)["shards"]]

    def _attribute(self, name: str) -> Optional[str]:
        return self.checkpoint._tree.xattr(self._node, name)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no len()")
        return self.shape[0]

    def __iter__(self) -> Iterator["Tensor"]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self.item())

    # "in" would compare objects, and not find an element that is there.
    __contains__ = None

    def __getitem__(self, key: Any) -> "Tensor":
        """A part: integers, slices with positive steps, and "..."."""
        box, kept = _box.index(self._box, self._kept, key)
        return Tensor(self.checkpoint, self.path, self._node, self.dtype,
                      self._full, box, kept)

    # Reading.

    def read_into(self, buffer: Any) -> None:
        """The elements, in C order, into a writable buffer of .nbytes bytes."""
        view = memoryview(buffer)
        if view.nbytes != self.nbytes:
            raise ValueError("a buffer of %d bytes for %d"
                             % (view.nbytes, self.nbytes))
        at = address(view)
        if at is None:
            return
        if self._full:
            self._read_at(c.addressof(at))
        else:
            at.raw = self.tobytes()

    def _require(self) -> None:
        """Raise the error of a damaged tensor, which may claim any size, before
        memory is allocated for it."""
        File(self.checkpoint._tree, self._node).close()

    def _read_at(self, at: int) -> None:
        """The same to an address. Tensors with dimensions only."""
        tree, node, item = self.checkpoint._tree, self._node, self.itemsize
        parts: List[Part] = []
        for first, n in _box.runs(self._full, self._box):
            if len(parts) == TOGETHER:
                tree.load(parts)
                parts = []
            parts.append((node, first * item, n * item, at))
            at += n * item
        if len(parts) > 1:
            tree.load(parts)
        elif parts:
            self._exactly(*parts[0][1:])

    def _exactly(self, off: int, n: int, to: int) -> None:
        with File(self.checkpoint._tree, self._node) as f:
            got = f.read_at(to, n, off)
        if got != n:
            raise EOFError("%s: %d of %d bytes at %d"
                           % (self.path, got, n, off))

    def _parts(self, at: int) -> Optional[List[Part]]:
        """What to read to have the elements at an address; None: gaps would
        be read along. Tensors with dimensions only."""
        parts = []
        for off, n, pieces in _box.reads(self._full, self._box, self.itemsize,
                                         SCRATCH):
            if len(pieces) != 1:
                return None
            parts.append((self._node, off, n, at + pieces[0][1]))
        return parts

    def tobytes(self) -> bytes:
        """The elements in C order, little-endian."""
        if not self._full:
            raw: bytes = self._scalar(_dtypes.raw_dtype(self.dtype)).tobytes()
            return raw
        self._require()
        b = bytearray(self.nbytes)
        self.read_into(b)
        return bytes(b)

    def numpy(self, dtype: Any = None) -> Any:
        """A new NumPy array of the elements.

        dtype: what to convert to. Types that NumPy lacks (bfloat16, the
        float8 ones) need the package ml_dtypes or a dtype: numpy("float32")
        is exact for all of them. A TypeError says so; there is never an
        array of raw bytes.
        """
        import numpy as np
        wanted = None if dtype is None else np.dtype(dtype)
        wide = _dtypes.widened(self.dtype)
        if wanted is not None and wide is not None and \
                wanted.name != self.dtype:
            a = _dtypes.widen(self._array(_dtypes.raw_dtype(self.dtype)),
                              self.dtype)
        else:
            a = self._array(_dtypes.numpy_dtype(self.dtype))
        if wanted is None:
            return a
        with np.errstate(invalid="ignore"):  # a signalling NaN stays one
            return a.astype(wanted, copy=False)

    def _array(self, dtype: Any) -> Any:
        import numpy as np
        if not self._full:
            return self._scalar(dtype)
        self._require()
        a = np.empty(self.shape, dtype)
        if a.nbytes:
            self._read_at(a.ctypes.data)
        return a

    def _value(self) -> Any:
        from ._values import parse
        return parse(self.checkpoint._tree.read(self.path), "scalar",
                     self.path)

    def _scalar(self, dtype: Any) -> Any:
        """A tensor without dimensions, from its text."""
        import numpy as np
        value = self._value()
        if _dtypes.widened(self.dtype) and dtype.kind == "u":
            return np.array(_dtypes.narrow(value, self.dtype), dtype)
        return np.array(value, dtype)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if copy is False:  # what NumPy 2 says if there must be none
            raise ValueError("the elements of a checkpoint are read: there "
                             "is no array of them without a copy")
        return self.numpy(dtype)

    def torch(self, device: Any = None, dtype: Any = None) -> Any:
        """A new torch.Tensor of the elements, on device, as dtype.

        To a CUDA device the bytes go through pinned memory, while the next
        ones are read.
        """
        return torch_tensors(self.checkpoint._tree, [self], device)[0].to(
            dtype=dtype)

    def _torch_here(self) -> Any:
        """The same in the memory of this process, whatever the default device
        is, read by this thread."""
        import torch
        kind = _dtypes.torch_dtype(self.dtype)
        if not self._full:
            return torch.tensor(self._value(), dtype=kind, device="cpu")
        t = torch.empty(self.shape, dtype=kind, device="cpu")
        if self.nbytes:
            self._read_at(t.data_ptr())
        return t

    def __dlpack__(self, **how: Any) -> Any:
        """For torch.as_tensor(t), torch.from_dlpack(t), numpy.from_dlpack(t):
        the elements are read."""
        made = self.torch("cpu") if "torch" in sys.modules else self.numpy()
        return made.__dlpack__(**how)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (1, 0)  # kDLCPU

    def item(self) -> Any:
        """The only element, as a Python number."""
        if self.size != 1:
            raise ValueError("a tensor of %d elements is no single number"
                             % self.size)
        if not self._full:
            return self._value()
        return self.numpy(_dtypes.widened(self.dtype)).item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    # Writing, in "with optimfs.edit(...)".

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write elements: value has the shape of what key picks, or is
        broadcast to it, and is converted to the tensor's type."""
        self[key]._write(value)

    def _write(self, value: Any) -> None:
        if not self._full:
            editor: Any = self.checkpoint
            editor[self.path] = value
            return
        data = to_bytes(value, self.shape, self.dtype)
        covers = self._box == _box.whole(self._full)
        with File(self.checkpoint._tree, self._node, write=True) as f:
            if covers:
                f.write(data, 0)
            else:
                done, item = 0, self.itemsize
                for first, n in _box.runs(self._full, self._box):
                    f.write(data[done:done + n * item], first * item)
                    done += n * item
            f.flush()

    def __reduce__(self) -> Any:
        return (_again, (self.checkpoint, self.path, self._box, self._kept))

    def __repr__(self) -> str:
        return "<optimfs.Tensor %s %s %s>" % (
            self.path, self.dtype, list(self.shape))

    def __str__(self) -> str:
        """The elements, where they are not many; print(t[0:4])."""
        text = _show.numbers(self) if self.size <= MANY else ""
        return text or repr(self)

    def _repr_html_(self) -> str:
        return _show.tensor(self)


class Loading:
    """Torch tensors that get elements of a checkpoint, all in one call, which
    reads with several threads."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._parts: Dict[Any, List[Part]] = {}

    @staticmethod
    def reaches(target: Any) -> bool:
        """Can bytes be read to where this tensor is? A subclass may have its
        elements elsewhere, or in another form."""
        import torch
        kind = target.device.type
        return type(target) in (torch.Tensor, torch.nn.Parameter) and \
            target.is_contiguous() and \
            not (target.is_conj() or target.is_neg()) and (
                kind == "cpu" or (kind == "cuda" and
                                  torch.version.cuda is not None))

    def add(self, target: Any, t: Tensor) -> None:
        """t has the shape of target."""
        if not t.nbytes:
            return
        direct = t._full and target.dtype == _dtypes.torch_dtype(t.dtype) \
            and self.reaches(target)
        parts = t._parts(target.data_ptr()) if direct else None
        if parts is None:
            target.copy_(t._torch_here())
        else:
            self._parts.setdefault(target.device, []).extend(parts)

    def run(self) -> None:
        import torch
        for device, parts in self._parts.items():
            if device.type == "cpu":
                self._tree.load(parts)
            else:
                self._tree.load(
                    parts, device.index,
                    torch.cuda.current_stream(device).cuda_stream)


def torch_tensors(tree: Tree, tensors: Sequence[Tensor], device: Any = None
                  ) -> List[Any]:
    """New torch.Tensors of the elements of several, on device."""
    import torch
    made: List[Any] = []
    loading = Loading(tree)
    for t in tensors:
        if t._full:
            t._require()
        made.append(torch.empty(t.shape, device=device,
                                dtype=_dtypes.torch_dtype(t.dtype)))
        loading.add(made[-1], t)
    loading.run()
    return made


def to_bytes(value: Any, shape: Tuple[int, ...], dtype: str) -> bytes:
    """The elements to write for a value; those of a Tensor of the same type
    need no NumPy type."""
    if not isinstance(value, Tensor):
        return _dtypes.to_bytes(value, shape, dtype)
    if value.dtype != dtype:
        wide = value.numpy(_dtypes.widened(value.dtype))
        return _dtypes.to_bytes(wide, shape, dtype)
    raw = value._array(_dtypes.raw_dtype(dtype))
    return bytes(_dtypes.spread(raw, shape).tobytes())


def _again(checkpoint: "Checkpoint", path: str, box: _box.Box,
           kept: List[int]) -> Tensor:
    t = checkpoint[path]
    return Tensor(checkpoint, path, t._node, t.dtype, t._full, box, kept)


__all__ = ["Tensor", "Shard"]
