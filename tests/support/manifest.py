#!/usr/bin/env python3
# manifest.py - is a tree what the manifest of its fixture says?
# SPDX-License-Identifier: Apache-2.0
#
# manifest.py MANIFEST COPY    COPY is a copy of the tree (optimfs cp -r CKPT . COPY)
import ast
import hashlib
import json
import os
import struct
import sys

FORMATS = {"float32": "<f", "float64": "<d", "float16": "<e", "int64": "<q",
           "int32": "<i", "uint8": "<B", "bool": "<?"}


def path_of(leaf):
    top, *rest = leaf["path"]
    if top not in ("model", "optim"):
        rest.insert(0, top)
        top = "extra"
    return os.path.join(top, *map(str, rest))


def literal(value):
    """What Python's repr of a value in a manifest stands for."""
    try:
        return ast.literal_eval(value)
    except (TypeError, ValueError, SyntaxError):
        return value


def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def is_right(leaf, got):
    if leaf.get("shape"):
        return hashlib.sha256(got).hexdigest() == leaf["sha256"]
    if "raw" in leaf:
        raw = bytes.fromhex(leaf["raw"])
        return struct.unpack(FORMATS[leaf["dtype"]], raw)[0] == json.loads(got)
    want = literal(leaf["value"])
    if leaf["path"][-1] == "params":
        return got.decode() == "".join(f"{v}\n" for v in want)
    if isinstance(want, bytes):
        return got == want
    if isinstance(want, str):
        return got.decode() == want + "\n"
    return json.loads(got) == plain(want)


def main(manifest, copy):
    bad = 0
    leaves = json.load(open(manifest))
    for leaf in leaves:
        path = path_of(leaf)
        try:
            right = is_right(leaf, open(os.path.join(copy, path), "rb").read())
        except (OSError, ValueError) as e:
            right, path = False, f"{path}: {e}"
        if not right:
            bad += 1
            print("wrong:", path)
    sys.exit(bad > 0 or not leaves)


main(*sys.argv[1:])
