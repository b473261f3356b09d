#!/usr/bin/python3
"""Write this case with Debian 12's PyTorch 1.13: make.py DIRECTORY"""
import dataclasses
import hashlib
import json
import os
import sys

# Python 3.11 refuses mutable defaults that PyTorch 1.13 has: let its classes hash.
_orig = dataclasses._process_class
def _patched(cls, init, repr, eq, order, unsafe_hash, frozen, *rest):
    if cls.__module__.startswith("torch.") and not frozen and "__hash__" not in cls.__dict__:
        unsafe_hash = True
    return _orig(cls, init, repr, eq, order, unsafe_hash, frozen, *rest)
dataclasses._process_class = _patched

import torch
from torch.distributed._shard.checkpoint import FileSystemWriter, save_state_dict
torch.manual_seed(7)
m = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 2))
o = torch.optim.AdamW(m.parameters(), lr=1e-3)
for _ in range(2):
    m(torch.randn(4, 5)).sum().backward(); o.step(); o.zero_grad()
state = {"model." + k: v.detach() for k, v in m.state_dict().items()}
state["optim"] = o.state_dict()
state["epoch"] = 3
state["note"] = "written by torch 1.13"
case = sys.argv[1]
os.makedirs(case + "/expected")
save_state_dict(state, FileSystemWriter(case + "/ckpt"), no_dist=True)
out = []
def walk(path, v):
    if isinstance(v, torch.Tensor):
        b = v.contiguous().numpy().tobytes()
        e = {"path": path, "shape": list(v.shape), "dtype": str(v.dtype)[6:], "bytes": len(b), "sha256": hashlib.sha256(b).hexdigest()}
        if v.dim() == 0: e["raw"] = b.hex()
        out.append(e)
    elif isinstance(v, dict):
        for k, x in v.items(): walk(path + [k], x)
    elif isinstance(v, list) and any(isinstance(x, (dict, torch.Tensor)) for x in v):
        for i, x in enumerate(v): walk(path + [i], x)
    elif isinstance(v, (tuple, list)): out.append({"path": path, "value": repr(v)})
    else: out.append({"path": path, "value": v})
for k, v in state.items(): walk([k], v)
with open(case + "/expected/manifest.json", "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(e) for e in out) + "\n]\n")
