#!/usr/bin/env python3
"""train.py - does training resume, bit by bit, from what optimfs wrote?

usage: train.py write KIND MESH DIR       train three steps and save to DIR
       train.py tree DIR TREE [SECTION]   has TREE, a copy of the tree of the
                                          checkpoint, the state of the job?
       train.py resume KIND MESH DIR CHECKPOINT...
       train.py has KIND                  exit 0 where PyTorch has it, and is 2.6
                                          or later; for cuda, print the number
                                          of GPUs

KIND says how a small model is distributed over real processes: ddp, fsdp1,
fsdp2, hsdp, tp (tensor parallel inside FSDP2), hf (fsdp2, where only the model
is saved, by HuggingFaceStorageWriter), or cuda (fsdp2, each rank on a GPU of its
own). MESH is a number of ranks; for hsdp it is replicas x shards, for tp shards x
slices.

write makes DIR/ckpt with torch.distributed.checkpoint, and DIR/want.json with the
SHA-256 of each whole tensor. For fsdp1 it also makes DIR/ranks, the raw state of
each rank, and DIR/units.json with contrib/dump_units.py.

resume loads DIR/ckpt on MESH, so that PyTorch itself reshards, and trains two
steps. Then a new model does the same from each CHECKPOINT. Loaded state, losses
of all ranks and trained state must be equal. A CHECKPOINT with *.safetensors
files is loaded with PyTorch's reader for them.
"""
# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import math
import os
import pathlib
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
BATCH = 12


def has(kind):
    try:
        import torch
        import torch.distributed.checkpoint as dcp
    except ImportError:
        return False
    if tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 6):
        return False
    if kind == "cuda":
        gpus = torch.cuda.device_count()
        if gpus:
            print(gpus)
        return gpus > 0 and torch.distributed.is_nccl_available()
    return kind != "hf" or hasattr(dcp, "HuggingFaceStorageWriter")


def cpu_fsdp2():
    """Adds what FSDP2 of PyTorch 2.6 lacks on CPUs."""
    import torch
    import torch.distributed as dist
    if hasattr(torch.cpu.Stream, "record_event"):
        return
    torch.cpu.Stream.record_event = lambda self, event=None: self
    torch.cpu.Stream.wait_event = lambda self, event: None
    scatter, reduce = dist.reduce_scatter_tensor, dist.all_reduce

    def scatter_average(output, input, group=None, **_):
        scatter(output, input, group=group)
        output.div_(dist.get_world_size(group))

    def reduce_average(tensor, op=dist.ReduceOp.SUM, group=None, **_):
        reduce(tensor, group=group)
        if op == dist.ReduceOp.AVG:
            tensor.div_(dist.get_world_size(group))

    dist.reduce_scatter_tensor, dist.all_reduce = scatter_average, reduce_average


def make_model():
    import torch
    from torch import nn
    torch.manual_seed(7)
    return nn.Sequential(nn.Embedding(10, 12), nn.LayerNorm(12),
                         nn.Sequential(nn.Linear(12, 24), nn.Tanh(),
                                       nn.Linear(24, 12, bias=False)),
                         nn.Linear(12, 7))


