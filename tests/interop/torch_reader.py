#!/usr/bin/env python3
"""torch_reader.py - does PyTorch load checkpoints of any format into FSDP2 models?

usage: torch_reader.py CKPT EXPECTED RANKS [HOW]
       torch_reader.py version           exit 0 where PyTorch is new enough

Makes a model with the parameters of CKPT, shards it over RANKS processes with
FSDP2, and loads model and optimizer through optimfs.torch.StorageReader. The
checksums must be those in EXPECTED, the manifest of the framework that wrote
CKPT. Then this model and an unsharded copy train two steps, and must stay equal
bit by bit.

renamed: the model has other parameter names (mapping=); bfloat16: its weights
are bfloat16; regrouped: its optimizer has the groups of CKPT in reverse order;
recipe: it is loaded by the recipe of docs/python.md; save=DIR: the optimizer has
the groups of CKPT, and after the two steps both are saved to DIR. Exit status 1
at the first difference.
"""
# SPDX-License-Identifier: Apache-2.0
import ctypes
import hashlib
import json
import os
import re
import sys
import tempfile


def new_enough():
    try:
        import torch
    except ImportError:
        return False
    return tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 6)


def read_truth(path):
    """The entries of the manifest, by key below model or optim/state."""
    with open(path) as f:
        return {tuple(x["path"]): x for x in json.load(f)}


def sha256(tensor):
    t = tensor.detach().cpu().contiguous()
    raw = ctypes.string_at(t.data_ptr(), t.numel() * t.element_size())
    return hashlib.sha256(raw).hexdigest()


def build(shapes, trained, dtype):
    """A module with parameters of these names and shapes."""
    import torch
    model = torch.nn.Module()
    for name, shape in shapes.items():
        at = model
        *above, leaf = name.split(".")
        for part in above:
            if not hasattr(at, part):
                at.add_module(part, torch.nn.Module())
            at = getattr(at, part)
        at.register_parameter(leaf, torch.nn.Parameter(
            torch.full(shape, -7.0, dtype=dtype),
            requires_grad=name in trained))
    return model


def part_of(full, like):
    """Shards a replicated tensor as like is sharded, without communication."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import (
        compute_local_shape_and_global_offset)
    sizes, starts = compute_local_shape_and_global_offset(
        full.shape, like.device_mesh, like.placements)
    box = tuple(slice(at, at + n) for at, n in zip(starts, sizes))
    return DTensor.from_local(full[box], like.device_mesh, like.placements,
                              shape=full.shape, stride=full.stride())


def set_grads(model, step):
    """Gradients that depend on names and positions only."""
    import torch
    from torch.distributed.tensor import DTensor
    trained = sorted((n, p) for n, p in model.named_parameters()
                     if p.requires_grad)
    for i, (_, p) in enumerate(trained):
        g = torch.Generator().manual_seed(1000 * step + i)
        full = torch.randn(p.shape, generator=g).to(p.dtype)
        p.grad = part_of(full, p) if isinstance(p, DTensor) else full


def whole(t):
    import torch
    if t.dtype == torch.bfloat16:  # gloo cannot gather it
        return whole(t.float()).to(torch.bfloat16)
    return t.full_tensor() if hasattr(t, "full_tensor") else t


def check_loaded(model, optimizer, truth, there, half):
    """Compares the loaded model and optimizer with the manifest."""
    seen = 0
    for name, p in model.named_parameters():
        fp32 = truth.get(("optim", "state", there(name), "fp32"))
        want = truth[("model", there(name))]
        if fp32 is not None and not half:
            want = fp32
        got = whole(p)
        if str(got.dtype) == "torch." + want["dtype"]:
            assert sha256(got) == want["sha256"], name
            seen += 1
        for key, value in optimizer.state.get(p, {}).items():
            want = truth.get(("optim", "state", there(name), key))
            if want is not None:
                full = whole(value)
                if half:
                    full = full.float() if key == "step" else full
                if str(full.dtype) == "torch." + want["dtype"]:
                    assert sha256(full) == want["sha256"], (name, key)
                    seen += 1
    return seen


def make_optimizer(model, groups):
    """AdamW of the trained parameters, with options that no checkpoint has.
    groups: lists of names; None: one group."""
    import torch
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    params = [{"params": [named[n] for n in g]} for g in groups] or \
        list(named.values())
    return torch.optim.AdamW(params, lr=123.0, weight_decay=9.0,
                             foreach=False)


def load(model, optimizer, path, mapping):
    """Loads the checkpoint at path; returns the number of bytes read."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (get_state_dict,
                                                         set_state_dict)
    import optimfs
    from optimfs.torch import StorageReader

    model_sd, optim_sd = get_state_dict(model, optimizer)
    sd = {"model": model_sd, "optim": optim_sd}
    with optimfs.open(path) as ck:
        dcp.load(sd, storage_reader=StorageReader(ck, mapping=mapping))
        read = ck.stats()["local.read_bytes"]
    set_state_dict(model, optimizer, model_state_dict=sd["model"],
                   optim_state_dict=sd["optim"])
    return read


