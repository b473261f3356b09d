# SPDX-License-Identifier: Apache-2.0
"""A run: a directory of checkpoints as a mapping of steps to checkpoints."""
from __future__ import annotations

import errno
import operator
import os
import warnings as _warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import (Any, Dict, Iterator, List, Optional, SupportsIndex, Union)

from . import _abi, _show
from ._checkpoint import Checkpoint, PathLike, tree_path
from ._errors import Error, UnreadWarning, make
from ._report import Report, report
from ._tree import STATISTICS, Tree, fs_text, open_tree


@dataclass(frozen=True)
class RunEntry:
    """A checkpoint of a run, or what may become one.

    name is that in the directory, path the one in the run, None while it is not
    complete. step is None if the name tells none. why says why it is not one of
    the steps, else "".
    """
    name: str
    path: Optional[str]
    step: Optional[int]
    complete: bool
    format: Optional[str]
    mtime_ns: int
    why: str


def _entry(e: _abi.RunEntry) -> RunEntry:
    return RunEntry(fs_text(e.name), fs_text(e.path) if e.path else None,
                    e.step if e.step >= 0 else None, e.complete,
                    e.format.decode() if e.format else None, e.mtime_ns,
                    fs_text(e.why))


class Run(Mapping[int, Checkpoint]):
    """An opened run: a read-only mapping of steps to checkpoints.

    run[1000]              the Checkpoint of step 1000, opened now
    run["latest"]          that of the last step; run["first"]
    run["by-name/final"]   one whose name tells no step

    Iteration gives the steps in ascending order. A run follows its directory:
    what is complete appears, what is removed disappears. Checkpoints stay open
    when the run is closed, by "with" or close().
    """

    def __init__(self, path: PathLike, **options: Any) -> None:
        self.path = os.fsdecode(path)
        self._options = options
        self._tree: Tree = open_tree(path, run=_abi.RUN["yes"], **options)
        if not self.entries():
            self._refuse_checkpoint()

    def _refuse_checkpoint(self) -> None:
        """A directory without checkpoints may be a new run, or be one."""
        try:
            open_tree(self.path).close()
        except Error:
            return
        raise make(errno.ENOENT, 852, "OFS852 %s is a checkpoint: open_run "
                   "takes the directory that it is in, optimfs.open a "
                   "checkpoint" % self.path)

    # A mapping.

    def __iter__(self) -> Iterator[int]:
        return iter([e.step for e in self.entries()
                     if e.step is not None and e.complete and not e.why])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        if isinstance(key, str):
            return any(key in (e.path, str(e.step)) for e in self.entries()
                       if e.path) or self._tree.readlink(key) is not None
        return key in list(self)

    def __getitem__(self, key: Union[SupportsIndex, str]) -> Checkpoint:
        name = key if isinstance(key, str) else str(operator.index(key))
        # what the link means now: a copy in another process is of that step
        target = self._tree.readlink(name)
        if target is not None:
            name = target.rpartition("/")[2]
        options = {k: v for k, v in self._options.items() if k != "runs_open"}
        return Checkpoint._of(self._tree.open_in_run(name), options)

    # What is computed from several.

    def average(self, *steps: Union[SupportsIndex, str]) -> Checkpoint:
        """The mean of checkpoints, computed when it is read.

        steps are numbers, "latest", "last5" for the last five, "1000-5000" for
        those in between. Moments are averaged, too; what is of integers, or no
        tensor, is that of the newest one (optimfs(5)).

        >>> run.average("last5").view("dcp@8").save("averaged")
        """
        if not steps:
            raise TypeError('average of which steps? "last5" are the last five')
        return self["avg/%s" % ",".join(map(_word, steps))]

    def delta(self, a: Union[SupportsIndex, str],
              b: Union[SupportsIndex, str]) -> Checkpoint:
        """What changed from step a to step b: b - a, element by element.

        >>> run.delta(1000, 2000).statistics("model")["rms"]
        """
        return self["delta/%s..%s" % (_word(a), _word(b))]

    # What it has.

    def entries(self) -> List[RunEntry]:
        """Every checkpoint of the directory: those of the steps in ascending
        order, then those that are unfinished, or whose name tells no step."""
        found: List[RunEntry] = []
        self._tree.list_run(lambda e: found.append(_entry(e)))
        return found

    def report(self, *, data: bool = True) -> Report:
        """The page of `optimfs report`: the steps with what is wrong with
        them, and the norms of each layer over the steps."""
        return report([self.path], self._options, data)

    def series(self, path: str, value: str = "rms", *, pandas: bool = False
               ) -> Any:
        """A statistic of a tensor over the steps: two NumPy arrays, the steps
        and the values; with pandas=True a pandas.Series.

        Of a directory it is that of all tensors in it together; a number, such
        as optim/param_groups/0/lr, is the value itself. A step that cannot be
        read, or has no such path, is NaN, and an UnreadWarning says why; if
        that is so for all of them, the last failure is raised.

        >>> steps, rms = run.series("model/norm.weight", "rms")
        """
        if value not in STATISTICS:
            raise ValueError("no value %r: there are %s"
                             % (value, ", ".join(STATISTICS)))
        found: Dict[int, float] = {}
        failed: Dict[int, Error] = {}
        for step in self:
            try:
                found[step] = self._value(step, tree_path(path), value)
            except Error as e:
                found[step], failed[step] = float("nan"), e
        if failed and len(failed) == len(found):
            raise failed[max(failed)]
        for step, why in failed.items():
            _warnings.warn("step %d: %s" % (step, why.strerror), UnreadWarning,
                           stacklevel=2)
        return _series(found, "%s %s" % (path, value), pandas)

    def _value(self, step: int, path: str, value: str) -> float:
        with self[step] as ck:
            here = ck[path]
            if isinstance(here, (int, float)):
                return float(here)
            return float(ck.statistics(path).get(value, "nan"))

    def close(self) -> None:
        """Close the run, but not the checkpoints."""
        self._tree.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Any = None, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return (_open_again, (self.path, self._options))

    def __repr__(self) -> str:
        return "<optimfs.Run %s: %s>" % (
            _show.shown(self.path), "closed" if self._tree.closed
            else self._tree.summary("", "line"))

    __eq__ = object.__eq__
    __hash__ = object.__hash__


def _word(step: Union[SupportsIndex, str]) -> str:
    return step if isinstance(step, str) else str(operator.index(step))


def _series(found: Dict[int, float], name: str, pandas: bool) -> Any:
    if pandas:
        import pandas as pd
        return pd.Series(list(found.values()), name=name, dtype="float64",
                         index=pd.Index(list(found), name="step",
                                        dtype="int64"))
    import numpy as np
    return (np.array(list(found), dtype="int64"),
            np.array(list(found.values()), dtype="float64"))


def _open_again(path: str, options: Dict[str, Any]) -> Run:
    return Run(path, **options)


def open_run(path: PathLike, *, runs_open: Optional[int] = None,
             **options: Any) -> Run:
    """Open a run, a directory of checkpoints of any formats.

    Only names are read: a checkpoint is opened when it is used. runs_open is
    the number of checkpoints that stay open (8); base is the checkpoint that the
    first of versions that are changes changes; the other options are those of
    open(), for each checkpoint.

    >>> with optimfs.open_run("run") as run:
    ...     print(run["latest"], list(run))
    ...     steps, lr = run.series("optim/param_groups/0/lr")
    """
    return Run(path, runs_open=runs_open, **options)
