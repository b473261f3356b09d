#!/usr/bin/env python3
# payload.py - damage the elements of one shard where they are stored
# SPDX-License-Identifier: Apache-2.0
#
# payload.py CHECKPOINT PATH RANK ACTION: changes the elements that RANK has of
# the tensor at PATH, in a DCP data file.
#   nan N              element N becomes NaN
#   inf N              element N becomes infinite
#   scale F            the first element is multiplied by F
#   shift N            elements move up by N; those at the end come first
#   zero N             all elements from N on become zero
#   from OTHER         elements of another tensor of the same rank and size
# Prints FILE OFFSET, the place of the first changed byte. Checksums are not
# updated, because reads do not verify them.
import io
import json
import os
import struct
import subprocess
import sys
import zipfile


def find(ck, path, rank):
    text = subprocess.run([os.environ["OPTIMFS"], "cat", ck,
                           ".optimfs/layout/" + path],
                          capture_output=True, check=True).stdout
    shard = [s for s in json.loads(text)["shards"] if s["rank"] == rank][0]
    data = open(os.path.join(ck, shard["file"]), "rb").read()
    item = data[shard["offset"]:shard["offset"] + shard["length"]]
    size = 4
    for n in shard["sizes"]:
        size *= n
    with zipfile.ZipFile(io.BytesIO(item)) as z:
        info = [i for i in z.infolist() if i.filename.endswith("/data/0")][0]
    name, extra = struct.unpack_from("<HH", item, info.header_offset + 26)
    at = shard["offset"] + info.header_offset + 30 + name + extra
    return shard["file"], at, size


def main(ck, path, rank, action, what):
    file, at, size = find(ck, path, int(rank))
    full = os.path.join(ck, file)
    data = bytearray(open(full, "rb").read())
    if action in ("nan", "inf"):
        at += 4 * int(what)
        data[at:at + 4] = struct.pack("<f", float(action))
    elif action == "shift":
        k = size - 4 * int(what)
        old = data[at:at + size]
        data[at:at + size] = old[k:] + old[:k]
    elif action == "scale":
        x, = struct.unpack_from("<f", data, at)
        data[at:at + 4] = struct.pack("<f", x * float(what))
    elif action == "zero":
        at += 4 * int(what)
        data[at:at + size - 4 * int(what)] = bytes(size - 4 * int(what))
    else:
        other, off, n = find(ck, what, int(rank))
        assert other == file and n == size
        data[at:at + size] = data[off:off + n]
    with open(full, "wb") as f:
        f.write(data)
    print(file, at)


main(*sys.argv[1:])