class Job:
    """A model and its optimizer, distributed over the processes."""

    def __init__(self, kind, sizes):
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        self.kind, self.rank = kind, dist.get_rank()
        self.device = "cuda" if kind == "cuda" else "cpu"
        # Tensor parallel ranks of one shard get the same data.
        slices = sizes[1] if kind == "tp" else 1
        self.part = (self.rank // slices, dist.get_world_size() // slices)
        model = make_model().to(self.device)
        if kind == "ddp":
            self.model = torch.nn.parallel.DistributedDataParallel(model)
        elif kind == "fsdp1":
            self.model = self.fsdp1(model)
        else:
            from torch.distributed.fsdp import fully_shard
            if self.device == "cpu":
                cpu_fsdp2()
            mesh = init_device_mesh(self.device, sizes, mesh_dim_names=(
                "outer", "inner")[:len(sizes)])
            if kind == "tp":
                self.slice(model, mesh["inner"])
                mesh = mesh["outer"]
            fully_shard(model[2], mesh=mesh, reshard_after_forward=False)
            self.model = fully_shard(model, mesh=mesh,
                                     reshard_after_forward=False)
        # Different weight decay per group, as in real jobs.
        named = list(self.model.named_parameters())
        flat = [p for n, p in named if "bias" in n]
        rest = [p for n, p in named if "bias" not in n]
        self.optimizer = torch.optim.AdamW(
            [{"params": rest}, {"params": flat, "weight_decay": 0.0}],
            lr=0.02, foreach=False)

    @staticmethod
    def fsdp1(model):
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        return Fsdp(model, device_id=torch.device("cpu"), use_orig_params=True,
                    auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}))

    @staticmethod
    def slice(model, mesh):
        from torch.distributed.tensor.parallel import (
            ColwiseParallel, RowwiseParallel, parallelize_module)
        parallelize_module(model[2], mesh, {"0": ColwiseParallel(),
                                            "2": RowwiseParallel()})

    def step(self, n):
        """Trains one step; returns the loss of this rank's part of the batch."""
        import torch
        at, parts = self.part
        g = torch.Generator().manual_seed(n)
        inputs = torch.randint(10, (BATCH,), generator=g)
        wanted = torch.randint(7, (BATCH,), generator=g)
        mine = slice(BATCH * at // parts, BATCH * (at + 1) // parts)
        loss = torch.nn.functional.cross_entropy(
            self.model(inputs[mine].to(self.device)),
            wanted[mine].to(self.device))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item().hex()

    def steps(self, numbers):
        """The losses of all ranks."""
        import torch.distributed as dist
        all_ranks = [None] * dist.get_world_size()
        dist.all_gather_object(all_ranks, [self.step(n) for n in numbers])
        return all_ranks

    def state(self):
        from torch.distributed.checkpoint.state_dict import (
            get_model_state_dict, get_optimizer_state_dict)
        state = {"model": get_model_state_dict(self.model)}
        if self.kind != "hf":
            state["optim"] = get_optimizer_state_dict(self.model,
                                                      self.optimizer)
        return state

    def hashes(self):
        """The whole state, on rank 0. Not with full_state_dict=True: there
        PyTorch 2.14 returns exp_avg_sq for exp_avg with FSDP1."""
        return dict(digests(self.state()))

    def load(self, path):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import (
            set_model_state_dict, set_optimizer_state_dict)
        state = self.state()
        # As a Path: PyTorch rejects a string for a read-only directory.
        if list(path.glob("*.safetensors")):
            dcp.load(state["model"],
                     storage_reader=dcp.HuggingFaceStorageReader(str(path)))
        else:
            dcp.load(state, storage_reader=dcp.FileSystemReader(path))
        set_model_state_dict(self.model, state["model"])
        if "optim" in state:
            set_optimizer_state_dict(self.model, self.optimizer,
                                     state["optim"])

    def save(self, path):
        import torch
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp
        if self.kind == "hf":
            dcp.save(self.state()["model"],
                     storage_writer=dcp.HuggingFaceStorageWriter(
                         str(path / "ckpt"), save_distributed=True))
        else:
            dcp.save(self.state(), checkpoint_id=path / "ckpt")
        if self.kind == "fsdp1":
            self.save_ranks(path)

    def save_ranks(self, path):
        import torch
        from torch.distributed.fsdp import (FullyShardedDataParallel as Fsdp,
                                            StateDictType)
        sys.path.insert(0, str(TOP / "contrib"))
        sys.dont_write_bytecode = True
        from dump_units import dump_units
        os.makedirs(path / "ranks", exist_ok=True)
        with Fsdp.state_dict_type(self.model,
                                  StateDictType.SHARDED_STATE_DICT):
            model = self.model.state_dict()
        torch.save({"model": model, "optim": self.optimizer.state_dict()},
                   path / "ranks" / f"rank{self.rank}.pt")
        if self.rank == 0:
            dump_units(self.model, path / "units.json", self.optimizer)


def whole(tensor):
    """The whole tensor on rank 0; other ranks may get an empty one."""
    import torch
    if hasattr(tensor, "full_tensor"):
        return tensor.full_tensor()
    if not hasattr(tensor, "local_shards"):
        return tensor
    out = torch.zeros(tensor.size())
    tensor.gather(0, out if torch.distributed.get_rank() == 0 else None)
    return out


def sha256(tensor):
    import torch
    flat = whole(tensor).detach().contiguous().reshape(-1)
    data = flat.view(torch.uint8).cpu().numpy().tobytes()
    return hashlib.sha256(data).hexdigest()


def digests(value, path=()):
    """Values by path: digests of tensors, the text of others."""
    import torch
    if isinstance(value, dict):
        for key, v in value.items():
            yield from digests(v, path + (str(key),))
    elif isinstance(value, list) and path[-1] == "param_groups":
        for i, v in enumerate(value):
            yield from digests(v, path + (str(i),))
    elif isinstance(value, torch.Tensor) and value.dim() > 0:
        yield "/".join(path), sha256(value)
    elif isinstance(value, torch.Tensor):
        yield "/".join(path), repr(value.item())
    else:
        yield "/".join(path), repr(value)


def write(rank, kind, sizes, where):
    job = Job(kind, sizes)
    job.steps(range(3))
    job.save(where)
    want = job.hashes()
    if rank == 0:
        assert len(want) > 5, want
        (where / "want.json").write_text(json.dumps(want))


def resume(rank, kind, sizes, where, *others):
    first = None
    for path in (where / "ckpt",) + others:
        job = Job(kind, sizes)
        job.load(path)
        got = {"loaded": job.hashes(), "losses": job.steps(range(3, 5))}
        got["trained"] = job.hashes()
        first = first or got
        if rank > 0:
            continue
        want = json.loads((where / "want.json").read_text())
        assert got["loaded"] == want, f"{path}: loads otherwise than saved"
        for what, value in got.items():
            assert value == first[what], f"{path}: {what} differ"
        assert got["trained"] != want


def in_ranks(rank, run, kind, sizes, store, paths):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    backend = "gloo"
    if kind == "cuda":
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(rank)
        # Losses are compared bit by bit.
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
    ranks = math.prod(sizes)
    dist.init_process_group(backend, store=dist.FileStore(store, ranks),
                            rank=rank, world_size=ranks)
    run(rank, kind, sizes, *paths)
    dist.barrier()
    dist.destroy_process_group()


def spread(run, kind, mesh, paths):
    """run() on each rank. A traceback is printed in reverse, because a test log
    has only the first lines."""
    import torch.multiprocessing as mp
    sizes = tuple(int(n) for n in mesh.split("x"))
    with tempfile.TemporaryDirectory() as scratch:
        # Forked, so that PyTorch is imported only once.
        try:
            mp.start_processes(
                in_ranks, nprocs=math.prod(sizes), start_method="fork",
                args=(run, kind, sizes, scratch + "/store", paths))
        except mp.ProcessRaisedException as e:
            sys.exit("\n".join(reversed(str(e).rstrip().split("\n"))))


def check_tree(where, tree, section=""):
    """Checks that a tree has the tensors of want.json and no others."""
    want = json.loads((where / "want.json").read_text())
    names = {n for n in want if n.startswith(section) and
             "/param_groups/" not in n}
    for name in names:
        data = (tree / name).read_bytes()
        got = repr(float(data)) if name.endswith("/step") else \
            hashlib.sha256(data).hexdigest()
        assert got == want[name], f"{name}: other elements"
    seen = {str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_file()}
    seen = {n for n in seen if n.startswith(section or ("model", "optim")) and
            "/param_groups/" not in n}
    assert seen == names, seen ^ names


def main(argv):
    if argv[1] == "has":
        return 0 if has(argv[2]) else 1
    if argv[1] == "tree":
        check_tree(pathlib.Path(argv[2]), pathlib.Path(argv[3]), *argv[4:])
    else:
        spread({"write": write, "resume": resume}[argv[1]], *argv[2:4],
               [pathlib.Path(p) for p in argv[4:]])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
