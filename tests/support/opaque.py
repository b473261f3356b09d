#!/usr/bin/env python3
# opaque.py - a torch.save file with an object of an unknown class
# SPDX-License-Identifier: Apache-2.0
#
# opaque.py FILE: writes AdamW's state of one parameter, and next to it a
# program's own object. PyTorch is not needed: dummy classes have its names.
#
# opaque.py --items FILE.distcp DIRECTORY: replaces the first two items of a DCP
# data file by such an object and a tuple with a tensor, of the same lengths;
# copies the new items to DIRECTORY as 0 and 1.
#
# opaque.py --number VALUE FILE.distcp DIRECTORY: the same with an object and a
# tuple that hold a tensor with this number.
#
# opaque.py --subclass FILE.distcp OFFSET: replaces the item at this offset by a
# tensor of a subclass, as torchao's 8-bit states are.
#
# opaque.py --held FILE: writes a model and an object that holds such a tuple,
# with the tensor of the model.
#
# opaque.py --legacy FILE: the same, as torch.save wrote it before version 1.6.
#
# opaque.py --channels FILE: the same with a tensor quantized by channel.
#
# opaque.py --quantized NAME FILE: writes AdamW's state of the parameter w, and
# a quantized tensor in the model, which is w, frozen or a buffer.
#
# opaque.py --storages FILE FILE: has the second file all storages of the first?
#
# opaque.py --inner FILE: is the tensor of the tuple in that file?
#
# opaque.py --sequences FILE: writes a model, AdamW's state, and a tuple with
# sequences of tensors.
#
# opaque.py --lists FILE: writes a model and lists with tuples of tensors.
#
# opaque.py --kinds FILE: prints them, each tensor as T.
#
# opaque.py --optimizers FILE: writes an optimizer without state, one with state
# of its own beside that of parameter 0, and sequences with empty dicts.
#
# opaque.py --integers FILE: writes a model whose parameters are called 0 and 1,
# the state of an optimizer that numbers them the other way round, and dicts
# with integers and other objects as keys, and empty dicts.
#
# opaque.py --names FILE [groups|dict]: writes an optimizer for parameters that are
# called param_groups and "a<newline>b"; or two with groups that list them, in a
# list or in a dict by number.
#
# opaque.py --shared FILE: writes a dict that two keys have.
#
# opaque.py --some DIRECTORY: writes files of two ranks, with a dict that is empty
# on one.
#
# opaque.py --print FILE: prints its object, each tensor as T.
#
# opaque.py --run FILE: is the object in the extra.pt that was made of FILE?
import collections
import io
import os
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


class per_channel_affine:
    pass


def rebuild_quantized(*args):
    raise AssertionError


per_channel_affine.__module__ = "torch"
torch.per_channel_affine = per_channel_affine
rebuild_quantized.__module__ = "torch._utils"
rebuild_quantized.__qualname__ = "_rebuild_qtensor"
utils._rebuild_qtensor = rebuild_quantized


class Quantized(Tensor):
    def __reduce__(self):
        how = (per_channel_affine, Tensor(.25, .5, shape=(2,)),
               Tensor(3., 4., shape=(2,)), 0)
        storage, offset, shape, stride, *rest = super().__reduce__()[1]
        return rebuild_quantized, (storage, offset, shape, stride, how, *rest)


class per_tensor_affine:
    pass


class QuantizedStorage:
    pass


per_tensor_affine.__module__ = "torch"
torch.per_tensor_affine = per_tensor_affine
QuantizedStorage.__module__, QuantizedStorage.__qualname__ = \
    "torch", "QInt8Storage"
torch.QInt8Storage = QuantizedStorage


class Bytes(Key):
    def __init__(self, values):
        self.key, self.n = str(len(stored)), len(values)
        stored.append(bytes(values))


class Scaled(Tensor):
    def __reduce__(self):
        return rebuild_quantized, (
            Bytes(self.values), 0, self.shape, (1,),
            (per_tensor_affine, .25, 3), False, collections.OrderedDict())


class OptimState8bit:
    pass


def rebuild_subclass(*args):
    raise AssertionError


def rebuild_type(*args):
    raise AssertionError


OptimState8bit.__module__ = "torchao.optim.subclass_8bit"
rebuild_subclass.__module__ = "torch._utils"
rebuild_subclass.__qualname__ = "_rebuild_wrapper_subclass"
rebuild_type.__module__ = "torch._tensor"
rebuild_type.__qualname__ = "_rebuild_from_type_v2"
utils._rebuild_wrapper_subclass = rebuild_subclass
tensor = types.ModuleType("torch._tensor")
tensor._rebuild_from_type_v2 = rebuild_type
subclass = types.ModuleType("torchao.optim.subclass_8bit")
subclass.OptimState8bit = OptimState8bit
sys.modules.update({"torch._tensor": tensor, subclass.__name__: subclass,
                    "torchao": subclass, "torchao.optim": subclass})


