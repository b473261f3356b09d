# SPDX-License-Identifier: Apache-2.0
"""Load checkpoints of any format into PyTorch.

    import torch.distributed.checkpoint as dcp
    from optimfs.torch import StorageReader

    dcp.load(state_dict, storage_reader=StorageReader("step-1000"))

loads a checkpoint of DeepSpeed, Megatron-Core, FSDP or any other format that
optimfs reads, into the sharding of state_dict: each rank reads only its own
parts. (PyTorch 2.3 and later.)

    optimfs.torch.load("step-1000", mmap=True)

returns the whole state dict as plain tensors. (Any PyTorch.)
"""
from __future__ import annotations

import io
import json
import logging
import mmap as _mmap
import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import (Any, Callable, Dict, List, NamedTuple, Optional, Tuple,
                    Union)

import torch as _torch

from . import _dtypes, _names
from ._checkpoint import Checkpoint, Group, PathLike, open as _open
from ._errors import NotFoundError
from ._tensor import Loading, Tensor

__all__ = ["StorageReader", "load", "load_into"]

_log = logging.getLogger(__name__)

Mapping = Union[None, PathLike, Dict[str, str], Callable[[str], str]]

MODEL_ROOTS = ("model", "state_dict")
OPTIM_ROOTS = ("optim", "optimizer")
# what docs/naming.md takes for an optimizer
OPTIMIZER = re.compile("optim.*|.*optim(izer)?|opt|adamw?|sgd|lion|adafactor"
                       "|muon", re.IGNORECASE)
WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.",
            "_orig_mod.")


def _read_mapping(path: PathLike) -> Dict[str, str]:
    """A JSON object, or lines "name <blank> name in the checkpoint"."""
    with open(os.fspath(path), encoding="utf-8") as f:
        text = f.read()
    if text.lstrip().startswith("{"):
        found: Dict[str, str] = json.loads(text)
        return found
    lines = [s.split() for s in text.splitlines()
             if s.strip() and not s.lstrip().startswith("#")]
    for words in lines:
        if len(words) != 2:
            raise ValueError("%s: %r is no pair of names"
                             % (path, " ".join(words)))
    return {mine: theirs for mine, theirs in lines}


def _mapping(given: Mapping) -> Callable[[str], str]:
    if given is None:
        return lambda name: name
    if callable(given):
        return given
    table = given if isinstance(given, dict) else _read_mapping(given)
    return lambda name: table.get(name, name)


def _unwrapped(name: str) -> str:
    """Without what wrappers put into names: the tree has them without."""
    for word in WRAPPERS:
        name = name.replace(word, "")
    return name[len("module."):] if name.startswith("module.") else name


