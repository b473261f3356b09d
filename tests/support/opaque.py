#!/usr/bin/env python3
# opaque.py - a torch.save file with an object of a class that nobody knows
# SPDX-License-Identifier: Apache-2.0
#
# opaque.py FILE: AdamW of one parameter, and beside it what a program keeps of
# its own. PyTorch is not needed: its classes are stand-ins of their names.
import collections
import pickle
import struct
import sys
import types
import zipfile

torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
sys.modules.update({"torch": torch, "torch._utils": utils})


def rebuild(*args):
    raise AssertionError


class Storage:
    pass


rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
utils._rebuild_tensor_v2 = rebuild
Storage.__module__, Storage.__qualname__ = "torch", "FloatStorage"
torch.FloatStorage = Storage
stored = []


class Key:
    def __init__(self, values):
        self.key, self.n = str(len(stored)), len(values)
        stored.append(struct.pack("<%df" % len(values), *values))


class Tensor:
    def __init__(self, *values, shape=()):
        self.values, self.shape = values, shape

    def __reduce__(self):
        return rebuild, (Key(self.values), 0, self.shape,
                         (1,) * len(self.shape), False,
                         collections.OrderedDict())


class Run:
    def __init__(self):
        self.seed = 7


class Pickler(pickle.Pickler):
    def persistent_id(self, obj):
        if isinstance(obj, Key):
            return "storage", Storage, obj.key, "cpu", obj.n
        return None


state = {"exp_avg": Tensor(.1, .2, shape=(2,)),
         "exp_avg_sq": Tensor(.1, .2, shape=(2,)), "step": Tensor(3.)}
group = {"lr": 1e-3, "betas": (.9, .999), "eps": 1e-8,
         "weight_decay": 0., "params": ["w"]}
with zipfile.ZipFile(sys.argv[1], "w") as z:
    with z.open("archive/data.pkl", "w") as f:
        Pickler(f, protocol=2).dump({
            "model": {"w": Tensor(1., 2., shape=(2,))},
            "optim": {"state": {"w": state}, "param_groups": [group]},
            "run": Run()})
    z.writestr("archive/version", "3\n")
    for key, data in enumerate(stored):
        z.writestr("archive/data/%d" % key, data)
