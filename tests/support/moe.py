#!/usr/bin/env python3
# moe.py - change checkpoints of deepspeed.moe
# SPDX-License-Identifier: Apache-2.0
#
# moe.py sets DIR        exchanges the groups of experts of ranks 1 and 2 of 4, so
#                        that the ranks of a set follow each other
# moe.py weights DIR     exchanges the weights of experts 0 and 1 of layer 0
# moe.py put FILE A B    replaces bytes of the pickle in FILE, given in hexadecimal
import os
import sys
import zipfile

OPTIM = "bf16_zero_pp_rank_%d_mp_rank_00_optim_states.pt"
WEIGHTS = "layer_0_expert_%d_mp_rank_00_model_states.pt"


def read(path):
    with zipfile.ZipFile(path) as z:
        return [(i, z.read(i)) for i in z.infolist()]


def write(path, records):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for info, data in records:
            z.writestr(zipfile.ZipInfo(info.filename), data)


def exchange(a, b, least):
    """Exchanges the storages of two files that have at least so many bytes."""
    one, two = read(a), read(b)
    for i, (info, data) in enumerate(one):
        if "/data/" in info.filename and len(data) >= least:
            assert len(two[i][1]) == len(data)
            one[i], two[i] = (info, two[i][1]), (two[i][0], data)
    write(a, one)
    write(b, two)


def put(path, old, new):
    records = read(path)
    for i, (info, data) in enumerate(records):
        if info.filename.endswith("data.pkl"):
            assert bytes.fromhex(old) in data
            data = data.replace(bytes.fromhex(old), bytes.fromhex(new))
            records[i] = (info, data)
    write(path, records)


def main(what, path, *args):
    if what == "sets":
        # the group of experts is larger than the other
        exchange(os.path.join(path, OPTIM % 1), os.path.join(path, OPTIM % 2),
                 500)
    elif what == "weights":
        exchange(os.path.join(path, WEIGHTS % 0),
                 os.path.join(path, WEIGHTS % 1), 0)
    else:
        put(path, *args)


main(*sys.argv[1:])