class _Names:
    """Keys of a state dict, as torch.distributed.checkpoint flattens it, to
    paths of the tree.

    A key is found if, after any prefix of whole components, it is
    model.<fqn>, optim.state.<fqn>.<name> or optim.param_groups.<i>.<option>
    ("optimizer" does too); or if it is <fqn> itself, or a path in extra.
    """

    def __init__(self, ck: Checkpoint, mapping: Mapping) -> None:
        self._ck, self._map = ck, _mapping(mapping)
        self._groups: Optional[List[Dict[str, Any]]] = None
        # checkpoint's name -> the state dict's, as they are asked for
        self.back: Dict[str, str] = {}

    def _there(self, *keys: str) -> Optional[str]:
        names = [_names.encode(k) for k in keys]
        path = "/".join(names)
        if not any(_names.too_long(n) for n in names):
            return path if path in self._ck else None
        here: Any = self._ck.state_dict()
        for k in keys[:-1]:
            here = here.get(k) if isinstance(here, Group) else None
        if not isinstance(here, Group) or keys[-1] not in here:
            return None
        return here._path(keys[-1])

    def _named(self, above: List[str], name: str, rest: List[str]
               ) -> Optional[str]:
        """The path of a parameter, or of what is below it."""
        for there in (self._map(name), _unwrapped(name)):
            path = self._there(*above, there, *rest)
            if path is not None:
                self.back[there] = name
                return path
        return None

    def _model(self, rest: List[str]) -> Optional[str]:
        return self._named(["model"], ".".join(rest), [])

    def _state(self, above: List[str], rest: List[str]) -> Optional[str]:
        for j in range(len(rest) - 1, 0, -1):
            path = self._named(above + ["state"], ".".join(rest[:j]), rest[j:])
            if path is not None:
                return path
        return None

    def groups(self) -> List[Dict[str, Any]]:
        if self._groups is None:
            found = self._ck.param_groups
            self._groups = found if isinstance(found, list) else []
        return self._groups

    def _elements(self, name: str) -> int:
        path = self._there("model", name)
        found = self._ck[path] if path is not None else None
        return found.size if isinstance(found, Tensor) else 1

    def group_of(self, params: List[str]) -> Optional[int]:
        """The group that has these parameters of the state dict, most of their
        elements if several have some; None where names say nothing."""
        wanted = {n for p in params for n in (self._map(p), _unwrapped(p))}
        has = {}
        for i, g in enumerate(self.groups()):
            named = wanted.intersection(map(str, g.get("params", ())))
            if named:
                has[i] = sum(map(self._elements, named))
        if len(has) > 1:
            _log.info("%s: a group of the state dict is in groups %s of the "
                      "checkpoint", self._ck.path, sorted(has))
        return max(has, key=has.__getitem__) if has else None

    def _option(self, above: List[str], rest: List[str]) -> Optional[str]:
        if not rest:
            return self._there(*above, "param_groups")
        group, option = ".".join(rest[:-1]), rest[-1]
        path = self._there(*above, "param_groups", group, option)
        if path is not None or group.isdigit():
            return path
        for i, g in enumerate(self.groups()):
            if self._map(group) in g.get("params", ()):
                return self._there(*above, "param_groups", str(i), option)
        return None

    def _optim(self, above: List[str], rest: List[str]) -> Optional[str]:
        if rest[:1] == ["state"]:
            return self._state(above, rest[1:])
        if rest[:1] == ["param_groups"]:
            return self._option(above, rest[1:])
        if len(above) == 1 and len(rest) > 1:  # one of several optimizers
            return self._optim(above + rest[:1], rest[1:])
        return None

    def _extra(self, above: List[str], parts: List[str]) -> Optional[str]:
        for j in range(len(parts), 0, -1):
            path = self._there(*above, ".".join(parts[:j]))
            if path is None:
                continue
            if j == len(parts):
                return path
            below = self._extra(above + [".".join(parts[:j])], parts[j:])
            if below is not None:
                return below
        return None

    def _optimizer(self, parts: List[str]) -> Optional[str]:
        """Below an optimizer of another name. The tree calls several by one of
        their keys, or by all."""
        found = None
        for j, part in enumerate(parts):
            if j == 0 or part not in ("state", "param_groups"):
                continue
            for name in parts[j - 1::-1] + [".".join(parts[:j])]:
                found = found or self._optim(["optim", name], parts[j:])
            if any(map(OPTIMIZER.fullmatch, parts[:j][-2:])):
                found = found or self._optim(["optim"], parts[j:])
        return found

    def path(self, key: str) -> Optional[str]:
        """The path of a key; None if the checkpoint has nothing for it."""
        parts = key.split(".")
        found = self._model(parts)
        for i, part in enumerate(parts):
            if found is not None:
                return found
            if part in MODEL_ROOTS:
                found = self._model(parts[i + 1:])
            elif part in OPTIM_ROOTS:
                found = self._optim(["optim"], parts[i + 1:])
        return found or self._optimizer(parts) or \
            self._extra(["extra"], parts)


def _is_option(key: str) -> bool:
    parts = key.split(".")
    return "param_groups" in parts[:-2] and any(
        map(OPTIMIZER.fullmatch, parts[:parts.index("param_groups")][-2:]))


def _key_of(path: str) -> Tuple[str, Tuple[Any, ...]]:
    """The key of a path of the tree, and how it nests."""
    keys = [_names.decode(n) for n in path.split("/")]
    if keys[0] == "extra":
        keys = keys[1:]
    nested = tuple(int(k) if k.isdigit() and i and
                   keys[i - 1] == "param_groups" else k
                   for i, k in enumerate(keys))
    return ".".join(keys), nested


# What dcp.load works with.

