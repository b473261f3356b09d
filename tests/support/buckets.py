#!/usr/bin/env python3
# buckets.py - compare and change checkpoints with flat buckets
# SPDX-License-Identifier: Apache-2.0
#
# buckets.py compare MANIFEST OPTIM   are the states below OPTIM, a copy of
#                                     optim/, those of the manifest, all of them?
# buckets.py named CHECKPOINT MANIFEST   how many of the states that it has are
#                                        those of the manifest, and how many not
# buckets.py copies CHECKPOINT PATH      the number of copies of its elements
# buckets.py swap CHECKPOINT PATH PATH   exchanges the stored bytes of tensors
# buckets.py change CHECKPOINT PATH      changes the first element
import hashlib
import io
import json
import os
import struct
import subprocess
import sys
import zipfile


def run(*args):
    return subprocess.run([os.environ["OPTIMFS"], *args], check=True,
                          stdout=subprocess.PIPE).stdout


def truth(manifest):
    for leaf in json.load(open(manifest)):
        if leaf["path"][:2] == ["optim", "state"] and leaf["shape"]:
            yield leaf["path"][2:], leaf["sha256"]


def digest(data):
    return hashlib.sha256(data).hexdigest()


def compare(manifest, optim):
    want = dict((tuple(path), sha) for path, sha in truth(manifest))
    have = set()
    for key in os.listdir(os.path.join(optim, "state")):
        for name in os.listdir(os.path.join(optim, "state", key)):
            if name != "step":
                have.add((key, name))
    bad = [p for p in want if p not in have or
           digest(open(os.path.join(optim, "state", *p), "rb").read()) != want[p]]
    if bad or have - set(want):
        sys.exit(f"wrong: {bad}, too many: {have - set(want)}")


def named(ck, manifest):
    listing = run("ls", "-R", ck, "optim/state").decode().split("\n")
    got = [digest(run("cat", ck, "/".join(["optim/state"] + path))) == sha
           for path, sha in truth(manifest)
           if "/".join(path) in listing]
    print(f"{got.count(True)} right, {got.count(False)} wrong")


def shards(ck, path):
    return json.loads(run("cat", ck, ".optimfs/layout/" + path))["shards"]


def copies(ck, path):
    whole = shards(ck, path)
    print(sum(s["offsets"] == whole[0]["offsets"] for s in whole))


# The file, offset and length of the elements of a shard.
def place(ck, shard):
    file = os.path.join(ck, shard["file"])
    with open(file, "rb") as f:
        f.seek(shard["offset"])
        item = f.read(shard["length"])
    with zipfile.ZipFile(io.BytesIO(item)) as z:
        info = [i for i in z.infolist() if i.filename.endswith("/data/0")][0]
    name, extra = struct.unpack_from("<HH", item, info.header_offset + 26)
    at = info.header_offset + 30 + name + extra
    return file, shard["offset"] + at, item[at:at + info.file_size]


def put(file, at, data):
    with open(file, "r+b") as f:
        f.seek(at)
        f.write(data)


def swap(ck, a, b):
    for x, y in zip(shards(ck, a), shards(ck, b)):
        first, second = place(ck, x), place(ck, y)
        put(*first[:2], second[2])
        put(*second[:2], first[2])


def change(ck, path):
    file, at, data = place(ck, shards(ck, path)[0])
    put(file, at, bytes([data[0] ^ 1]) + data[1:])


def damage(ck, path):
    for s in shards(ck, path):
        put(os.path.join(ck, s["file"]), s["offset"], bytes(s["length"]))


globals()[sys.argv[1]](*sys.argv[2:])
