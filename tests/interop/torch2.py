#!/usr/bin/env python3
"""torch2.py - does PyTorch 2.3 or later load what optimfs writes?

usage: torch2.py dcp VIEW TREE [RANKS]   dcp.load, on RANKS processes
       torch2.py torch VIEW TREE         torch.load, plain and mmap=True (with an
                                         older PyTorch: plain)
       torch2.py safetensors VIEW TREE   the safetensors package
       torch2.py five RUN MEAN           trains, saves five steps in RUN, and the
                                         means of their tensors as files of MEAN
       torch2.py version                 exit 0 where there is such a PyTorch

VIEW is a view (dcp with keys=fqn) in a mount, or a copy of one. TREE is a copy of
the checkpoint's tree, the reference. Exit status 1 at the first difference.
"""
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import sys
import tempfile


def new_enough():
    try:
        import torch
    except ImportError:
        return False
    return tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 3)


def bytes_of(tensor):
    import torch
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def check(tree, path, tensor):
    """Checks that the file at path below tree has the elements of tensor."""
    with open(os.path.join(tree, *path), "rb") as f:
        want = f.read()
    name = "/".join(path)
    if tensor.dim() == 0:
        got = tensor.item()
        text = want.decode().strip()
        same = {True: "true", False: "false"}.get(got) == text \
            if isinstance(got, bool) else float(text) == float(got)
        assert same, f"{name}: {got} is not {text}"
        return
    assert bytes_of(tensor) == want, f"{name}: other elements"


def shards(size, dtype, mesh):
    """An uninitialized DTensor, sharded along its first dimension."""
    import torch
    from torch.distributed.tensor import Shard, distribute_tensor
    return distribute_tensor(torch.zeros(size, dtype=dtype), mesh, [Shard(0)])


def load_dcp(view, tree, mesh):
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    # As a Path: PyTorch rejects a string for a read-only directory.
    reader = dcp.FileSystemReader(pathlib.Path(view))
    index = reader.read_metadata()
    state = {}
    for key, meta in index.state_dict_metadata.items():
        if not isinstance(meta, TensorStorageMetadata):
            state[key] = None
        elif mesh is not None and len(meta.size) > 0 and \
                meta.properties.dtype != torch.bfloat16:  # gloo sends none
            state[key] = shards(meta.size, meta.properties.dtype, mesh)
        else:
            state[key] = torch.zeros(meta.size, dtype=meta.properties.dtype)
    dcp.load(state, storage_reader=reader)
    seen = 0
    for key, value in state.items():
        path = [str(p) for p in index.planner_data[key]]
        if not os.path.exists(os.path.join(tree, path[0])):
            path.insert(0, "extra")
        if isinstance(value, torch.Tensor):
            if hasattr(value, "full_tensor"):
                value = value.full_tensor()
            check(tree, path, value)
            seen += 1
        else:
            assert os.path.isfile(os.path.join(tree, *path)), key
    assert seen > 0, "no tensors"


def one_rank(rank, ranks, store, view, tree):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank,
                            world_size=ranks)
    load_dcp(view, tree, init_device_mesh("cpu", (ranks,)))
    dist.destroy_process_group()


def check_dcp(view, tree, ranks="1"):
    if int(ranks) == 1:
        load_dcp(view, tree, None)
        return
    import torch.multiprocessing as mp
    with tempfile.TemporaryDirectory() as scratch:
        # Forked, so that PyTorch is imported only once.
        mp.start_processes(one_rank, nprocs=int(ranks), start_method="fork",
                           args=(int(ranks), scratch + "/store", view, tree))


def check_torch(view, tree):
    import torch
    ways = [{}]
    if new_enough():
        ways = [{"mmap": mmap, "weights_only": True} for mmap in (False, True)]
    for how in ways:
        for section in "model", "optim":
            path = os.path.join(view, section + ".pt")
            if not os.path.exists(path):
                continue
            state = torch.load(path, map_location="cpu", **how)
            if section == "model":
                for name, t in state.items():
                    check(tree, ["model", name], t)
                assert sorted(state) == sorted(os.listdir(tree + "/model"))
                continue
            for name, states in state["state"].items():
                for key, t in states.items():
                    check(tree, ["optim", "state", name, key], t)
            assert isinstance(state["param_groups"], list)


def check_safetensors(view, tree):
    from safetensors import safe_open
    seen = 0
    for path in sorted(pathlib.Path(view).glob("model*.safetensors")):
        with safe_open(path, framework="pt") as f:
            for name in f.keys():
                check(tree, ["model", name], f.get_tensor(name))
                seen += 1
    assert seen == len(os.listdir(tree + "/model"))


def save_five(run, mean):
    """A model with weights in bfloat16 and float32, and AdamW."""
    import torch
    import torch.distributed.checkpoint as dcp
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.GELU(), torch.nn.Linear(40, 8))
    net[2].to(torch.bfloat16)
    opt = torch.optim.AdamW(net.parameters(), lr=0.05)
    names = [name for name, _ in net.named_parameters()]
    sums = {}
    for step in range(100, 600, 100):
        for _ in range(3):
            opt.zero_grad()
            net[2](net[1](net[0](torch.randn(16, 24))).to(torch.bfloat16)).float().square().mean().backward()
            opt.step()
        saved = opt.state_dict()
        state = {"model": net.state_dict(), "optim": {
            "state": {names[i]: s for i, s in saved["state"].items()},
            "param_groups": [{**g, "params": [names[i] for i in g["params"]]} for g in saved["param_groups"]]}}
        dcp.save(state, checkpoint_id=f"{run}/step-{step}")
        tensors = {("model", n): t for n, t in state["model"].items()}
        for n, s in state["optim"]["state"].items():
            tensors.update({("optim", "state", n, k): t for k, t in s.items() if t.dim() > 0})
        for path, t in tensors.items():
            sums.setdefault(path, []).append(t.detach().clone())
    for path, five in sums.items():
        out = os.path.join(mean, *path)
        os.makedirs(os.path.dirname(out), exist_ok=True)
        with open(out, "wb") as f:
            f.write(bytes_of(torch.stack([t.double() for t in five]).mean(0).to(five[0].dtype)))


def main(argv):
    if argv[1:] == ["version"]:
        return 0 if new_enough() else 1
    kinds = {"dcp": check_dcp, "torch": check_torch,
             "safetensors": check_safetensors, "five": save_five}
    if len(argv) < 4 or argv[1] not in kinds:
        print(__doc__, file=sys.stderr)
        return 2
    kinds[argv[1]](*argv[2:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
