# SPDX-License-Identifier: Apache-2.0
"""Changing a checkpoint: as a whole, or not at all."""
from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Optional, Tuple

from . import _abi, _dtypes, _values
from ._checkpoint import Checkpoint, Group, PathLike, tree_path, unsynced
from ._errors import NotFoundError
from ._tensor import to_bytes
from ._tree import File


class Editor(Checkpoint, MutableMapping[str, Any]):
    """A checkpoint that is being changed: see optimfs.edit()."""

    __hash__ = object.__hash__

    def __setitem__(self, path: str, value: Any) -> None:
        """Set a value, or all elements of a tensor. A path that is not there
        yet becomes a new tensor with the value's shape and type."""
        path = tree_path(path)
        try:
            st = self._tree.stat(path)
        except NotFoundError:
            self._add(path, value)
            return
        here = self._get(path) if st.is_dir else None
        if isinstance(here, Group):
            raise TypeError("%s is a directory: set what is in it"
                            % (path or "the root"))
        shape = self._tree.xattr(st.node, "shape")
        if shape:
            self._get(path)._write(value)
            return
        self._put(st.node, _values.text(value, path))

    def _put(self, node: int, data: bytes) -> None:
        with File(self._tree, node, write=True, truncate=True) as f:
            f.write(data, 0)
            f.flush()

    def _add(self, path: str, value: Any) -> None:
        shape = getattr(value, "shape", None)
        if shape is None:
            data = _values.text(value, path)
            self._put(self._tree.create(path).node, data)
            return
        dtype = _dtypes.name_of(value.dtype)
        shape = tuple(int(n) for n in shape)
        data = to_bytes(value, shape, dtype) if shape else \
            _values.text(value, path)
        node = self._tree.create(path).node
        self._tree.set_xattr(node, "dtype", dtype)
        self._tree.set_xattr(node, "shape", ",".join(map(str, shape)))
        self._put(node, data)

    def __delitem__(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it."""
        path = tree_path(path)
        if not path:
            raise ValueError("the root cannot be removed")
        self._tree.remove(path)

    def commit(self) -> None:
        """Publish all changes now, as leaving "with" does."""
        unsynced(self._tree.commit())

    def abort(self) -> None:
        """Discard all changes since the last commit."""
        self._tree.abort()

    def __enter__(self) -> "Editor":
        self._tree.drop()  # Ctrl-C may come before __exit__ can do so
        return self

    def __exit__(self, kind: Any = None, *_: object) -> None:
        try:
            if self._tree.inherited:
                pass
            elif kind is None:
                self._finish()
            else:
                self._tree.abort()
        finally:
            self.close()

    def _finish(self) -> None:
        try:
            self.commit()
        except BaseException:
            self._tree.abort()
            raise

    def __reduce__(self) -> Tuple[Any, ...]:
        raise TypeError("a checkpoint that is being changed has one writer")


def edit(path: PathLike, *, recover: str = "no",
         upper: Optional[PathLike] = None, **options: Any) -> Editor:
    """Change a checkpoint. Leaving "with" publishes all changes with one
    rename; an exception discards them all. Without "with", call commit():
    close() keeps what is not committed, as if the writer had died.

    >>> with optimfs.edit("step-1000") as ck:
    ...     ck["optim/param_groups/0/lr"] = 1e-5
    ...     ck["model/head.weight"] = new_head       # an array or a tensor
    ...     ck["model/tok_embeddings.weight"][50000:] = 0
    ...     del ck["extra/lr_scheduler"]

    recover: what to do with the changes of a writer that died: "no" (refuse),
    "yes" (continue with them) or "discard". upper: a directory to stage in.
    Other options are those of optimfs.open().
    """
    try:
        number = _abi.RECOVER[recover]
    except KeyError:
        raise ValueError("recover is 'no', 'yes' or 'discard', not %r"
                         % (recover,)) from None
    return Editor(path, rw=True, explicit_commit=True, recover=number,
                  upper=upper, **options)