def read_all(path):
    """Reads all tensors whole; returns the number of bytes read."""
    import optimfs

    with optimfs.open(path) as ck:
        for name in ck.keys():
            if isinstance(ck[name], optimfs.Tensor):
                ck[name].torch()
        return ck.stats()["local.read_bytes"]


def load_values():
    """Loads values of a training loop that PyTorch itself saved."""
    import torch
    import torch.distributed.checkpoint as dcp
    from optimfs.torch import StorageReader

    saved = {"step": 7, "seen": 1.5, "name": "run", "id": "12",
             "loop": {"step": 9, "k" * 300: 1}, "z": torch.tensor(1 - 2j)}
    with tempfile.TemporaryDirectory() as path:
        dcp.save(saved, checkpoint_id=path)
        sd = {"step": 0, "seen": 0.0, "name": "", "id": "",
              "loop": {"step": 0, "k" * 300: 0}, "z": torch.tensor(0j)}
        dcp.load(sd, storage_reader=StorageReader(path))
    assert sd == saved, sd


def optimizer_state(lr, fill):
    import torch
    return {"state": {"w": {"exp_avg": torch.full((2, 3), fill), "step": 0}},
            "param_groups": [{"lr": lr, "eps": (None, fill), "params": [0]}]}


def load_optimizers():
    """Loads optimizers by the names that the state dict has for them."""
    import torch
    import torch.distributed.checkpoint as dcp
    from optimfs.torch import StorageReader

    for above in (("opt",), ("optimizer_a", "optimizer_b"),
                  ("optimizers.a", "optimizers.b"), ("a.adam", "b.adam")):
        with tempfile.TemporaryDirectory() as path:
            lr = torch.tensor(0.1, dtype=torch.float64)
            dcp.save({n: optimizer_state(lr + i, i + 1.0)
                      for i, n in enumerate(above)}, checkpoint_id=path)
            sd = {n: optimizer_state(torch.zeros_like(lr), 0.0)
                  for n in above}
            for n in above:
                sd[n]["param_groups"][0]["fused"] = True
            dcp.load(sd, storage_reader=StorageReader(path))
        for i, n in enumerate(above):
            group = sd[n]["param_groups"][0]
            assert torch.equal(group["lr"], lr + i), group
            assert group["eps"] == (None, i + 1.0), group
            assert group["fused"] is True and group["params"] == [0]
            state = sd[n]["state"]["w"]
            assert (state["exp_avg"] == i + 1).all(), n
            assert type(state["step"]) is int, n


def load_by_recipe(model, optimizer, path):
    """Runs the recipe of docs/python.md as it is written there."""
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        "..", "..", "docs", "python.md")
    with open(page) as f:
        code = re.search(r"^```python distributed\n((?:.*\n)*?)```$", f.read(),
                         re.M)[1]
    with tempfile.TemporaryDirectory() as place:
        os.symlink(os.path.abspath(path),
                   os.path.join(place, "global_step1000"))
        os.chdir(place)
        exec(code, {"model": model, "optimizer": optimizer})
        os.chdir("/")


