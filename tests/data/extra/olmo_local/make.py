#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write what OLMo's LocalShardedCheckpointer saves on two ranks: new/ as with
PyTorch 2.1, old/ as with 2.0, noshard/ of NO_SHARD; and hybrid/ on four, of
HYBRID_SHARD, where ranks 2 and 3 have what 0 and 1 have.  Element e of parameter i is 1000 * i + e; its
exp_avg has 0.5 more.  The layout is worked out here, element by element."""
import collections, os, sys, types
import torch

W = 2
UNITS = [("", [("wte.weight", (5, 3)), ("ln.bias", (3,))]),
         ("_fsdp_wrapped_module.blocks.0", [("att.weight", (3, 3)), ("b", (2,)), ("c", (7,))])]
mod = types.ModuleType("torch.distributed.fsdp.flat_param")
Info = collections.namedtuple("_ShardParamInfo", ["in_shard", "offset_in_shard",
    "numel_in_shard", "intra_param_start_idx", "intra_param_end_idx"])
Info.__module__ = mod.__name__
mod._ShardParamInfo = Info
sys.modules[mod.__name__] = mod


def save(path, obj):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save(obj, path)


def flatten(params, first, new):
    flat, padded = [], []
    def pad(to):
        n = -len(flat) % to
        if n:
            flat.extend([None] * n)
            padded.append(n)
    for i, (_, shape) in enumerate(params):
        if new:
            pad(4)
        n = torch.Size(shape).numel()
        flat.extend((first + i, e) for e in range(n))
        padded.append(n)
    if new:
        pad(W)
    return flat, padded


def write(top, new, ranks=W, whole=False):
    names = [("" if not p else p + ".") + n for p, ps in UNITS for n, _ in ps]
    order = [3, 0, 4, 1, 2]  # not that of the units
    for rank in range(ranks):
        r = rank % W
        modules, slices, first = [], {}, 0
        for prefix, params in UNITS:
            flat, padded = flatten(params, first, new)
            shard = len(flat) if whole else -(-len(flat) // W)
            mine = flat if whole else flat[r * shard:(r + 1) * shard]
            right = shard - len(mine)
            data = torch.tensor([42. if x is None else 1000. * x[0] + x[1] for x in mine] + [0.] * right)
            infos, offsets, indices = [], [], []
            for i in range(len(params)):
                at = [k for k, x in enumerate(mine) if x and x[0] == first + i]
                if not at:
                    infos.append(Info(False, None, None, None, None))
                    continue
                e = [mine[k][1] for k in at]
                slices[first + i] = torch.tensor([1000. * (first + i) + x for x in e])
                if whole:
                    slices[first + i] = slices[first + i].reshape(params[i][1])
                infos.append(Info(True, at[0], len(at), e[0], e[-1]))
                offsets.append((e[0], e[-1]))
                indices.append(i)
            h = {"flat_param.data": data, "flat_param._fqns": tuple(n for n, _ in params)}
            if not new:
                h["flat_param._shard_param_offsets"] = offsets
                h["flat_param._shard_indices"] = (indices[0], indices[-1]) if indices else (0, 0)
            h["flat_param._numels"] = tuple(torch.Size(s).numel() for _, s in params)
            if new:
                h["flat_param._numels_with_padding"] = tuple(padded)
            h["flat_param._shapes"] = tuple(torch.Size(s) for _, s in params)
            h["flat_param._shard_numel_padded"] = right
            if new:
                h["flat_param._shard_param_infos"] = tuple(infos)
            modules.append({"handles": [h], "name": prefix})
            first += len(params)
        modules.insert(1, {"handles": [], "name": "empty"})
        save(f"{top}/model/rank{rank}.pt", {"modules": modules})
        save(f"{top}/optim/rank{rank}.pt", {
            "state": {k: {"step": torch.tensor(7.), "exp_avg": slices[p] + 0.5}
                      for k, p in enumerate(order) if p in slices},
            "param_groups": [
                {"lr": 0.1, "params": [0, 1], "param_names": [names[p] for p in order[:2]]},
                {"lr": 0.2, "params": [2, 3, 4], "param_names": [names[p] for p in order[2:]]}]})
        save(f"{top}/train/rank{rank}.pt", {"global_step": 7})
    open(f"{top}/metadata.yaml", "w").write(f"world_size: {ranks}\n")


os.chdir(os.path.dirname(os.path.abspath(__file__)))
write("new", True)
write("old", False)
write("noshard", True, whole=True)
write("hybrid", True, 2 * W)
