# generated.py - can PyTorch read a checkpoint that mkdcp wrote?
# SPDX-License-Identifier: Apache-2.0
"""usage: generated.py CHECKPOINT

Unpickles .metadata, with stubs for classes that this PyTorch may lack, loads each
item with torch.load, and checks that chunks tile their tensors and items their
files."""
import collections
import io
import os
import pickle
import subprocess
import sys
import zipfile

import torch


class Stub:
    def __setstate__(self, state):
        if isinstance(state, dict):
            self.__dict__.update(state)
        else:
            self.state = state


class Unpickler(pickle.Unpickler):
    classes = {}

    def find_class(self, module, name):
        if module == "torch":
            return getattr(torch, name)
        if (module, name) == ("torch.serialization", "_get_layout"):
            return str
        if (module, name) == ("pathlib", "PosixPath"):
            return str
        assert module.startswith("torch.distributed.checkpoint."), module
        if name == "_MEM_FORMAT_ENCODING":
            return int
        if name not in self.classes:
            self.classes[name] = type(name, (Stub,), {})
        return self.classes[name]


def load(root, info):
    with open(os.path.join(root, info.relative_path), "rb") as f:
        f.seek(info.offset)
        raw = f.read(info.length)
    assert len(raw) == info.length
    if getattr(info, "transform_descriptors", None):
        assert info.transform_descriptors == ["stream.zstd/1"]
        raw = subprocess.run(["zstd", "-dc"], input=raw, check=True,
                             stdout=subprocess.PIPE).stdout
    archive = zipfile.ZipFile(io.BytesIO(raw))
    for r in archive.infolist():
        if r.filename != "archive/data/0":
            continue
        name, extra = (int.from_bytes(raw[r.header_offset + at:][:2], "little")
                       for at in (26, 28))
        assert (r.header_offset + 30 + name + extra) % 64 == 0
    return torch.load(io.BytesIO(raw))


def check(root):
    with open(os.path.join(root, ".metadata"), "rb") as f:
        md = Unpickler(f).load()
    assert set(vars(md)) == {"state_dict_metadata", "planner_data",
                             "storage_data", "storage_meta", "version"}
    infos = {(k.fqn, getattr(k, "offset", None)): v
             for k, v in md.storage_data.items()}
    assert len(infos) == len(md.storage_data)
    for key, t in md.state_dict_metadata.items():
        assert ".".join(map(str, md.planner_data[key])) == key
        if type(t).__name__ == "BytesStorageMetadata":
            load(root, infos[key, None])
            continue
        seen = torch.zeros(t.size, dtype=torch.int32)
        for c in t.chunks:
            x = load(root, infos[key, c.offsets])
            assert x.shape == c.sizes and x.dtype == t.properties.state[0]
            seen[tuple(slice(o, o + s)
                       for o, s in zip(c.offsets, c.sizes))] += 1
        assert bool((seen == 1).all()), key
    ends = collections.defaultdict(int)
    for i in sorted(infos.values(), key=lambda i: (i.relative_path, i.offset)):
        assert i.offset == ends[i.relative_path]
        ends[i.relative_path] += i.length
    for name, end in ends.items():
        assert end == os.path.getsize(os.path.join(root, name)), name


check(sys.argv[1])