try:
    from torch.distributed.checkpoint.metadata import (
        BytesStorageMetadata, ChunkStorageMetadata, Metadata, TensorProperties,
        TensorStorageMetadata)
    from torch.distributed.checkpoint.planner import LoadItemType
    from torch.distributed.checkpoint import storage as _storage
    from torch.futures import Future
    _StorageReader: Any = _storage.StorageReader
except ImportError:  # before PyTorch 2.3
    _StorageReader = None


class _Index(Dict[str, Any]):
    """key -> metadata. All that the checkpoint has can be listed; any other
    name that leads there is found when it is asked for."""

    def __init__(self, reader: "StorageReader") -> None:
        super().__init__()
        self._reader, self._listed = reader, False

    def _list(self) -> None:
        if not self._listed:
            self._listed = True
            for path in self._reader.checkpoint:
                self._reader.nested.update([_key_of(path)])
                self._find(_key_of(path)[0])

    def _find(self, key: str) -> bool:
        if not super().__contains__(key):
            made = self._reader.describe(key)
            if made is None:
                return False
            self[key] = made
        return True

    def __contains__(self, key: object) -> bool:
        return self._find(str(key))

    def __missing__(self, key: str) -> Any:
        if not self._find(key):
            raise KeyError(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default

    def __iter__(self) -> Any:
        self._list()
        return dict.__iter__(self)

    def __len__(self) -> int:
        self._list()
        return dict.__len__(self)

    def keys(self) -> Any:
        self._list()
        return dict.keys(self)

    def values(self) -> Any:
        self._list()
        return dict.values(self)

    def items(self) -> Any:
        self._list()
        return dict.items(self)


def _single(item: Any) -> Any:
    """A number or a tensor without dimensions as the number."""
    return item.item() if isinstance(item, Tensor) and not item.shape else item


def _like(mine: Any, value: Any) -> Any:
    """A value with the types of the state dict's, where the tree has less: the
    tuple betas, numbers of parameters; a step or lr may be a tensor."""
    if isinstance(mine, _torch.Tensor) and \
            isinstance(value, (int, float, complex)):
        held: Any = mine.detach()  # some hints of PyTorch exclude complex
        return held.fill_(value)
    if type(mine) is int and isinstance(value, str):
        return int(value)  # the number of a parameter
    if isinstance(mine, dict) and isinstance(value, dict):
        return {k: _like(mine.get(k), v) for k, v in value.items()}
    if not isinstance(mine, (list, tuple)) or not isinstance(value, list):
        return value
    items = [_like(m, v) for m, v in zip(mine, value)] + value[len(mine):]
    return tuple(items) if type(mine) is tuple else items


if _StorageReader is not None:
    class StorageReader(_StorageReader):
        """Reads a checkpoint of any format for
        torch.distributed.checkpoint.load().

        path     the checkpoint, or an opened one
        mapping  if names differ: a function that maps a parameter's name in the
                 state dict to the one in the checkpoint; a dict; or a file
                 (JSON, or two names per line)
        master   read float32 parameters from the checkpoint's float32 weights
                 (optim/state/<name>/fp32 of DeepSpeed and Megatron-Core), if it
                 has them beside those in half precision
        threads  number of simultaneous reads
        options  those of optimfs.open()

        Options of parameter groups that the checkpoint does not have (for
        example "fused") stay as they are in the state dict. Groups are matched
        by the names of their parameters if the checkpoint has names, otherwise
        by number; the parameters of a group do not change. For any other
        missing key the planner raises an error.

        >>> model_sd, optim_sd = get_state_dict(model, optimizer)
        >>> sd = {"model": model_sd, "optim": optim_sd}
        >>> dcp.load(sd, storage_reader=StorageReader("global_step1000"))
        >>> set_state_dict(model, optimizer, model_state_dict=sd["model"],
        ...                optim_state_dict=sd["optim"])
        """

        def __init__(self, path: Union[PathLike, Checkpoint], *,
                     mapping: Mapping = None, master: bool = True,
                     threads: int = 4, **options: Any) -> None:
            self._mapping, self._master = mapping, master
            self._threads, self._options = threads, options
            self._use(path)

        def _use(self, path: Union[PathLike, Checkpoint]) -> None:
            self.checkpoint = path if isinstance(path, Checkpoint) else \
                _open(path, **self._options)
            self._names = _Names(self.checkpoint, self._mapping)
            self._paths: Dict[str, Any] = {}
            self._params: Dict[str, Any] = {}  # of the state dict's groups
            self.nested: Dict[str, Tuple[Any, ...]] = {}

        def reset(self, checkpoint_id: Optional[PathLike] = None) -> None:
            """Another checkpoint, if one is named."""
            if checkpoint_id is not None and \
                    os.fspath(checkpoint_id) != self.checkpoint.path:
                self._use(checkpoint_id)

        @classmethod
        def validate_checkpoint_id(cls, checkpoint_id: PathLike) -> bool:
            """Is it there?"""
            return os.path.exists(checkpoint_id)

        def describe(self, key: str) -> Any:
            """The metadata of a key of a state dict; None if there is none."""
            path = self._names.path(key)
            if path is None and not _is_option(key):
                return None
            self._paths[key] = path
            if path is None or "param_groups" in path.split("/"):
                return BytesStorageMetadata()
            item = self.checkpoint[path]
            if not isinstance(item, Tensor):
                return BytesStorageMetadata()
            return self._tensor_metadata(item.dtype, item.shape)

        @staticmethod
        def _tensor_metadata(dtype: str, shape: Tuple[int, ...]) -> Any:
            size = _torch.Size(shape)
            # one chunk: an item to read is then a box that a rank holds
            return TensorStorageMetadata(
                TensorProperties(dtype=_dtypes.torch_dtype(dtype)), size,
                [ChunkStorageMetadata(_torch.Size([0] * len(shape)), size)])

        def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
            """What the checkpoint has, by key; found as it is asked for."""
            return Metadata(state_dict_metadata=_Index(self),
                            planner_data=self.nested)

        def set_up_storage_reader(self, metadata: Any, is_coordinator: bool,
                                  *args: Any, **kwargs: Any) -> None:
            """Nothing to do: each rank reads by itself."""

        def prepare_local_plan(self, plan: Any) -> Any:
            """The plan as it is."""
            return plan

        def prepare_global_plan(self, plans: List[Any]) -> List[Any]:
            """The plans as they are."""
            return plans

        def read_data(self, plan: Any, planner: Any) -> Any:
            """Read this rank's items, several at once."""
            self._params.clear()
            tensors = []
            for item in plan.items:
                if item.type == LoadItemType.BYTE_IO:
                    self._load_bytes(item, planner)
                else:
                    target = planner.resolve_tensor(item).detach()
                    tensors.append((item, target))
            with ThreadPoolExecutor(self._threads) as pool:
                for _ in pool.map(lambda x: self._load_tensor(*x), tensors):
                    pass
            for item, target in tensors:
                planner.commit_tensor(item, target)
            done: Any = Future()
            done.set_result(None)
            return done

        def _option_of(self, key: str, planner: Any) -> Tuple[bool, str]:
            """The key of an option that the checkpoint has in another group:
            groups are matched by the names of their parameters, where there
            are any. False: what the state dict has stays."""
            found = re.fullmatch(r"(.*param_groups\.)(\d+)\.(.+)", key)
            if found is None or not _is_option(key):
                return True, key
            above, group, option = found.groups()
            mine = self._params.get(above + group)
            if mine is None:
                mine = getattr(planner, "state_dict", {}).get(
                    "%s%s.params" % (above, group))
                self._params[above + group] = mine
            if not isinstance(mine, (list, tuple)) or not mine or \
                    not all(isinstance(p, str) for p in mine):
                return True, key
            i = self._names.group_of(list(mine))
            return option != "params", key if i is None else \
                "%s%d.%s" % (above, i, option)

        def _load_bytes(self, item: Any, planner: Any) -> None:
            key = item.storage_index.fqn
            wanted, there = self._option_of(key, planner)
            if not wanted:
                return
            path = self._paths[key] if there == key else \
                self._names.path(there)
            if path is None:
                _log.info("%s: %s is not in the checkpoint, and stays as it "
                          "is", self.checkpoint.path, key)
                return
            value = self._value(path)
            value = _like(getattr(planner, "state_dict", {}).get(key), value)
            b = io.BytesIO()
            _torch.save(value, b)
            b.seek(0)
            planner.load_bytes(item, b)

        def _value(self, path: str) -> Any:
            value = self.checkpoint[path]
            name = path.rpartition("/")[2]
            if name == "param_groups" and isinstance(value, Group):
                return [self._group(g) for g in self._names.groups()]
            if isinstance(value, Group):
                return value.load()
            if name == "params":
                return [self._names.back.get(p, p) for p in value]
            return _single(value)

        def _group(self, group: Dict[str, Any]) -> Dict[str, Any]:
            named = {k: _single(v) for k, v in group.items()}
            if "params" in named:
                named["params"] = [self._names.back.get(p, p)
                                   for p in named["params"]]
            return named

        def _source(self, path: str, target: Any) -> Any:
            """What to read for a tensor of the state dict."""
            value = self.checkpoint[path]
            root, _, name = path.partition("/")
            if self._master and root == "model" and \
                    isinstance(value, Tensor) and \
                    target.dtype == _torch.float32 and \
                    value.dtype in ("bfloat16", "float16"):
                try:
                    return self.checkpoint["optim/state/%s/fp32" % name]
                except NotFoundError:
                    pass
            return value

        def _load_tensor(self, item: Any, target: Any) -> None:
            source = self._source(self._paths[item.storage_index.fqn], target)
            box = tuple(slice(o, o + n) for o, n in zip(item.storage_offsets,
                                                        item.lengths))
            part = source[box] if box else source
            if box and target.device.type == "cpu" and \
                    Loading.reaches(target) and part.nbytes and \
                    target.dtype == _dtypes.torch_dtype(part.dtype):
                part._read_at(target.data_ptr())
            else:
                target.copy_(part.torch())
else:
    def __getattr__(name: str) -> Any:
        if name == "StorageReader":
            raise ImportError("optimfs.torch.StorageReader needs PyTorch 2.3 "
                              "or later, this is " + _torch.__version__)
        raise AttributeError(name)


# A whole state dict.

class _Maps:
    """Files of a checkpoint, each mapped once, privately."""

    def __init__(self, ck: Checkpoint) -> None:
        self._ck = ck
        self._maps: Dict[str, Any] = {}

    def _map(self, name: str) -> Any:
        if name not in self._maps:
            path = self._ck.path
            if os.path.isdir(path):
                path = os.path.join(path, name)
            with open(path, "rb") as f:
                self._maps[name] = _mmap.mmap(f.fileno(), 0,
                                              access=_mmap.ACCESS_COPY)
        return self._maps[name]

    def tensor(self, t: Tensor, device: Any) -> Any:
        """Mapped if one file has all of it as it is, else read to device."""
        shards = t.shards if t.nbytes and t.shape else []
        if len(shards) == 1:
            s = shards[0]
            if s.encoding == "raw" and s.codec is None and \
                    s.length == t.nbytes and s.offset % t.itemsize == 0:
                flat = _torch.frombuffer(
                    self._map(s.file), dtype=_dtypes.torch_dtype(t.dtype),
                    count=t.size, offset=s.offset)
                return flat.reshape(t.shape)
        return t.torch(device)


def load(path: Union[PathLike, Checkpoint], *, mmap: bool = False,
         device: Any = None, **options: Any) -> Dict[str, Any]:
    """The whole checkpoint as a dict: {"model": {name: tensor}, "optim":
    {"state": {name: {...}}, "param_groups": [...]}, "extra": {...}}.

    mmap    tensors that a file has in one piece are mapped, and read when
            they are used; writing to them changes the memory alone
    device  where to put tensors that are not mapped
    options those of optimfs.open()

    >>> sd = optimfs.torch.load("step-1000", mmap=True)
    >>> model.load_state_dict(sd["model"])
    """
    ck = path if isinstance(path, Checkpoint) else _open(path, **options)
    try:
        maps = _Maps(ck)
        whole = ck.state_dict()
        return _lists(whole.load(lambda t: maps.tensor(t, device)) if mmap
                      else whole.load(device=device))
    finally:
        if ck is not path:
            ck.close()


class Loaded(NamedTuple):
    """What load_into() found on one side only, as load_state_dict() returns
    it."""
    missing_keys: List[str]
    unexpected_keys: List[str]


def _why_not(key: str, target: Any, t: Tensor) -> Optional[str]:
    if type(target).__name__ == "DTensor":
        return "%s: is a DTensor: use torch.distributed.checkpoint.load() " \
            "with optimfs.torch.StorageReader" % key
    if target.device.type == "meta":
        return "%s: has no memory: call model.to_empty(device=...) first" % key
    if tuple(target.shape) != t.shape:
        return "%s: has the shape %s, and %s in the checkpoint" % (
            key, list(target.shape), list(t.shape))
    return None


def _place(target: Any) -> Optional[Tuple[Any, ...]]:
    """What tied weights share; None: it has no memory of its own."""
    if not isinstance(target, _torch.Tensor) or \
            target.layout != _torch.strided or target.device.type == "meta":
        return None
    at = target.data_ptr()
    return (at, tuple(target.shape)) if at and target.numel() else None


def _unexpected(ck: Checkpoint, used: Dict[str, str]) -> List[str]:
    model = ck.state_dict().get("model")
    return [] if not isinstance(model, Group) else \
        [k for k in model if k not in used and isinstance(model[k], Tensor)]


def load_into(path: Union[PathLike, Checkpoint], model: Any, *,
              strict: bool = True, mapping: Mapping = None,
              **options: Any) -> Loaded:
    """Read model/ of a checkpoint into the tensors of a torch.nn.Module, or of
    a dict, where they are: on GPUs too, with no copy of the model in memory.

    strict   a RuntimeError if a name is on one side only; nothing is read then
    mapping  names of the model to those of the checkpoint, as StorageReader's

    Elements of another type are converted. Of several names for one tensor of
    the model (tied weights) the last counts, as in load_state_dict().

    >>> model = Model(config).to("cuda")
    >>> optimfs.torch.load_into("step-1000", model)
    """
    ck = path if isinstance(path, Checkpoint) else _open(path, **options)
    try:
        return _load_into(ck, model, strict, _Names(ck, mapping))
    finally:
        if ck is not path:
            ck.close()


def _load_into(ck: Checkpoint, model: Any, strict: bool, names: _Names
               ) -> Loaded:
    targets: Dict[str, Any] = dict(
        model.state_dict() if hasattr(model, "state_dict") else model)
    found: List[Tuple[Any, Tensor]] = []
    missing, wrong = [], []
    for key, target in targets.items():
        at = names._named(["model"], key, [])
        t = ck[at] if at is not None else None
        if not isinstance(t, Tensor) or not isinstance(target, _torch.Tensor):
            missing.append(key)
            continue
        why = _why_not(key, target, t)
        found.append((target, t))
        wrong += [] if why is None else [why]
    # tied weights have one name in many files
    last = {_place(target): i for i, (target, _) in enumerate(found)}
    last.pop(None, None)
    missing = [k for k in missing if _place(targets[k]) not in last]
    other = _unexpected(ck, names.back)
    if strict:
        wrong += ["%s: is %s" % (
            k, "not in the checkpoint" if isinstance(targets[k], _torch.Tensor)
            else "no tensor: load_state_dict() sets it") for k in missing] + \
            ["%s: is in the checkpoint only" % k for k in other]
    if wrong:
        raise RuntimeError("%s: the model differs:\n%s" % (
            ck.path, "\n".join("  " + w for w in wrong)))
    _read_into(ck, [(target, t) for i, (target, t) in enumerate(found)
                    if last.get(_place(target), i) == i])
    return Loaded(missing, other)


def _read_into(ck: Checkpoint, found: List[Tuple[Any, Tensor]]) -> None:
    loading = Loading(ck._tree)
    with _torch.no_grad():
        for target, t in found:
            if t.shape:
                t._require()
            loading.add(target, t)
        loading.run()


def _lists(loaded: Dict[str, Any]) -> Dict[str, Any]:
    """Parameter groups that have numbers are a list in PyTorch."""
    optim = loaded.get("optim", {})
    for o in [optim] + [v for v in optim.values() if isinstance(v, dict)]:
        groups = o.get("param_groups")
        if isinstance(groups, dict) and all(k.isdigit() for k in groups):
            o["param_groups"] = [groups[k] for k in sorted(groups, key=int)]
    return loaded
