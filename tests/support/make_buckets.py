#!/usr/bin/env python3
# make_buckets.py - a large checkpoint with flat buckets, as Megatron-Core's
# SPDX-License-Identifier: Apache-2.0
#
# make_buckets.py DIRECTORY LAYERS [--index]: 8 pipeline stages of LAYERS layers
# by 8 tensor-parallel ranks, 12 parameters a layer, of 128 elements on each
# rank: 768 times LAYERS slices of three states. With --index the data files have
# the right sizes, but no data.
import io
import os
import pickle
import random
import sys
import types
import zipfile

STAGES = TENSOR = 8
N = 128
NAMES = ["self_attention.linear_proj.weight", "self_attention.linear_proj.bias",
         "self_attention.linear_qkv.weight", "self_attention.linear_qkv.bias",
         "mlp.router.weight", "mlp.router.bias", "mlp.linear_fc1.weight",
         "mlp.linear_fc1.bias", "mlp.linear_fc2.weight", "mlp.linear_fc2.bias",
         "mlp.shared_experts.linear_fc1.weight",
         "mlp.shared_experts.linear_fc2.weight"]


def module(name):
    sys.modules[name] = types.ModuleType(name)
    return name


for parent in ("torch", "torch.distributed", "torch.distributed.checkpoint"):
    module(parent)
META = module("torch.distributed.checkpoint.metadata")
FILES = module("torch.distributed.checkpoint.filesystem")


def a_class(where, name, base=object):
    made = type(name, (base,), {"__module__": where})
    setattr(sys.modules[where], name, made)
    return made


Metadata = a_class(META, "Metadata")
Tensor = a_class(META, "TensorStorageMetadata")
Chunk = a_class(META, "ChunkStorageMetadata")
Properties = a_class(META, "TensorProperties")
Index = a_class(META, "MetadataIndex")
Storage = a_class(FILES, "_StorageInfo")
Size = a_class("torch", "Size", tuple)
Size.__reduce__ = lambda self: (Size, (tuple(self),))


def constant(name):
    made = type(name, (), {"__module__": "torch",
                           "__reduce__": lambda self: name})()
    setattr(sys.modules["torch"], name, made)
    return made


STRIDED = constant("strided")


def make(kind, **attributes):
    made = kind.__new__(kind)
    made.__dict__.update(attributes)
    return made


def properties(dtype):
    return make(Properties, dtype=constant(dtype), layout=STRIDED,
                requires_grad=False, memory_format=None, pin_memory=False)


# What torch.save writes for a tensor of N elements: the bytes before the
# elements, and those behind them.
def template(storage, size):
    pkl = (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storage"
           b"ctorch\n" + storage + b"\nX\x01\0\0\0000X\x03\0\0\0cpuK" +
           bytes([N]) + b"tQK\0K" + bytes([N]) + b"\x85K\x01\x85\x89"
           b"ccollections\nOrderedDict\n)Rt\x52.")
    mark = b"\xa5" * size * N
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in (("data.pkl", pkl), ("byteorder", b"little"),
                           ("data/0", mark), ("version", b"3\n")):
            z.writestr(zipfile.ZipInfo("archive/" + name), data)
    return out.getvalue().split(mark)


HALF = template(b"BFloat16Storage", 2)
FULL = template(b"FloatStorage", 4)


class Files:
    def __init__(self, where, empty):
        self.where, self.empty, self.open, self.at = where, empty, {}, {}

    def put(self, rank, around, data):
        name = f"__{rank}_0.distcp"
        if name not in self.open:
            self.open[name] = open(os.path.join(self.where, name), "wb")
        item = around[0] + data + around[1]
        at = self.at.get(name, 0)
        if not self.empty:
            self.open[name].write(item)
        self.at[name] = at + len(item)
        return make(Storage, relative_path=name, offset=at, length=len(item))

    def close(self):
        for name, file in self.open.items():
            file.truncate(self.at[name])
            file.close()


def main(where, layers, empty):
    os.makedirs(where)
    rng = random.Random(1)
    files, tensors, storage, masters = Files(where, empty), {}, {}, {}
    half, full = properties("bfloat16"), properties("float32")

    def chunk(key, off, size, place):
        storage[make(Index, fqn=key, offset=off, index=None)] = place
        return make(Chunk, offsets=off, sizes=size)

    for name in NAMES:
        key, chunks = "decoder.layers." + name, []
        for layer in range(STAGES * layers):
            for t in range(TENSOR):
                # exact in bfloat16, so that no rounding is needed here
                high = rng.randbytes(2 * N) if not empty else bytes(2 * N)
                high = bytes(b & 0xbf if i % 2 else b
                             for i, b in enumerate(high))
                masters[name, layer, t] = b"".join(
                    b"\0\0" + high[i:i + 2] for i in range(0, 2 * N, 2))
                chunks.append(chunk(
                    key, Size((layer, t * N)), Size((1, N)),
                    files.put(layer // layers * TENSOR + t, HALF, high)))
        tensors[key] = make(Tensor, properties=half, chunks=chunks,
                            size=Size((STAGES * layers, TENSOR * N)))
    for stage in range(STAGES):
        for t in range(TENSOR):
            mp = stage * TENSOR + t
            order = [(name, layer) for layer in
                     range(stage * layers, (stage + 1) * layers)
                     for name in NAMES][::-1]
            for state in ("param", "exp_avg", "exp_avg_sq"):
                key = (f"optimizer.distributed.dp_group_idx_{mp}.gbuf_idx_0."
                       "dtype_(torch.bfloat16, torch.float32)."
                       f"bucket_idx_0.{state}")
                chunks = [chunk(key, Size((i * N,)), Size((N,)),
                                files.put(mp, FULL, masters[name, layer, t]))
                          for i, (name, layer) in enumerate(order)]
                tensors[key] = make(Tensor, properties=full, chunks=chunks,
                                    size=Size((N * len(order),)))
    files.close()
    with open(os.path.join(where, "metadata.json"), "w") as f:
        f.write('{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
    with open(os.path.join(where, ".metadata"), "wb") as f:
        pickle.Pickler(f, 2).dump(make(Metadata, state_dict_metadata=tensors,
                                       planner_data=None, storage_data=storage))


main(sys.argv[1], int(sys.argv[2]), "--index" in sys.argv)
