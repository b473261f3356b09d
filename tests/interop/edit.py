#!/usr/bin/env python3
"""edit.py - does PyTorch load the files that a read-write mount has changed?

usage: edit.py OPTIMFS DIR CASE DATA    one case, in the empty directory DIR;
                                        DATA: the checkpoints of tests/data
       edit.py list                the names of the cases

A case writes files with torch.save, mounts them, makes changes through the mount
as a shell would, unmounts, and loads the files again. The changes must be there.
Everything else must be unchanged: types, order, shared storages and stored
bytes. Exit status 1 at the first difference.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import collections
import inspect
import io
import json
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
import zipfile
import zlib

import torch

Point = collections.namedtuple("Point", "x y")


class Job:
    """A checkpoint, which may be one file, and its mount."""

    def __init__(self, optimfs, where, data):
        self.optimfs, self.data, self.options = optimfs, data, "rw"
        self.ck = os.path.join(where, "ck")
        self.mnt = os.path.join(where, "mnt")
        os.mkdir(self.ck)
        os.mkdir(self.mnt)

    def file(self, name="state.pt"):
        return os.path.join(self.ck, name)

    def path(self, *parts):
        return os.path.join(self.mnt, *parts)

    def damage(self):
        """The findings of fsck; an edit must not add any."""
        done = subprocess.run([self.optimfs, "fsck", "--data", self.ck],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
        errors = [line for line in done.stdout.splitlines()
                  if line.startswith("error: ")]
        assert done.returncode == (1 if errors else 0), done.stdout
        return errors

    def mount(self):
        self.was = self.damage()
        subprocess.run([self.optimfs, "mount", "-o", self.options, self.ck,
                        self.mnt], check=True)

    def commit(self):
        """Commits; returns the message of a failure, or an empty string."""
        try:
            with open(self.path(".optimfs", "control"), "w") as f:
                f.write("commit\n")
        except OSError as e:
            with open(self.path(".optimfs", "control")) as f:
                return f"{e} {f.read()}"
        return ""

    def umount(self, check=True):
        said = self.commit()
        assert said == "", said
        subprocess.run([self.optimfs, "umount", self.mnt], check=True)
        if not check:
            return
        assert self.damage() == self.was

    def text(self, parts, value):
        with open(self.path(*parts), "w") as f:
            f.write(value + "\n")

    def put(self, parts, tensor, at=0, mode="r+b"):
        """Overwrites bytes of a tensor, beginning with element at."""
        with open(self.path(*parts), mode) as f:
            f.seek(at * tensor.element_size())
            f.write(raw(tensor))

    def add(self, parts, tensor, dtype=None):
        with open(self.path(*parts), "wb") as f:
            if dtype is not None:
                shape = ",".join(str(n) for n in tensor.shape)
                os.setxattr(f.fileno(), "user.optimfs.dtype", dtype.encode())
                os.setxattr(f.fileno(), "user.optimfs.shape", shape.encode())
            f.write(raw(tensor))


def raw(tensor):
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() > 0 else b""


def load(file):
    """torch.load with any class: the files were written by this test."""
    if "weights_only" in inspect.signature(torch.load).parameters:
        return torch.load(file, weights_only=False)
    return torch.load(file)


def leaves(value, path=()):
    """The tensors in a nested value, by path."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for k, v in value.items():
            yield from leaves(v, path + (k,))
    elif isinstance(value, (list, tuple)):
        for i, v in enumerate(value):
            yield from leaves(v, path + (i,))


def sharing(value):
    """Which tensors are views of one storage, and their offsets in it."""
    groups = {}
    for path, t in leaves(value):
        if t.numel() > 0:
            groups.setdefault(t.storage().data_ptr(), []).append(
                (path, t.storage_offset(), t.stride()))
    return sorted(map(sorted, (map(repr, g) for g in groups.values())))


