#!/usr/bin/env python3
# make.py - versions of weights in the forms of slime and TRL, and what they are
# SPDX-License-Identifier: Apache-2.0
#
# make.py    writes slime_xxh3, slime_adler32, trl and trl_old beside itself; it
# needs zstandard and xxhash. The forms are described in docs/formats/delta.md.
import hashlib
import json
import os
import random
import shutil
import struct
import zlib

import xxhash
import zstandard

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = {"embed.weight": [40, 6], "layers.0.q.weight": [8, 6],
          "layers.0.norm.weight": [6], "layers.1.q.weight": [8, 6],
          "head.weight": [300, 7]}
CHANGE = [n for n in SHAPES if "norm" not in n]


def numel(name):
    n = 1
    for d in SHAPES[name]:
        n *= d
    return n


def start(rng):
    return {n: [rng.randrange(0x3c00, 0x3f80) | rng.randrange(2) << 15
                for _ in range(numel(n))] for n in SHAPES}


def step(rng, old):
    """The next version: some elements change; one tensor now and then does not."""
    new = {n: list(v) for n, v in old.items()}
    for n in CHANGE:
        if rng.random() < 0.2:
            continue
        for i in rng.sample(range(numel(n)), max(1, numel(n) // 15)):
            new[n][i] ^= rng.randrange(1, 8)
    return new


def raw(v):
    return struct.pack("<%dH" % len(v), *v)


def safetensors(path, tensors, metadata):
    """tensors: name -> (dtype, shape, bytes)"""
    header, at, data = {"__metadata__": metadata}, 0, b""
    for n, (dtype, shape, b) in sorted(tensors.items()):
        header[n] = {"dtype": dtype, "shape": shape,
                     "data_offsets": [at, at + len(b)]}
        at += len(b)
        data += b
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def whole(path, version, metadata):
    safetensors(path, {n: ("BF16", SHAPES[n], raw(v))
                       for n, v in version.items()}, metadata)


def expect(where, version):
    os.makedirs(where)
    with open(os.path.join(where, "manifest.json"), "w") as f:
        f.write("[\n%s\n]\n" % ",\n".join(json.dumps(
            {"path": ["model", n], "shape": SHAPES[n], "dtype": "bfloat16",
             "bytes": 2 * numel(n), "sha256":
             hashlib.sha256(raw(v)).hexdigest()}) for n, v in version.items()))


def change(encoding, old, new):
    a, b = raw(old), raw(new)
    if encoding == "xor":
        return bytes(x ^ y for x, y in zip(a, b))
    at = [i for i in range(len(a)) if a[i] != b[i]]
    return struct.pack("<I%dI" % len(at), len(at), *at) + bytes(b[i] for i in at)


def slime_version(where, number, encoding, old, new, checksum):
    names = [n for n in SHAPES if old[n] != new[n]]
    files = [names[:len(names) // 2], names[len(names) // 2:]]
    index = {"metadata": {"version": "%06d" % number,
                          "base_version": "%06d" % (number - 1),
                          "delta_encoding": encoding,
                          "compression_format": "zstd",
                          "checksum_format": checksum}, "weight_map": {}}
    for i, some in enumerate(files):
        name = "model-%05d-of-%05d.safetensors" % (i, len(files))
        tensors, sums = {}, {}
        for n in some:
            b = zstandard.ZstdCompressor().compress(
                change(encoding, old[n], new[n]))
            tensors[n] = ("U8", [len(b)], b)
            sums[n] = (xxhash.xxh3_128(raw(new[n])).hexdigest()
                       if checksum == "xxh3-128"
                       else "%08x" % zlib.adler32(raw(new[n])))
            index["weight_map"][n] = name
        safetensors(os.path.join(where, name), tensors, sums)
    with open(os.path.join(where, "model.safetensors.index.json"), "w") as f:
        json.dump(index, f)


def slime(where, checksum):
    rng = random.Random(checksum)
    version = start(rng)
    whole(where + "/ckpt/base/model.safetensors", version, {"format": "pt"})
    expect(where + "/expected_0", version)
    for i, encoding in enumerate(
            ["xor", "overwrite", "xor", "", "overwrite"], 1):
        to = "%s/ckpt/deltas/weight_v%06d" % (where, i)
        new = step(rng, version)
        if encoding == "":
            whole(to + "/model.safetensors", new, {"format": "pt"})
        else:
            slime_version(to, i, encoding, version, new, checksum)
        version = new
        expect("%s/expected_%d" % (where, i), version)


def trl(where, old_form):
    rng = random.Random(where[-3:])
    version = start(rng)
    for i in range(1, 6):
        new = step(rng, version) if i > 1 else version
        meta = {"model_version": str(i), "sparse": str(i not in (1, 4)),
                "sparsity": "0.9"}
        if not old_form:
            meta.update(format="sparse_weight_patch", version="1",
                        encoding="gap_delta")
        if i in (1, 4):
            whole("%s/ckpt/anchors/step_%06d.safetensors" % (where, i), new,
                  meta)
        else:
            tensors = {}
            for n in SHAPES:
                at = [k for k in range(numel(n)) if version[n][k] != new[n][k]]
                if not at:
                    continue
                gaps = [k - p - 1 for p, k in zip([-1] + at, at)]
                wide = numel(n) > 1000
                dtype, idx = (
                    ("I32", struct.pack("<%di" % len(at), *at)) if old_form
                    else ("U32", struct.pack("<%dI" % len(at), *gaps)) if wide
                    else ("U16", struct.pack("<%dH" % len(at), *gaps)))
                names = (".indices", ".values") if old_form else (".idx", ".val")
                tensors[n + names[0]] = (dtype, [len(at)], idx)
                tensors[n + names[1]] = ("BF16", [len(at)],
                                         raw([new[n][k] for k in at]))
            if old_form:
                meta["changed_params"] = json.dumps(list(SHAPES))
            safetensors("%s/ckpt/deltas/step_%06d.safetensors" % (where, i),
                        tensors, meta)
        version = new
        expect("%s/expected_%d" % (where, i), version)


for name, make, how in (("slime_xxh3", slime, "xxh3-128"),
                        ("slime_adler32", slime, "adler32"),
                        ("trl", trl, False), ("trl_old", trl, True)):
    shutil.rmtree(os.path.join(HERE, name), ignore_errors=True)
    make(os.path.join(HERE, name), how)