class Subclass(Tensor):
    def __reduce__(self):
        state = {"codes": Tensor(*self.values, shape=self.shape)}
        return rebuild_type, (rebuild_subclass, OptimState8bit,
                              (OptimState8bit, None, self.shape), state)


class Run:
    def __init__(self):
        self.seed = 7


class Pickler(pickle.Pickler):
    def persistent_id(self, obj):
        if isinstance(obj, Key):
            kind = QuantizedStorage if isinstance(obj, Bytes) else Storage
            return "storage", kind, obj.key, "cpu", obj.n
        return None


def write(file, value, length=None):
    with zipfile.ZipFile(file, "w") as z:
        with z.open("archive/data.pkl", "w") as f:
            Pickler(f, protocol=2).dump(value)
        z.writestr("archive/version", "3\n")
        for key, data in enumerate(stored):
            z.writestr("archive/data/%d" % key, data)
        stored.clear()
        if length is not None:
            # the end has a header of 46 bytes per record, and 22 bytes
            names = sum(46 + len(i.filename) for i in z.infolist())
            pad = "archive/pad"
            left = length - file.tell() - names - 22 - 76 - 2 * len(pad)
            z.writestr(pad, bytes(left))


def write_legacy(file, value):
    with open(file, "wb") as f:
        for part in (0x1950a86a20f9469cfc6c, 1001, {"little_endian": True}):
            pickle.dump(part, f, protocol=2)
        Pickler(f, protocol=2).dump(value)
        pickle.dump([str(i) for i in range(len(stored))], f, protocol=2)
        for data in stored:
            f.write(struct.pack("<q", len(data) // 4) + data)
    stored.clear()


def replace_item(path, at, value):
    with open(path, "r+b") as f:
        length = f.read().index(b"PK\5\6", at) + 22 - at
        item = io.BytesIO()
        write(item, value, length)
        assert len(item.getvalue()) == length
        f.seek(at)
        f.write(item.getvalue())
    return item.getvalue()


def replace_items(path, copies, values):
    os.mkdir(copies)
    at = 0
    for i, value in enumerate(values):
        item = replace_item(path, at, value)
        with open("%s/%d" % (copies, i), "wb") as copy:
            copy.write(item)
        at += len(item)


class Other:
    def __init__(self, *args):
        self.args = args

    def __setitem__(self, key, value):
        pass


    def __repr__(self):
        return "T"


class Holder:
    def __init__(self, *held):
        self.held = held


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) == ("collections", "deque"):
            return collections.deque
        return globals()[name] if module == "__main__" else Other

    def persistent_load(self, pid):
        return pid


def tuples(value):
    if isinstance(value, tuple):
        yield value
    for part in value.values() if isinstance(value, dict) else \
            value if isinstance(value, (list, tuple)) else \
            vars(value).values() if isinstance(value, Holder) else ():
        yield from tuples(part)


if sys.argv[1] == "--inner":
    with zipfile.ZipFile(sys.argv[2]) as z:
        name, = [n for n in z.namelist() if n.endswith("/data.pkl")]
        tensor, = [t[1] for t in tuples(Unpickler(z.open(name)).load())
                   if t and t[0] == .9 and isinstance(t[1], Other)]
        key = tensor.args[0][2]
        data = z.read(name.replace("data.pkl", "data/" + key))
    sys.exit(data != struct.pack("<f", .5))
if sys.argv[1] in ("--kinds", "--print"):
    with zipfile.ZipFile(sys.argv[2]) as z:
        name, = [n for n in z.namelist() if n.endswith("/data.pkl")]
        value = Unpickler(z.open(name)).load()
    print(value["held"] if sys.argv[1] == "--kinds" else value)
    sys.exit()
if sys.argv[1] == "--run":
    with zipfile.ZipFile(sys.argv[2]) as z:
        name, = [n for n in z.namelist() if n.endswith("/data.pkl")]
        run = Unpickler(z.open(name)).load()["run"]
    sys.exit(not isinstance(run, Run) or vars(run) != {"seed": 7})
def storages(path):
    with zipfile.ZipFile(path) as z:
        return {z.read(n) for n in z.namelist() if "/data/" in n}


if sys.argv[1] == "--storages":
    sys.exit(not storages(sys.argv[2]) <= storages(sys.argv[3]))
if sys.argv[1] == "--channels":
    write(sys.argv[2], {"model": {"w": Tensor(1., 2., shape=(2,)),
                                  "q": Quantized(7., 8., shape=(2,))}})
    sys.exit()
if sys.argv[1] in ("--held", "--legacy"):
    save = write if sys.argv[1] == "--held" else write_legacy
    w = Tensor(1., 2., shape=(2,))
    save(sys.argv[2], {"model": {"w": w}, "held": Holder(.9, Tensor(.5), w)})
    sys.exit()
if sys.argv[1] == "--items":
    replace_items(*sys.argv[2:], [Run(), (.9, Tensor(.5))])
    sys.exit()
if sys.argv[1] == "--subclass":
    replace_item(sys.argv[2], int(sys.argv[3]), Subclass(1., 2., shape=(2,)))
    sys.exit()
if sys.argv[1] == "--number":
    tensor = Tensor(1., float(sys.argv[2]), shape=(2,))
    replace_items(*sys.argv[3:], [Holder(tensor), (.9, tensor)])
    sys.exit()
state = {"exp_avg": Tensor(.1, .2, shape=(2,)),
         "exp_avg_sq": Tensor(.1, .2, shape=(2,)), "step": Tensor(3.)}
group = {"lr": 1e-3, "betas": (.9, .999), "eps": 1e-8,
         "weight_decay": 0., "params": ["w"]}
if sys.argv[1] == "--quantized":
    model = {"w": Tensor(1., 2., shape=(2,)), sys.argv[2]: Scaled(7, 8, shape=(2,))}
    buffers = {"buffer_names": []} if sys.argv[2] == "frozen" else {}
    write(sys.argv[3], {"model": model, "optim": {
        "state": {"w": state}, "param_groups": [group]}, **buffers})
    sys.exit()
if sys.argv[1] == "--optimizers":
    t = Tensor(.5)
    write(sys.argv[2], {
        "model": {"w": Tensor(1., 2., shape=(2,))},
        "optimizers": {
            "a": {"state": {}, "param_groups": [{"lr": 1, "params": [0]}]},
            "b": {"state": {0: {"step": t}, "own": {"seen": t}, "n": 5},
                  "param_groups": [{"lr": 2, "params": [0]}]}},
        "held": [{}, t, ({}, t, {})]})
    sys.exit()
if sys.argv[1] == "--integers":
    first, second = Tensor(1., 2., shape=(2,)), Tensor(3., 4., shape=(2,))
    write(sys.argv[2], {
        "model": {"0": first, "1": second},
        "optim": {"state": {0: {"exp_avg": second, "Q": {0: first}},
                            1: {"exp_avg": first, "Q": {0: second}}},
                  "param_groups": [{"lr": 1, "params": [0, 1],
                                    "param_names": ["1", "0"]}]},
        "sched": {"milestones": collections.Counter({30: 1, -60: 2}),
                  "7": {7: {"8": 8}}},
        "plain": {2.5: 1, None: 2, False: 3, (1, "a, b"): {}, (-1e300,): 5,
                  (): 6, "(2,)": 7, "state": {}}})
    sys.exit()
if sys.argv[1] == "--names":
    t = Tensor(1., 2., shape=(2,))
    names = ["param_groups", "a\nb"]
    optim = {"state": {name: {"exp_avg": t} for name in names}}
    if len(sys.argv) > 3:
        optim["param_groups"] = [{"lr": 1, "params": names}]
        optim = [optim, optim] if sys.argv[3] == "groups" else \
            {0: optim, 1: optim}
    write(sys.argv[2], {"model": dict.fromkeys(names, t), "optim": optim})
    sys.exit()
if sys.argv[1] == "--shared":
    both = {"x": 1, "y": 2}
    write(sys.argv[2], {"model": {"w": Tensor(1., 2., shape=(2,))},
                        "s": {"a": both, "b": both, "z": 5}})
    sys.exit()
if sys.argv[1] == "--some":
    for rank, some in enumerate(({}, {"a": 1})):
        write("%s/state_rank%d.pt" % (sys.argv[2], rank), {
            "model": {"w%d" % rank: Tensor(1., 2., shape=(2,))}, "some": some,
            "none": {}})
    sys.exit()
if sys.argv[1] == "--lists":
    t = Tensor(.5)
    write(sys.argv[2], {
        "model": {"w": Tensor(1., 2., shape=(2,))},
        "held": {"whole": [0, (t, 2), [[(t,)], "x"]],
                 "parts": [(t, 3), t, [4, (t, 5)], [6, {"a": 7}]]},
        "many": [t] + [(t, i) for i in range(40)]})
    sys.exit()
if sys.argv[1] == "--sequences":
    t = Tensor(.5)
    write(sys.argv[2], {
        "model": {"w": Tensor(1., 2., shape=(2,))},
        "optim": {"state": {"w": state}, "param_groups": [group]},
        "held": (t, 1, [(t,), {"a": (t, t, t, "x")}],
                 collections.deque([t, 2], 5))})
    sys.exit()
write(sys.argv[1], {
    "model": {"w": Tensor(1., 2., shape=(2,))},
    "optim": {"state": {"w": state}, "param_groups": [group]},
    "run": Run()})
