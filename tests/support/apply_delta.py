#!/usr/bin/env python3
# apply_delta.py - full weights from a base and versions, as docs/formats/delta.md says
# SPDX-License-Identifier: Apache-2.0
#
# apply_delta.py BASE VERSION... OUT
#     BASE and OUT are safetensors files, VERSION directories in slime's form. An
#     independent reader: it shares nothing with optimfs.
import json
import os
import struct
import subprocess
import sys


def load(path):
    with open(path, "rb") as f:
        b = f.read()
    n = struct.unpack("<Q", b[:8])[0]
    header = json.loads(b[8:8 + n])
    return header, b[8 + n:]


def apply(old, change, encoding):
    new = bytearray(old)
    if encoding == "xor":
        assert len(change) == len(old)
        for i, byte in enumerate(change):
            new[i] ^= byte
        return bytes(new)
    assert encoding == "overwrite"
    n, = struct.unpack_from("<I", change)
    assert len(change) == 4 + 5 * n
    for i in range(n):
        at, = struct.unpack_from("<I", change, 4 + 4 * i)
        new[at] = change[4 + 4 * n + i]
    return bytes(new)


base, *versions, out = sys.argv[1:]
header, data = load(base)
for version in versions:
    with open(os.path.join(version, "model.safetensors.index.json")) as f:
        index = json.load(f)
    meta = index["metadata"]
    assert meta["compression_format"] == "zstd"
    assert int(meta["base_version"]) < int(meta["version"])
    for name, file in index["weight_map"].items():
        h, frames = load(os.path.join(version, file))
        assert h[name]["dtype"] == "U8" and len(h[name]["shape"]) == 1
        assert len(h["__metadata__"][name]) == 32
        frame = frames[slice(*h[name]["data_offsets"])]
        change = subprocess.run(["zstd", "-dc"], input=frame, check=True,
                                stdout=subprocess.PIPE).stdout
        a, b = header[name]["data_offsets"]
        data = data[:a] + apply(data[a:b], change, meta["delta_encoding"]) + \
            data[b:]
text = json.dumps(header).encode()
with open(out, "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + data)