def same(got, want, path=()):
    at = "/".join(map(str, path))
    assert type(got) is type(want), f"{at}: {type(got)}, not {type(want)}"
    if isinstance(want, torch.Tensor):
        assert got.dtype == want.dtype, f"{at}: {got.dtype}"
        assert got.shape == want.shape, f"{at}: {got.shape}"
        assert got.requires_grad == want.requires_grad, f"{at}: requires_grad"
        assert raw(got) == raw(want), f"{at}: other elements"
    elif isinstance(want, dict):
        assert list(got) == list(want), f"{at}: {list(got)}, {list(want)}"
        for k in want:
            same(got[k], want[k], path + (k,))
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want), f"{at}: {len(got)} items"
        for i, v in enumerate(want):
            same(got[i], v, path + (i,))
    elif isinstance(want, argparse.Namespace):
        same(vars(got), vars(want), path + ("namespace",))
    else:
        assert got == want, f"{at}: {got!r}, not {want!r}"


def check(got, want, stored=None):
    same(got, want)
    assert sharing(got) == sharing(want if stored is None else stored), \
        "other storages are shared"


def sound(name):
    """Do unzip and zipfile accept the checksums?"""
    with zipfile.ZipFile(name) as z:
        assert z.testzip() is None, f"{z.testzip()}: checksum"
    done = subprocess.run(["unzip", "-tq", name], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def records(name):
    with zipfile.ZipFile(name) as z:
        return {i.filename: z.read(i) for i in z.infolist()}


def untouched(before, after, but=()):
    """Do all records that were not edited have their old bytes?"""
    for name, data in before.items():
        if not name.endswith(tuple(but)):
            assert after.get(name) == data, f"{name} changed"


def model():
    torch.manual_seed(0)
    flat = torch.randn(40)
    tied = torch.randn(6, 4)
    shared = [1, 2, {"deep": (0.9, None)}]
    net = collections.OrderedDict(
        embed=tied, a=torch.randn(5, 3), b=torch.randn(7).bfloat16(),
        first=flat[:12].view(3, 4), second=flat[12:30],
        turned=torch.randn(3, 5).t(), wide=torch.randn(4, 1).expand(4, 6),
        none=torch.zeros(0, 3), scalar=torch.tensor(2.5),
        count=torch.arange(9), flag=torch.tensor([True, False, True]),
        half=torch.randn(3, 2, 2).half(), head=tied)
    net._metadata = collections.OrderedDict({"": {"version": 1}})
    return net, shared


def named(keys="name", plain=dict):
    """A checkpoint as training programs save it, with difficult pickles."""
    net, shared = model()
    names = ["a", "b", "half"]
    state = {}
    for i, n in enumerate(names):
        state[n if keys == "name" else i] = {
            "step": torch.tensor(7.0) if keys == "name" else 7,
            "exp_avg": torch.randn(net[n].shape),
            "exp_avg_sq": torch.randn(net[n].shape)}
    params = names if keys == "name" else [0, 1, 2]
    betas = (0.9, 0.999)
    groups = [{"lr": 0.001, "betas": betas, "eps": 1e-8, "amsgrad": False,
               "foreach": None, "params": params[:2]},
              {"lr": 0.001, "betas": betas, "eps": 1e-8, "amsgrad": False,
               "foreach": None, "params": params[2:]}]
    return plain(model=net, optimizer={"state": state, "param_groups": groups},
                 epoch=3, seed=2 ** 70, best=float("inf"),
                 args=argparse.Namespace(lr=0.1, name="x"),
                 point=Point(1, torch.ones(2)), notes=[shared, shared],
                 blob=b"\0\1\2", scheduler={"last_epoch": 3, "_step_count": 4})


def edit_named(job, save, ids=False):
    """Most kinds of changes at once."""
    want = save(named("id" if ids else "name"))
    before = records(job.file()) if zipfile.is_zipfile(job.file()) else None
    key = {"a": 0, "b": 1, "half": 2} if ids else dict(a="a", b="b", half="half")
    opt = want["optimizer"]
    state = {n: ("optim", "state", n) for n in key}
    job.mount()

    new = torch.randn(5, 3)
    job.put(("model", "a"), new)
    want["model"]["a"] = new
    part = torch.randn(4)
    job.put(state["a"] + ("exp_avg",), part, at=6)
    opt["state"][key["a"]]["exp_avg"].view(-1)[6:10] = part
    job.put(("model", "first"), torch.zeros(3, 4))
    want["model"]["first"].zero_()
    turned = torch.randn(5, 3)
    job.put(("model", "turned"), turned)
    want["model"]["turned"].copy_(turned)
    job.text(("model", "scalar"), "-0.125")
    want["model"]["scalar"].fill_(-0.125)
    job.text(("optim", "param_groups", "1", "lr"), "3e-05")
    opt["param_groups"][1]["lr"] = 3e-05
    job.text(("optim", "param_groups", "0", "betas"), "[0.5, 0.75]")
    opt["param_groups"][0]["betas"] = (0.5, 0.75)
    job.text(("optim", "param_groups", "0", "amsgrad"), "true")
    opt["param_groups"][0]["amsgrad"] = True
    job.text(state["b"] + ("step",), "12")
    opt["state"][key["b"]]["step"] = 12 if ids else torch.tensor(12.0)
    job.text(("extra", "epoch"), "1099511627776")
    want["epoch"] = 1 << 40
    job.text(("extra", "scheduler", "_step_count"), "-5")
    want["scheduler"]["_step_count"] = -5
    if before is not None:
        os.unlink(job.path(*state["b"], "exp_avg"))
        del opt["state"][key["b"]]["exp_avg"]
        os.rename(job.path(*state["half"], "exp_avg_sq"),
                  job.path(*state["half"], "second"))
        opt["state"][key["half"]] = {
            {"exp_avg_sq": "second"}.get(k, k): v
            for k, v in opt["state"][key["half"]].items()}
        more = torch.randn(5, 3)
        job.add(state["a"] + ("max_exp_avg_sq",), more)
        opt["state"][key["a"]]["max_exp_avg_sq"] = more
        tall = torch.randn(4, 5, 3).double()
        job.add(state["a"] + ("history",), tall, "float64")
        opt["state"][key["a"]]["history"] = tall

    job.umount()
    got = load(job.file())
    del want["args"], got["args"]
    for d in (got, want):  # a tree does not keep the order of a dict
        for s in d["optimizer"]["state"]:
            d["optimizer"]["state"][s] = dict(
                sorted(d["optimizer"]["state"][s].items()))
    check(got, want)
    if before is not None:
        sound(job.file())
        untouched(before, records(job.file()),
                  ["data.pkl"] + changed(before, records(job.file())))


def changed(before, after):
    """The records of storages that differ."""
    return [n for n in before if after.get(n) != before[n] and "data/" in n]


def saver(job, **options):
    def save(value):
        torch.save(value, job.file(), **options)
        return load(job.file())
    return save


def case_named(job):
    edit_named(job, saver(job))


def case_named_protocol4(job):
    edit_named(job, saver(job, pickle_protocol=4))


def case_ids(job):
    job.options += ",ids=model"
    edit_named(job, saver(job), ids=True)


def case_legacy(job):
    edit_named(job, saver(job, _use_new_zipfile_serialization=False))


def case_legacy_protocol4(job):
    edit_named(job, saver(job, _use_new_zipfile_serialization=False,
                          pickle_protocol=4))


def case_memo(job):
    """Removes and edits values that the pickle shares between places."""
    want = saver(job, pickle_protocol=4)(named(plain=collections.OrderedDict))
    job.mount()
    for gone in ("embed", "first", "none"):  # where they are pickled
        os.unlink(job.path("model", gone))
        del want["model"][gone]
    os.rename(job.path("model", "head"), job.path("model", "tail"))
    want["model"] = collections.OrderedDict(
        ({"head": "tail"}.get(k, k), v) for k, v in want["model"].items())
    for i in "01":  # both are the same list
        job.text(("extra", "notes", i, "2", "deep"), '[0.5, "x"]')
        job.text(("extra", "notes", i, "1"), "17")
    want["notes"][0][1] = 17
    want["notes"][0][2]["deep"] = (0.5, "x")
    os.unlink(job.path("optim", "param_groups", "0", "betas"))
    del want["optimizer"]["param_groups"][0]["betas"]
    job.umount()
    got = load(job.file())
    check(got, want)
    assert got["notes"][0] is got["notes"][1], "two lists"
    sound(job.file())


def case_bytes(job):
    """An edit of tensor bytes changes one record and its checksums."""
    saver(job)(named())
    with open(job.file(), "rb") as f:
        old = f.read()
    job.mount()
    job.put(("model", "b"), torch.zeros(3).bfloat16(), at=2)
    job.umount()
    with open(job.file(), "rb") as f:
        new = f.read()
    assert len(old) == len(new), "another length"
    differ = {i for i, (a, b) in enumerate(zip(old, new)) if a != b}
    with zipfile.ZipFile(job.file()) as z:
        moved = [i for i in z.infolist() if
                 old[i.header_offset:][:1 << 20] and
                 i.CRC.to_bytes(4, "little") not in old]
        assert len(moved) == 1, moved
        name = moved[0].filename.encode()
        size, crc = moved[0].file_size, moved[0].CRC.to_bytes(4, "little")
    assert size == 14, size
    at = old.index(name) + len(name)
    at += int.from_bytes(old[at - len(name) - 2:][:2], "little")
    allowed = set(range(at + 4, at + 10))
    for i in range(len(new)):
        if new[i:i + 4] == crc:
            allowed |= set(range(i, i + 4))
    assert differ and differ <= allowed, sorted(differ - allowed)
    sound(job.file())


def case_no_checksums(job):
    """An archive without checksums gets none, and PyTorch loads it."""
    value = saver(job)(named())
    with open(job.file(), "rb") as f:
        data = re.sub(b"(PK\7\10).{4}", b"\\1\0\0\0\0", f.read(), flags=re.S)
    data = re.sub(b"(PK\1\2.{12}).{4}", b"\\1\0\0\0\0", data, flags=re.S)
    with open(job.file(), "wb") as f:
        f.write(data)
    job.mount()
    job.put(("model", "a"), torch.ones(5, 3))
    value["model"]["a"].fill_(1)
    job.umount()
    check(load(job.file()), value)


def save_sparse(value, name, was, size):
    """Saves value, with its storage of was bytes replaced by size zeros. The
    zeros are a hole in the file; zip64 fields, no data descriptors."""
    torch.save(value, name)
    old = records(name)
    at, directory = 0, b""
    number = b"\x8a" + bytes([(size.bit_length() + 8) // 8]) + \
        size.to_bytes((size.bit_length() + 8) // 8, "little")
    with open(name, "wb") as f:
        for path, data in old.items():
            n, crc = len(data), zlib.crc32(data)
            if path.endswith("data.pkl"):
                data = data.replace(b"K" + bytes([was]), number)
                n, crc = len(data), zlib.crc32(data)
            elif n == was:
                n, crc, data = size, 1, b""  # never read completely
            path = path.encode()
            start = at + 30 + len(path) + 20
            start += 4 + -(start + 4) % 64
            pad = start - (at + 30 + len(path) + 20) - 4
            f.seek(at)
            f.write(b"PK\3\4" + struct.pack(
                "<HHHHHIIIHH", 45, 0, 0, 0, 33, crc, 0xffffffff, 0xffffffff,
                len(path), 24 + pad) + path + struct.pack("<HHQQ", 1, 16, n, n)
                + struct.pack("<2sH", b"FB", pad) + bytes(pad) + data)
            directory += b"PK\1\2" + struct.pack(
                "<HHHHHHIIIHHHHHII", 45, 45, 0, 0, 0, 33, crc, 0xffffffff,
                0xffffffff, len(path), 28, 0, 0, 0, 0, 0xffffffff) + path + \
                struct.pack("<HHQQQ", 1, 24, n, n, at)
            at = start + n
        f.truncate(at)
        f.seek(at)
        end = at + len(directory)
        f.write(directory + b"PK\6\6" + struct.pack(
            "<QHHIIQQQQ", 44, 45, 45, 0, 0, len(old), len(old),
            len(directory), at) + b"PK\6\7" + struct.pack("<IQI", 0, end, 1) +
            b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 0xffff, 0xffff,
                                    0xffffffff, 0xffffffff, 0))


def case_offset4g(job):
    """Edits a record behind a sparse one of 4 GiB, which stays sparse."""
    first, last = torch.randn(4, 3), torch.randn(2, 5)
    save_sparse({"first": first, "big": torch.zeros(77, dtype=torch.uint8),
                 "last": last}, job.file(), 77, (4 << 30) + 77)
    job.mount()
    new = torch.randn(2, 5)
    with open(job.path("model", "last"), "r+b") as f:
        f.write(raw(new))
    job.umount(check=False)
    with zipfile.ZipFile(job.file()) as z, open(job.file(), "rb") as f:
        stored = {}
        for i in z.infolist():
            f.seek(i.header_offset)
            head = f.read(30)
            f.seek(sum(struct.unpack("<HH", head[26:])), 1)
            if i.file_size > 1 << 20:
                assert (i.file_size, i.CRC) == ((4 << 30) + 77, 1)
            else:
                stored[i.filename] = data = f.read(i.file_size)
                assert zlib.crc32(data) == i.CRC, i.filename
    assert raw(first) in stored.values() and raw(new) in stored.values()
    assert os.stat(job.file()).st_blocks < 1000, "holes were filled"


def check_mount(job, want):
    for n, t in want["model"].items():
        if t.dim() > 0:
            with open(job.path("model", n), "rb") as f:
                assert f.read() == raw(t), f"{n}: other bytes in the mount"


def case_refused(job):
    """A commit that fails changes nothing, and names the file."""
    want = saver(job)(named())
    with open(job.file(), "rb") as f:
        old = f.read()
    job.mount()
    for code, what in (
            ("OFS828", lambda: job.put(("model", "embed"), torch.zeros(6, 4))),
            ("OFS828", lambda: job.text(("extra", "notes", "1", "0"), "4")),
            ("OFS826", lambda: os.mkdir(job.path("optim", "state", "new")) or
             job.text(("optim", "state", "new", "foo"), "3")),
            ("OFS301", lambda: job.put(("model", "a"), torch.zeros(3), 0,
                                       "wb"))):
        what()
        said = job.commit()
        assert code in said, f"{code}: {said}"
        with open(job.path(".optimfs", "control"), "w") as f:
            f.write("abort\n")
        with open(job.file(), "rb") as f:
            assert f.read() == old, "the file changed"
        check_mount(job, want)
    job.umount()
    # Equal edits of tied tensors can be committed.
    job.mount()
    job.put(("model", "embed"), torch.zeros(6, 4))
    job.put(("model", "head"), torch.zeros(6, 4))
    job.umount()
    want["model"]["embed"].zero_()
    check(load(job.file()), want)


def case_mode(job):
    """A commit keeps mode, owner, extended attributes and hard links."""
    saver(job)(named())
    os.chmod(job.file(), 0o640)
    if os.geteuid() == 0:
        os.chown(job.file(), 12, 34)
    os.setxattr(job.file(), "user.note", b"kept")
    os.link(job.file(), os.path.join(job.ck, "..", "other"))
    job.mount()
    job.put(("model", "a"), torch.ones(5, 3))
    job.umount()
    st = os.stat(job.file())
    assert st.st_mode & 0o7777 == 0o640, oct(st.st_mode)
    assert os.geteuid() != 0 or (st.st_uid, st.st_gid) == (12, 34)
    assert os.getxattr(job.file(), "user.note") == b"kept"
    other = load(os.path.join(job.ck, "..", "other"))
    assert raw(other["model"]["a"]) != raw(torch.ones(5, 3)), \
        "the file's other name shows what was written"


def case_link(job):
    """The checkpoint is given as a symbolic link."""
    want = saver(job)(named())
    os.rename(job.ck, job.ck + ".real")
    os.symlink("ck.real", job.ck)
    job.mount()
    job.put(("model", "a"), torch.ones(5, 3))
    job.umount()
    want["model"]["a"].fill_(1)
    assert os.path.islink(job.ck), "the link is gone"
    check(load(job.file()), want)
    left = set(os.listdir(os.path.dirname(job.ck))) - {"ck", "ck.real", "mnt"}
    assert not left, f"left: {left}"


class Shell:
    """Stands for an object of a missing class: keeps its arguments and state."""

    def __new__(cls, *args):
        made = object.__new__(cls)
        made.parts = [args]
        return made

    def __setstate__(self, state):
        self.parts.append(state)

    def __setitem__(self, key, value):
        self.parts.append((key, value))

    def append(self, value):
        self.parts.append(value)

    def state(self):
        return self.parts[-1]

    def plain(self):
        return (type(self).__name__, self.parts)


class Reader(pickle.Unpickler):
    """Unpickles objects of all but the plain classes as Shells."""

    def __init__(self, file, load):
        super().__init__(file)
        self.load_storage = load

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if name == "getattr":
            return lambda of, name: type(f"{of.__name__}.{name}", (Shell,), {})
        return type(f"{module}.{name}", (Shell,), {})

    def persistent_load(self, pid):
        return ("storage", pid[1].__name__, pid[4], self.load_storage(pid[2]))


def plain(value):
    """Replaces Shells by their contents, to make values comparable."""
    if isinstance(value, Shell):
        return plain(value.plain())
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, dict):
        return {plain(k) if isinstance(k, Shell) else k: plain(v)
                for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(plain(v) for v in value)
    return value


def read_archive(data):
    """The value in an archive, with Shells; data has the bytes of the archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        assert z.testzip() is None, f"{z.testzip()}: checksum"
        stored = {i.filename.split("/", 1)[1]: z.read(i)
                  for i in z.infolist()}
    reader = Reader(io.BytesIO(stored["data.pkl"]),
                    lambda key: stored["data/" + key])
    return reader.load()


def same_plain(got, want, path=()):
    """The paths at which two results of plain differ."""
    if type(got) is not type(want):
        return [path]
    if isinstance(want, dict):
        if list(got) != list(want):
            return [path + ("keys",)]
        return [d for k in want for d in
                same_plain(got[k], want[k], path + (k,))]
    if isinstance(want, tuple):
        if len(got) != len(want):
            return [path + ("items",)]
        return [d for i, v in enumerate(want) for d in
                same_plain(got[i], v, path + (i,))]
    return [] if got == want or got is want or (got != got and want != want) \
        else [path]


def copy_of(job, case):
    shutil.copytree(os.path.join(job.data, case), job.ck, dirs_exist_ok=True)
    for name in os.listdir(job.ck):
        os.chmod(job.file(name), 0o644)


def files_of(job):
    found = {}
    for name in sorted(os.listdir(job.ck)):
        with open(job.file(name), "rb") as f:
            found[name] = f.read()
    return found


def case_rank_files(job):
    """ShardedTensors: only the edited values differ, in the files of the ranks
    that have them."""
    copy_of(job, "fsdp1_sharded_orig_fullshard_w2/ckpt_rankfiles")
    before = files_of(job)
    old = {n: plain(read_archive(d)) for n, d in before.items()}
    job.mount()
    name = sorted(os.listdir(job.path("optim", "state")))[0]
    job.text(("optim", "param_groups", "0", "lr"), "0.25")
    with open(job.path("optim", "state", name, "exp_avg"), "r+b") as f:
        size = os.fstat(f.fileno()).st_size
        f.write(b"\1" * 4)
        f.seek(size - 4)
        f.write(b"\2" * 4)
    job.umount()
    where = set()
    for n, d in files_of(job).items():
        for at in same_plain(plain(read_archive(d)), old[n]):
            text = "/".join(map(str, at))
            assert "lr" in at or (name in text and "exp_avg" in text), text
            where.add((n, "lr" in at))
        sound(job.file(n))
    assert len(where) == 2 * len(before), where


def with_name(value, old, new):
    """A result of plain in which a key, or a name in a list, is another."""
    if isinstance(value, dict):
        return {new if k == old else k: with_name(v, old, new)
                for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(with_name(v, old, new) for v in value)
    return new if isinstance(value, str) and value == old else value


def renamed_parameter(job, case):
    copy_of(job, case)
    old = {n: plain(read_archive(d)) for n, d in files_of(job).items()}
    job.mount()
    name = sorted(os.listdir(job.path("optim", "state")))[0]
    for where in ("optim", "state"), ("model",):
        os.rename(job.path(*where, name), job.path(*where, "new.name"))
    job.umount()
    for n, d in files_of(job).items():
        want = with_name(old[n], name, "new.name")
        assert want != old[n], n
        assert not same_plain(plain(read_archive(d)), want), n
        sound(job.file(n))


def case_renamed_sharded(job):
    """A parameter with ShardedTensors gets another name in every file."""
    renamed_parameter(job, "fsdp1_sharded_orig_fullshard_w2/ckpt_rankfiles")


def case_renamed_dtensor(job):
    """A parameter with DTensors gets another name in every file."""
    renamed_parameter(job, "rank_dtensor_fsdp2_tp_w4/ckpt")


def case_own_state(job):
    """A value of one rank is edited in the file of that rank."""
    for rank in range(3):
        torch.save({"model": {"w": torch.arange(4.0)}, "epoch": 1,
                    "rng": {"cpu": torch.full((5,), rank, dtype=torch.uint8),
                            "python": [rank, [1, 2]]}},
                   job.file(f"ck_rank{rank}.pt"))
    job.mount()
    rng = ("extra", "rng")
    job.text(rng + ("python", "rank1"), "[7, [8, 9]]")
    job.put(rng + ("cpu", "rank2"), torch.tensor([200], dtype=torch.uint8), 3)
    job.text(("extra", "epoch"), "4")
    job.umount()
    for rank in range(3):
        got = load(job.file(f"ck_rank{rank}.pt"))
        cpu = torch.full((5,), rank, dtype=torch.uint8)
        if rank == 2:
            cpu[3] = 200
        same(got, {"model": {"w": torch.arange(4.0)}, "epoch": 4,
                   "rng": {"cpu": cpu, "python":
                           [7, [8, 9]] if rank == 1 else [rank, [1, 2]]}})


class Dcp:
    """Reads a DCP checkpoint through its index."""

    def __init__(self, where):
        self.where = where
        with open(os.path.join(where, ".metadata"), "rb") as f:
            top = Reader(f, None).load().state()
        self.kept = {}
        self.keys = top["state_dict_metadata"]
        self.items = [(repr(plain(k)), k.state(), v.state())
                      for k, v in top["storage_data"].items()]
        self.rest = plain({k: v for k, v in top.items() if k not in (
            "state_dict_metadata", "storage_data")})

    def item(self, at):
        name = os.path.join(self.where, at["relative_path"])
        if name not in self.kept:
            with open(name, "rb") as f:
                self.kept[name] = f.read()
        return self.kept[name][at["offset"]:at["offset"] + at["length"]]

    def values(self):
        """Values by name; a tensor is a dict of chunks by offsets."""
        found = {}
        for _, index, at in self.items:
            data = self.item(at)
            offsets = index.get("offset")
            value = load(io.BytesIO(data)) if zipfile.is_zipfile(
                io.BytesIO(data)) else data
            if offsets is not None:
                key = offsets.parts[0][0] if offsets.parts else ()
                found.setdefault(index["fqn"], {})[tuple(key)] = value
            else:
                found[index["fqn"]] = value
        return found

    def whole(self, fqn):
        """Joins the chunks of a tensor."""
        got = self.values()[fqn]
        if isinstance(got, torch.Tensor):
            return got
        ends = [max(o[d] + c.shape[d] for o, c in got.items())
                for d in range(len(next(iter(got))))]
        out = torch.empty(ends, dtype=next(iter(got.values())).dtype)
        for offsets, c in got.items():
            out[tuple(slice(o, o + n) for o, n in zip(offsets, c.shape))] = c
        return out


def case_dcp(job):
    """Edits of a DCP checkpoint of four ranks with torch.save items."""
    copy_of(job, "dcp_fsdp2_w4/ckpt")
    before, old = files_of(job), Dcp(job.ck)
    was = old.values()
    name, other = "layers.0.w1.weight", "layers.0.w2.weight"
    opt = "optim.state." + name
    avg = old.whole(opt + ".exp_avg")
    job.mount()
    part = torch.randn(5)
    job.put(("optim", "state", name, "exp_avg"), part, at=2)
    job.text(("optim", "state", name, "step"), "99")
    job.text(("optim", "param_groups", "0", "lr"), "0.5")
    os.unlink(job.path("optim", "state", other, "exp_avg"))
    os.rename(job.path("optim", "state", other, "exp_avg_sq"),
              job.path("optim", "state", other, "renamed"))
    more = torch.randn(3, 7)
    job.add(("optim", "state", name, "more"), more, "float32")
    job.umount()

    after, new = files_of(job), Dcp(job.ck)
    for n in before:
        assert n == ".metadata" or after[n] == before[n], f"{n} changed"
    now = new.values()
    avg.view(-1)[2:7] = part
    assert raw(new.whole(opt + ".exp_avg")) == raw(avg), "exp_avg"
    assert float(new.whole(opt + ".step")) == 99
    assert raw(new.whole(opt + ".more")) == raw(more), "more"
    gone = "optim.state." + other + "."
    assert gone + "exp_avg" not in now, "exp_avg is still there"
    assert raw(new.whole(gone + "renamed")) == raw(
        old.whole(gone + "exp_avg_sq")), "renamed"
    edited = {opt + ".exp_avg", opt + ".step", opt + ".more", gone + "exp_avg",
              gone + "exp_avg_sq", gone + "renamed"}
    groups = [k for k in was if "param_groups" in k]
    for k in (set(was) | set(now)) - edited - set(groups):
        same(now[k], was[k], (k,))
    differ = [k for k in groups if repr(was[k]) != repr(now[k])]
    assert len(differ) == 1, differ
    index = {k: plain(v) for k, _, v in new.items}
    moved = {at["fqn"] for k, at, v in old.items if index.get(k) != plain(v)}
    assert moved <= edited | set(groups), moved
    assert set(new.keys) == set(now), "keys and items differ"
    differ = same_plain(new.rest, old.rest)
    assert all("planner_data" in d for d in differ), differ


def case_safetensors(job):
    """An edit of a safetensors file changes the bytes of one tensor only."""
    copy_of(job, "safetensors_plain/ckpt")
    (name, old), = files_of(job).items()
    n = int.from_bytes(old[:8], "little")
    head = json.loads(old[8:8 + n])
    key = next(k for k, v in head.items() if k != "__metadata__" and
               v["dtype"] == "F32" and len(v["shape"]) == 2)
    begin, end = (8 + n + o for o in head[key]["data_offsets"])
    job.mount()
    path = subprocess.run([job.optimfs, "ls", "-lR", job.ck], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    path = next(w for w in path.split() if w.endswith("/" + key))
    data = os.urandom(end - begin - 9)
    with open(job.path(path), "r+b") as f:
        f.seek(5)
        f.write(data)
    job.umount()
    assert files_of(job) == {name: old[:begin + 5] + data + old[end - 4:]}


CASES = {n[5:]: f for n, f in list(globals().items()) if n.startswith("case_")}


def main():
    if sys.argv[1:] == ["list"]:
        print(*CASES)
        return
    optimfs, where, name, data = sys.argv[1:]
    CASES[name](Job(os.path.abspath(optimfs), where, data))


main()
