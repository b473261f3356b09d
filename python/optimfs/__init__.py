# SPDX-License-Identifier: Apache-2.0
"""Sharded training checkpoints as plain tensors, without the job that wrote
them: PyTorch DCP and FSDP, DeepSpeed, Megatron-Core, safetensors, torch.save.

    import optimfs

    ck = optimfs.open("step-1000")                 # reads the index only
    print(ck)                                      # what is it?
    list(ck)                                       # every path
    m = ck["optim/state/norm.weight/exp_avg"]      # shape, dtype; no data
    m.numpy(); m.torch("cuda"); m[10:20].numpy()   # read what is asked for
    ck.param_groups[0]["lr"]
    ck.state_dict()["optim"]["state"]              # nested, lazily
    ck.view("dcp@8").save("step-1000-for-8")       # reshard, convert
    optimfs.diff("step-1000", "step-2000")

    run = optimfs.open_run("run")                  # a directory of checkpoints
    run["latest"], run[1000], list(run)
    steps, rms = run.series("model/norm.weight", "rms")

    with optimfs.edit("step-1000") as ck:          # all or nothing
        ck["optim/param_groups/0/lr"] = 1e-5

optimfs.torch has a StorageReader for torch.distributed.checkpoint.load() and
load(); optimfs.fsspec a file system. Paths are those of optimfs(5). Failures
are optimfs.Error, an OSError with a code, an errno and advice.
"""
from __future__ import annotations

from . import _abi
from ._checkpoint import Checkpoint, Group, Row, View, open
from ._diff import Difference, diff
from ._edit import Editor, edit
from ._errors import (BusyError, DamagedError, Error, ExistsError,
                      NotFoundError, RefusedError, UnsupportedError,
                      UnreadWarning, UnsyncedWarning, advice)
from ._report import Report
from ._run import Run, RunEntry, open_run
from ._tensor import Shard, Tensor
from ._tree import Finding, Stat
from ._values import Opaque

__version__: str = _abi.lib.optimfs_version().decode()
features: str = _abi.lib.optimfs_features().decode()

__all__ = [
    "open", "open_run", "edit", "diff", "advice", "features",
    "Checkpoint", "Run", "RunEntry", "Editor", "Group", "Tensor", "Shard", "View", "Row", "Stat", "Finding",
    "Report",
    "Difference", "Opaque", "Error", "NotFoundError", "ExistsError",
    "DamagedError", "BusyError", "UnsupportedError", "RefusedError",
    "UnreadWarning", "UnsyncedWarning",
]
