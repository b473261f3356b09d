"""Writes the checkpoints of this directory with PyTorch (CPU): python3 make.py

Parameter number i is full of i + 1, and so is its exp_avg: what a name leads to
tells whether it is the right one.
"""
import argparse
import collections
import os
import types
import warnings

warnings.filterwarnings("ignore")
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

os.chdir(os.path.dirname(os.path.abspath(__file__)))


def model(shapes):
    m = torch.nn.Module()
    for i, (name, shape) in enumerate(shapes.items()):
        m.register_parameter(name, torch.nn.Parameter(torch.full(shape, i + 1.0)))
    return m


def step(m, params, **options):
    o = torch.optim.AdamW(params, lr=1e-3, weight_decay=0.0, **options)
    for i, p in enumerate(m.parameters()):
        p.grad = torch.full(p.shape, 10.0 * (i + 1))
    o.step()
    return o.state_dict()


def save(value, path):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    torch.save(value, path)


def weights(m, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    save_file({k: v.detach().clone() for k, v in m.state_dict().items()}, path)


EQUAL = {"query": (2, 2), "key": (2, 2), "value": (2, 2)}
OTHER = {"query": (2, 3), "key": (2, 2), "value": (3, 2)}

for name, shapes in (("equal", EQUAL), ("shapes", OTHER)):
    m = model(shapes)
    o = step(m, m.parameters())
    weights(m, f"sorted_{name}/model.safetensors")
    save(o, f"sorted_{name}/optimizer.pt")
    save({"model": m.state_dict(), "optimizer": o}, f"pickle_{name}.pt")

m = model(EQUAL)
o = step(m, m.named_parameters())
save({"optimizer": o}, "param_names.pt")
m = model(EQUAL)
decay = [(n, p) for n, p in m.named_parameters() if n != "key"]
o = step(m, [{"params": decay}, {"params": [("key", m.key)]}])
weights(m, "param_names_groups/model.safetensors")
save(o, "param_names_groups/optimizer.pt")
dcp.save({"model": m.state_dict(), "optim": o}, checkpoint_id="param_names_dcp", no_dist=True)

# moments of a projected gradient, as GaLore keeps them
w = torch.arange(24.0).reshape(6, 4)
exp_avg, exp_avg_sq = torch.zeros(6, 3), torch.zeros(6, 3)
for g in (torch.full((6, 3), 1.0), torch.full((6, 3), 2.0)):
    exp_avg.lerp_(g, 0.1)
    exp_avg_sq.mul_(0.999).addcmul_(g, g, value=0.001)
low = {"step": 2, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
group = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8}
dcp.save({"model": {"w": w}, "optim": {
    "state": {"w": {**low, "projector": {"ortho_matrix": torch.eye(3, 4), "rank": 3}}},
    "param_groups": [{**group, "params": ["w"]}]}},
    checkpoint_id="galore", no_dist=True)
# APOLLO: the rank is in the group
save({"model": {"w": w}, "optim": {
    "state": {0: low}, "param_groups": [{**group, "rank": 3, "params": [0]}]}}, "apollo.pt")
m = torch.nn.Linear(4, 6)
a = torch.optim.Adafactor(m.parameters())
m(torch.ones(4)).square().sum().backward()
a.step()
save({"model": m.state_dict(), "optim": a.state_dict()}, "adafactor.pt")

# what two ranks each saved of one model; ranks_*_differ: they trained apart


def views(r):
    flat = torch.arange(8.0) + 100 * r
    return {"w": flat[:4].view(2, 2), "b": flat[4:]}


def elsewhere(r):  # the buffers differ, but not where the weights are
    flat = torch.cat([torch.arange(6.0), torch.full((2,), float(r))])
    return {"w": flat[:4].view(2, 2), "b": flat[4:6]}


def turned(r):
    return {"w": (torch.arange(6.0).view(2, 3) + 100 * r).t()[:2]}


def own(r):
    return {"w": torch.arange(4.0).view(2, 2) + 100 * r}


zip_off = {"_use_new_zipfile_serialization": False}
for name, weights_of, options in (("views", views, {}), ("turned", turned, {}), ("legacy", own, zip_off), ("bare", own, {})):
    torch.serialization.set_crc32_options(name != "bare")
    for r in range(2):
        for kind, seed in (("same", 0), ("differ", r)):
            os.makedirs(f"ranks_{name}_{kind}", exist_ok=True)
            torch.save({"model": weights_of(seed)}, f"ranks_{name}_{kind}/rank{r}.pt", **options)
torch.serialization.set_crc32_options(True)
for r in range(2):
    save({"model": elsewhere(r)}, f"ranks_elsewhere_same/rank{r}.pt")

# plain data that a pickle writes as objects, and what only names a value
import dataclasses
import datetime


@dataclasses.dataclass
class Config:
    lr: float = 0.1


save({
    "model": {"w": torch.ones(2)},
    "args": argparse.Namespace(lr=0.1, layers=2, betas=[0.9, 0.95], inner=argparse.Namespace(x=1)),
    "empty": argparse.Namespace(),
    "simple": types.SimpleNamespace(a=1, b="x"),
    "queue": collections.deque(maxlen=3),
    "when": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc),
    "took": datetime.timedelta(days=1, seconds=3),
    "range": range(3, 9, 2),
    "numbers": [1, 2.0],
    "config": Config(),
    "configs": [Config(), 1],
    "ellipsis": ...,
}, "values.pt")
