# SPDX-License-Identifier: Apache-2.0
"""A checkpoint as a mapping of tree paths to tensors and values."""
from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union
import warnings as _warnings

from . import _names, _show, _values
from ._errors import NotFoundError, UnsyncedWarning, make
from ._report import Report, report
from ._tensor import Tensor, torch_tensors
from ._tree import File, Finding, Reader, Stat, Tree, open_tree

PathLike = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Row:
    """A line of .optimfs/tensors.tsv: what is known of a tensor."""
    path: str
    dtype: str
    shape: Tuple[int, ...]
    nbytes: int
    shards: int
    owners: str


def tree_path(path: Union[str, bytes, "os.PathLike[Any]"]) -> str:
    """A path as the tree has it; TypeError if it is none."""
    return os.fsdecode(path).strip("/")


def parse_shape(text: str) -> Tuple[int, ...]:
    return tuple(int(n) for n in text.split(",")) if text else ()


def no_state_dict(what: str) -> TypeError:
    return TypeError("load_state_dict() needs torch.Tensors of one module: "
                     "give it %s.load()" % what)


class Group(Mapping[str, Any]):
    """A directory of the tree as a nested mapping; values are read on use.

    >>> sd = ck.state_dict()
    >>> sd["optim"]["state"]["norm.weight"]["exp_avg"]
    <optimfs.Tensor optim/state/norm.weight/exp_avg float32 [4096]>
    """

    def __init__(self, checkpoint: "Checkpoint", path: str) -> None:
        self.checkpoint, self.path = checkpoint, path
        self._names: Optional[Dict[str, str]] = None

    def _below(self, name: str) -> str:
        return "%s/%s" % (self.path, name) if self.path else name

    def _key(self, name: str) -> str:
        above = self.path.split("/")
        # of what a parameter's state has, fqn is the parameter's
        if _names.is_cut(name) and \
                not (above[0] == "optim" and "state" in above[:-1]):
            tree = self.checkpoint._tree
            whole = tree.xattr(tree.stat(self._below(name)).node, "fqn")
            if whole is not None:
                return whole
        return _names.decode(name)

    def _index(self) -> Dict[str, str]:
        if self._names is None:
            tree = self.checkpoint._tree
            node = tree.stat(self.path).node
            self._names = {self._key(n): n for n, _ in tree.list(node)}
        return self._names

    def _path(self, key: str) -> str:
        """The path of a key, which may be longer than a file name."""
        return self._below(self._index()[key])

    def __getitem__(self, key: Union[str, int]) -> Any:
        if isinstance(key, int):  # a parameter group, or a parameter's ID
            key = str(key)
        name = _names.encode(key) if isinstance(key, str) else ""
        if self._names is None and name and not _names.too_long(name):
            try:
                return self.checkpoint._get(self._below(name))
            except NotFoundError:
                pass
        try:
            name = self._index()[key]
        except KeyError:
            near = _names.near(key, self._index())
            number = 18 if near else 2
            raise NotFoundError(
                errno.ENOENT, "OFS%03d %s: no such key%s" % (
                    number, self._below(str(key)), near), number) from None
        return self.checkpoint._get(self._below(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._index())

    def __len__(self) -> int:
        return len(self._index())

    @property
    def _metadata(self) -> Any:
        """What torch.nn.Module.load_state_dict() asks for first."""
        raise no_state_dict("ck[%r]" % (self.path or "model"))

    def load(self, tensor: Optional[Callable[[Tensor], Any]] = None,
             device: Any = None) -> Dict[str, Any]:
        """A real dict, nested. Every tensor is read by `tensor`, or else all
        are read at once, as torch.Tensors on device."""
        if tensor is not None:
            if device is not None:
                raise TypeError("tensor says where its result is: no device")
            return self._nested(tensor)
        tensors: List[Tensor] = []
        found = self._nested(lambda t: _Later(tensors, t))
        made = torch_tensors(self.checkpoint._tree, tensors, device)
        _fill(found, made)
        return found

    def _nested(self, tensor: Callable[[Tensor], Any]) -> Dict[str, Any]:
        found: Dict[str, Any] = {}
        for key, value in self.items():
            if isinstance(value, Group):
                value = value._nested(tensor)
            elif isinstance(value, Tensor):
                value = tensor(value)
            found[key] = value
        return found

    def __repr__(self) -> str:
        return "<optimfs.Group %s: %d keys>" % (self.path or "/", len(self))


class _Later:
    """In the place of a tensor that is read with others."""

    def __init__(self, tensors: List[Tensor], t: Tensor) -> None:
        self.at = len(tensors)
        tensors.append(t)


def _fill(found: Dict[str, Any], made: List[Any]) -> None:
    for key, value in found.items():
        if isinstance(value, _Later):
            found[key] = made[value.at]
        elif isinstance(value, dict):
            _fill(value, made)


class View:
    """The checkpoint in another format or layout, computed as it is read."""

    def __init__(self, checkpoint: "Checkpoint", name: str) -> None:
        self.checkpoint, self.name = checkpoint, name
        self._path = ".optimfs/view/" + name

    def files(self) -> List[str]:
        """The names of the files, below the view."""
        skip = len(self._path) + 1
        return [p[skip:] for p in self.checkpoint._tree.walk(self._path)]

    def open(self, path: str) -> io.BufferedIOBase:
        """A file of the view, for reading."""
        return self.checkpoint.open("%s/%s" % (self._path, path))

    def save(self, directory: PathLike, jobs: int = 0,
             progress: Optional[Callable[[int, int], None]] = None) -> None:
        """Write the files to a new directory, which appears complete or not
        at all. If a call was interrupted, the next one continues from there.

        jobs: files written at once; progress: called with (done, total)
        bytes a few times a second.
        """
        unsynced(self.checkpoint._tree.reshard(self.name, directory, jobs,
                                               progress))

    def __repr__(self) -> str:
        return "<optimfs.View %s of %s>" % (
            self.name, _show.shown(self.checkpoint.path))


def unsynced(text: Optional[str]) -> None:
    if text is not None:
        _warnings.warn(text, UnsyncedWarning, stacklevel=3)


class Checkpoint(Mapping[str, Any]):
    """An opened checkpoint: a read-only mapping of paths to tensors and values.

    ck["model/norm.weight"]        a Tensor: shape, dtype, no data yet
    ck["optim/param_groups/0/lr"]  a number, string, list, dict or None
    ck["optim/state"]              a Group, which is a mapping again

    keys() are the paths of all files of the tree, as optimfs(5) has it.
    A checkpoint can be used by any number of threads, pickled (it is opened
    again), and closed by "with" or close().
    """

    def __init__(self, path: PathLike, **options: Any) -> None:
        self._hold(open_tree(path, **options), options)

    def _hold(self, tree: Tree, options: Dict[str, Any]) -> None:
        self.path, self._tree, self._options = tree.path, tree, options

    @classmethod
    def _of(cls, tree: Tree, options: Dict[str, Any]) -> "Checkpoint":
        """One whose tree is open; options open its path again."""
        ck = cls.__new__(cls)
        ck._hold(tree, options)
        return ck

    # A mapping.

    def __iter__(self) -> Iterator[str]:
        return self._tree.walk()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def _metadata(self) -> Any:
        """What torch.nn.Module.load_state_dict() asks for first."""
        raise no_state_dict('ck["model"]')

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        try:
            self._tree.stat(tree_path(path))
        except NotFoundError:
            return False
        return True

    def __getitem__(self, path: str) -> Any:
        path = tree_path(path)
        try:
            return self._get(path)
        except NotFoundError:
            self._find(path)
            raise

    def _find(self, path: str) -> Stat:
        """What is at a path. The error suggests the name that was meant."""
        try:
            return self._tree.stat(path)
        except NotFoundError as e:
            near = self._near(path) or _names.ending(path, self) or \
                _names.beginning(path, self)
            if not near:
                raise
            code: Any = e.errno
            raise NotFoundError(code, "OFS018%s%s" % (
                str(e.strerror)[len("OFS002"):], near), 18) from None

    def _near(self, path: str) -> str:
        """A suggestion for the first name of path that does not exist."""
        above = ""
        for name in path.split("/"):
            here = self._tree.stat(above)
            below = "%s/%s" % (above, name) if above else name
            if below in self:
                above = below
            elif here.is_dir:
                return _names.near(name, (n for n, _ in
                                          self._tree.list(here.node)))
            else:
                return ""
        return ""

    def _get(self, path: str) -> Any:
        st = self._tree.stat(path)
        if st.is_dir:
            return Group(self, path)
        dtype = self._tree.xattr(st.node, "dtype")
        shape = self._tree.xattr(st.node, "shape")
        if dtype is not None and shape is not None:
            return Tensor(self, path, st.node, dtype, parse_shape(shape))
        kind = self._tree.xattr(st.node, "kind") or ""
        with File(self._tree, st.node) as f:
            text = f.read()
        if kind == "object" and "/param_groups/" not in path and \
                not path.endswith("/step"):
            # Is 12 a number or a string? Options and steps are numbers.
            kind = self._tree.xattr(st.node, "value_kind") or ""
        return _values.parse(text, kind, path)

    # What it is.

    def info(self) -> Dict[str, Any]:
        """Format, writer, world size, counts and bytes: info.json."""
        found: Dict[str, Any] = json.loads(
            self._tree.read(".optimfs/info.json"))
        return found

    def summary(self, path: str = "") -> Dict[str, Any]:
        """Describe the checkpoint, or a directory or file of it: format,
        writer, step, parameters, optimizers, sharding, damage. The members
        are those of `optimfs info --json` (docs/json.md). print(ck) shows a
        shorter description."""
        found: Dict[str, Any] = json.loads(
            self._tree.summary(tree_path(path), "json"))
        return found

    def statistics(self, path: str) -> Dict[str, Union[int, float, str]]:
        """Statistics of the elements of a tensor: elements, nan, inf, zeros,
        min, max, mean, std, l2, rms, ... and the histogram of exponents; of
        a directory, those of all tensors in it together. Equal states have
        equal statistics, whatever their layout. Reads the tensors in the
        library, in bounded memory, by one thread a processor."""
        return self._tree.statistics(tree_path(path))

    def tensors(self) -> Iterator[Row]:
        """One Row per tensor, from the index alone."""
        text = self._tree.read(".optimfs/tensors.tsv")
        lines = text.decode("utf-8", "surrogateescape").split("\n")
        names = lines[0].split("\t")
        for line in lines[1:]:
            if line:
                c = dict(zip(names, line.split("\t")))
                yield Row(c["path"], c["dtype"], parse_shape(c["shape"]),
                          int(c["bytes"]), int(c["shards"]), c["owners"])

    def check(self) -> List[Finding]:
        """What `optimfs check` finds: states that a correct run does not
        leave, the most important first. An empty list: it is sound. Reads
        the optimizers and the model."""
        return self._tree.check()

    def report(self, other: Optional[PathLike] = None, *, data: bool = True
               ) -> Report:
        """The page of `optimfs report`: verdict, findings, statistics, which
        rank holds what; with another checkpoint also what differs. Reads all
        tensors; with data=False, of one checkpoint, only the index. A notebook
        displays it, .save("report.html") writes it."""
        paths = [self.path] + ([] if other is None else [os.fsdecode(other)])
        return report(paths, self._options, data)

    def glob(self, pattern: str) -> List[str]:
        """The paths of files that match, layers.2 before layers.10. "*"
        stays within a component: "optim/state/*/exp_avg"."""
        return sorted((p for p in self if _names.matches(pattern, p)),
                      key=_names.natural)

    def tree(self, path: str = "", depth: int = 3) -> "_show.Text":
        """The directories below path, with the number of files in each."""
        return _show.tree(self._tree, tree_path(path), depth)

    def stat(self, path: str) -> Stat:
        """Size, mode and time of a file or directory."""
        return self._find(tree_path(path))

    def stats(self) -> Dict[str, int]:
        """Counters of the reads so far."""
        lines = self._tree.read(".optimfs/stats").decode().splitlines()
        return {name: int(n) for name, n in (s.split() for s in lines)}

    def notes(self, name: str) -> List[str]:
        """The lines of .optimfs/<name>: "warnings", "missing", "errors" or
        "globals"."""
        text = self._tree.read(".optimfs/" + name)
        return text.decode("utf-8", "replace").splitlines()

    def state_dict(self) -> Group:
        """The whole tree as nested mappings by key; nothing is read yet."""
        return Group(self, "")

    def load(self, model: Any, strict: bool = True, mapping: Any = None
             ) -> Any:
        """Read model/ into a torch.nn.Module, or into a dict of torch.Tensors,
        in place and at once: see optimfs.torch.load_into()."""
        from .torch import load_into
        return load_into(self, model, strict=strict, mapping=mapping)

    @property
    def optimizers(self) -> Dict[str, Group]:
        """The optimizers by name; a single optimizer has the name ""."""
        if "optim" not in self:
            return {}
        below = self._get("optim")
        if "state" in below or "param_groups" in below:
            return {"": below}
        return {name: g for name, g in below.items() if isinstance(g, Group)}

    @property
    def param_groups(self) -> Any:
        """The optimizer's groups: a list of dicts; "params" has the names. With
        several optimizers: a dict of such lists by name. A tensor without
        dimensions, such as lr may be, is a number."""
        found = {name: [g.load(_option) for _, g in sorted(
            o.get("param_groups", {}).items(), key=_by_number)]
            for name, o in self.optimizers.items()}
        return found.get("", []) if set(found) <= {""} else found

    # Files, and other forms.

    def open(self, path: str) -> io.BufferedIOBase:
        """Any file of the tree, .optimfs/ included, as a binary file."""
        path = tree_path(path)
        self._find(path)
        return Reader(self._tree.open(path))

    def listdir(self, path: str = "") -> List[str]:
        """The names in a directory of the tree."""
        path = tree_path(path)
        st = self._find(path)
        if not st.is_dir:
            raise make(errno.ENOTDIR, 9, "OFS009 %s: not a directory" % path)
        return [n for n, _ in self._tree.list(st.node)]

    def view(self, name: str) -> View:
        """The checkpoint as FORMAT[@LAYOUT][,option]...: "dcp@8",
        "safetensors,hf,only=model", "zero3@16" (see optimfs(5))."""
        return View(self, name)

    def close(self) -> None:
        """Close the checkpoint. Reads in other threads still complete."""
        self._tree.close()

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, kind: Any = None, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return (_open_again, (self.path, self._options))

    def __repr__(self) -> str:
        return _show.line(self)

    def _repr_html_(self) -> str:
        return _show.checkpoint(self)

    # Equal only when the same: comparing values is optimfs.diff().
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def _option(t: Tensor) -> Any:
    return t.torch() if t.shape else t.item()


def _by_number(item: Tuple[str, Any]) -> Tuple[int, str]:
    return (int(item[0]) if item[0].isdigit() else 1 << 62, item[0])


def _open_again(path: str, options: Dict[str, Any]) -> Checkpoint:
    return Checkpoint(path, **options)


def open(path: PathLike, *, type: Optional[str] = None,
         ids: Optional[PathLike] = None, units: Optional[PathLike] = None,
         optim_key: Optional[str] = None, model_key: Optional[str] = None,
         subtree: Optional[str] = None, fill: Optional[str] = None,
         join: Optional[PathLike] = None, base: Optional[PathLike] = None,
         names: Optional[PathLike] = None,
         cache: Optional[int] = None,
         cache_dir: Optional[PathLike] = None,
         cache_disk: Optional[int] = None, requests: Optional[int] = None,
         request_size: Optional[int] = None,
         max_metadata: Optional[int] = None,
         parse_mem: Optional[int] = None, strict: bool = False,
         follow: bool = False) -> Checkpoint:
    """Open a checkpoint of any format that optimfs reads.

    path is its directory or file, or an address (https://, s3://, hf://).
    Only the index is read. The options are
    those of optimfs(1): type (the format, if it is not detected), ids and
    units (files that name parameters), optim_key and model_key (where they
    are), subtree (only that part), fill ("zero"), join (another directory with
    a part of the checkpoint), base (for a version of a run that is stored as
    changes, "RUN:3": the checkpoint that the first version changes), names (a file with families of names for views),
    cache (bytes of memory for decoded data), cache_dir and cache_disk (a
    directory that keeps what was read of addresses, and its bytes), requests
    and request_size (how many ranges a server is asked for at once, and the
    bytes of one; of these four what a process gives first counts), max_metadata and parse_mem (limits in bytes for an index,
    and for the memory to parse one), strict (refuse a damaged checkpoint),
    follow (symbolic links).

    >>> with optimfs.open("step-1000") as ck:
    ...     print(ck)
    ...     w = ck["model/norm.weight"].torch()
    """
    return Checkpoint(path, type=type, ids=ids, units=units,
                      optim_key=optim_key, model_key=model_key,
                      subtree=subtree, fill=fill, join=join, base=base,
                      names=names, cache=cache,
                      cache_dir=cache_dir, cache_disk=cache_disk,
                      requests=requests, request_size=request_size,
                      max_metadata=max_metadata, parse_mem=parse_mem,
                      strict=strict, follow=follow)
