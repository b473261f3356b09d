# SPDX-License-Identifier: Apache-2.0
"""The tree of a checkpoint as an fsspec file system, read-only.

    fs = fsspec.filesystem("optimfs", path="step-1000")
    fs.ls("model")
    fs.cat_file("optim/param_groups/0/lr")

    with fsspec.open("optimfs://.optimfs/npy/model/norm.weight.npy",
                     path="step-1000") as f:
        numpy.load(f)
"""
from __future__ import annotations

import errno
import os
from datetime import datetime, timezone
from typing import Any, Dict, List, Optional

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from ._checkpoint import PathLike, open as _open


class OptimfsFileSystem(AbstractFileSystem):
    """path is the checkpoint; other options are those of optimfs.open()."""

    protocol = "optimfs"
    root_marker = ""

    def __init__(self, path: PathLike, *, type: Optional[str] = None,
                 **options: Any) -> None:
        mine = {k: options.pop(k) for k in (
            "ids", "units", "optim_key", "model_key", "subtree", "fill",
            "join", "base", "names", "cache", "cache_dir", "cache_disk",
            "requests", "request_size", "max_metadata", "parse_mem",
            "strict", "follow")
            if k in options}
        super().__init__(path=path, type=type, **options)
        self._checkpoint = _open(path, type=type, **mine)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        text = str(path)
        if text.startswith("optimfs://"):
            text = text[len("optimfs://"):]
        return text.strip("/")

    def info(self, path: str, **kwargs: Any) -> Dict[str, Any]:
        """name, size (exact), type, and dtype and shape of a tensor."""
        path = self._strip_protocol(path)
        tree, st = self._checkpoint._tree, self._checkpoint.stat(path)
        if st.is_dir:
            return {"name": path, "size": 0, "type": "directory"}
        size = st.size
        if not st.exact:
            with tree.open(path) as f:
                size = f.size
        found = {"name": path, "size": size, "type": "file",
                 "mtime": st.mtime_ns / 1e9}
        for name in ("dtype", "shape"):
            value = tree.xattr(st.node, name)
            if value is not None:
                found[name] = value
        return found

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> List[Any]:
        """What is in a directory; .optimfs can be named, but is not listed."""
        path = self._strip_protocol(path)
        if not self._checkpoint.stat(path).is_dir:
            names = [path]
        else:
            names = ["%s/%s" % (path, n) if path else n
                     for n in self._checkpoint.listdir(path)]
        return [self.info(n) for n in names] if detail else names

    def modified(self, path: str) -> datetime:
        """The time of the newest file that contributes."""
        ns = self._checkpoint.stat(self._strip_protocol(path)).mtime_ns
        return datetime.fromtimestamp(ns / 1e9, timezone.utc)

    def cat_file(self, path: str, start: Optional[int] = None,
                 end: Optional[int] = None, **kwargs: Any) -> bytes:
        """Bytes start to end of a file; negative ones count from its end."""
        with self._checkpoint._tree.open(self._strip_protocol(path)) as f:
            first, last, _ = slice(start, end).indices(f.size)
            return f.read(first, max(last - first, 0))

    def _open(self, path: str, mode: str = "rb", block_size: Any = "default",
              **kwargs: Any) -> "OptimfsFile":
        if mode != "rb":
            raise NotImplementedError("optimfs:// is read-only: see "
                                      "optimfs.edit()")
        if self.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR),
                                    path)
        return OptimfsFile(self, path, mode, block_size, **kwargs)


class OptimfsFile(AbstractBufferedFile):
    """An open file of the tree."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        return bytes(self.fs.cat_file(self.path, start, end))