def plain_twin(model, optimizer, shapes, trained, dtype, groups):
    """An unsharded model and optimizer with the same values."""
    import torch
    twin = build(shapes, trained, dtype)
    other = make_optimizer(twin, groups)
    mine = dict(model.named_parameters())
    for name, p in twin.named_parameters():
        with torch.no_grad():
            p.copy_(whole(mine[name]))
        if p.requires_grad:
            other.state[p] = {k: whole(v).clone() for k, v in
                              optimizer.state[mine[name]].items()}
    for mine, its in zip(optimizer.param_groups, other.param_groups):
        its.update({k: v for k, v in mine.items() if k != "params"})
    return twin, other


def run(rank, ranks, store, path, manifest, how):
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    import optimfs

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks),
                            rank=rank, world_size=ranks)
    half = how == "bfloat16"
    dtype = torch.bfloat16 if half else torch.float32
    truth = read_truth(manifest)
    there = (lambda n: n[5:].replace("_x_", ".")) if how == "renamed" else \
        (lambda n: n)
    here = (lambda n: "mine." + n.replace(".", "_x_")) if how == "renamed" \
        else (lambda n: n)
    with optimfs.open(path) as ck:
        shapes = {here(k): t.shape for k, t in
                  ck.state_dict()["model"].items()
                  if isinstance(t, optimfs.Tensor) and t.shape}
        trained = {here(k) for k in ck.state_dict()["optim"]["state"]}
        found = ck.param_groups
        lr = found[0]["lr"]
        groups = {"regrouped": found[::-1], "save": found}.get(
            how.split("=")[0], [])
        if "params" in found[0]:
            groups = [[here(n) for n in g["params"]] for g in groups]
        elif groups:  # Megatron-Core has vectors in the second one
            groups = [[n for n in sorted(trained) if (len(shapes[n]) == 1) is v]
                      for v in (False, True)]
        decays = [float(g["weight_decay"]) for g in found]

    model = build(shapes, trained, dtype)
    fully_shard(model)
    optimizer = make_optimizer(model, groups)
    if how == "recipe":
        load_by_recipe(model, optimizer, path)
    else:
        read = load(model, optimizer, path,
                    there if how == "renamed" else None)
        # its own boxes and no others, but for what small archives begin with
        assert 0 < read < read_all(path), read

    seen = check_loaded(model, optimizer, truth, there, half)
    assert seen >= len(trained) * (1 if half else 3), seen
    assert optimizer.param_groups[0]["lr"] == float(getattr(lr, "item",
                                                            lambda: lr)())
    got = [g["weight_decay"] for g in optimizer.param_groups]
    assert got == {"regrouped": decays[::-1]}.get(how, decays[:len(got)]), got
    twin, other = plain_twin(model, optimizer, shapes, trained, dtype,
                             groups)
    for step in range(2):
        for m, o in ((model, optimizer), (twin, other)):
            set_grads(m, step)
            o.step()
    for (name, p), q in zip(model.named_parameters(), twin.parameters()):
        assert sha256(whole(p)) == sha256(q), "after two steps: " + name
    if how.startswith("save="):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict
        model_sd, optim_sd = get_state_dict(model, optimizer)
        dcp.save({"model": model_sd, "optim": optim_sd},
                 checkpoint_id=how[len("save="):])
    dist.destroy_process_group()


def main():
    if sys.argv[1:] == ["version"]:
        return 0 if new_enough() else 1
    if sys.argv[1:] == ["values"]:
        return load_values()
    if sys.argv[1:] == ["optimizers"]:
        return load_optimizers()
    path, manifest, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3])
    import torch.multiprocessing as mp
    with tempfile.NamedTemporaryFile() as f:
        # Forked, so that PyTorch is imported only once.
        mp.start_processes(run, (ranks, f.name + ".store", path, manifest,
                                 "".join(sys.argv[4:])), nprocs=ranks,
                           start_method="fork")
    return 0


if __name__ == "__main__":
    sys.exit(main())
