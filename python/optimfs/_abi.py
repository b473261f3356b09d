# SPDX-License-Identifier: Apache-2.0
"""The C interface: the declarations of include/optimfs for ctypes.

Every struct and prototype that the package uses is here and nowhere else.
tests/python/test_abi.py compiles a program that prints the sizes and offsets
of the header, and compares.
"""
from __future__ import annotations

import ctypes as c
import ctypes.util
import glob
import os
from typing import Any, List, Optional, Tuple

SONAME = "liboptimfs.so.0"
ROOT = 1

RECOVER = {"no": 0, "yes": 1, "discard": 2}
RUN = {"no": 0, "auto": 1, "yes": 2}
SUMMARY = {"text": 0, "json": 1, "line": 2, "problems": 3, "both": 4}


class Error(c.Structure):
    """struct optimfs_error"""
    _fields_ = [("code", c.c_int),
                ("number", c.c_int),
                ("how", c.c_ushort),
                ("lost", c.c_ushort),
                ("nlost", c.c_ushort),
                ("text", c.c_char * 498)]


class Options(c.Structure):
    """struct optimfs_options"""
    _fields_ = [("type", c.c_char_p),
                ("optim_key", c.c_char_p),
                ("model_key", c.c_char_p),
                ("ids", c.c_char_p),
                ("units", c.c_char_p),
                ("subtree", c.c_char_p),
                ("fill", c.c_char_p),
                ("join", c.c_char_p),
                ("base", c.c_char_p),
                ("cache", c.c_uint64),
                ("max_metadata", c.c_uint64),
                ("parse_mem", c.c_uint64),
                ("strict", c.c_bool),
                ("follow", c.c_bool),
                ("group", c.c_void_p),
                ("together", c.c_bool),
                ("rw", c.c_bool),
                ("scratch", c.c_bool),
                ("explicit_commit", c.c_bool),
                ("upper", c.c_char_p),
                ("recover", c.c_int),
                ("watch", c.c_void_p),
                ("run", c.c_int),
                ("runs_open", c.c_uint),
                ("names", c.c_char_p),
                ("timeout", c.c_uint),
                ("cache_dir", c.c_char_p),
                ("cache_disk", c.c_uint64),
                ("requests", c.c_uint),
                ("request_size", c.c_uint64)]


class Attr(c.Structure):
    """struct optimfs_attr"""
    _fields_ = [("node", c.c_uint64),
                ("ino", c.c_uint64),
                ("size", c.c_uint64),
                ("stored", c.c_uint64),
                ("mtime_ns", c.c_int64),
                ("mode", c.c_uint32),
                ("uid", c.c_uint32),
                ("gid", c.c_uint32),
                ("nlink", c.c_uint32),
                ("exact", c.c_bool),
                ("changes", c.c_bool),
                ("moves", c.c_bool),
                ("shared", c.c_bool)]


class Dirent(c.Structure):
    """struct optimfs_dirent"""
    _fields_ = [("name", c.c_char_p),
                ("ino", c.c_uint64),
                ("mode", c.c_uint32),
                ("attr", c.POINTER(Attr)),
                ("position", c.c_uint64)]


class RunEntry(c.Structure):
    """struct optimfs_run_entry"""
    _fields_ = [("name", c.c_char_p),
                ("path", c.c_char_p),
                ("step", c.c_int64),
                ("complete", c.c_bool),
                ("format", c.c_char_p),
                ("mtime_ns", c.c_int64),
                ("why", c.c_char_p)]


class Watch(c.Structure):
    """struct optimfs_watch"""
    _fields_ = [("progress", c.c_void_p),
                ("stop", c.c_void_p),
                ("say", c.c_void_p),
                ("did", c.c_void_p),
                ("ctx", c.c_void_p)]


class Reshard(c.Structure):
    """struct optimfs_reshard"""
    _fields_ = [("to", c.c_char_p),
                ("jobs", c.c_uint),
                ("watch", Watch),
                ("ctx", c.c_void_p),
                ("kept", c.c_void_p)]


def _of(kind: Any, names: str) -> List[Tuple[str, Any]]:
    """Fields of one type."""
    return [(name, kind) for name in names.split()]


class Tolerance(c.Structure):
    """struct optimfs_tolerance"""
    _fields_ = [("rtol", c.c_double),
                ("atol", c.c_double)]


class Comparison(c.Structure):
    """struct optimfs_comparison"""
    _fields_ = _of(c.c_uint64, "elements differ first nan_a nan_b inf_a inf_b "
                               "finite") + \
        _of(c.c_double, "max_abs max_rel") + \
        _of(c.c_uint64, "at ulps") + \
        _of(c.c_double, "square square_a square_b dot rms cosine")


class Scan(c.Structure):
    """struct optimfs_scan"""
    _fields_ = [("jobs", c.c_uint),
                ("progress", c.c_void_p),
                ("stop", c.c_void_p),
                ("ctx", c.c_void_p)]


class Part(c.Structure):
    """struct optimfs_part"""
    _fields_ = [("node", c.c_uint64),
                ("off", c.c_uint64),
                ("len", c.c_uint64),
                ("to", c.c_void_p)]


class Load(c.Structure):
    """struct optimfs_load"""
    _fields_ = [("threads", c.c_uint),
                ("device", c.c_int),
                ("stream", c.c_void_p),
                ("did", c.c_void_p),
                ("stop", c.c_void_p),
                ("ctx", c.c_void_p)]


class Symptom(c.Structure):
    """struct optimfs_symptom"""
    _fields_ = [("number", c.c_int),
                ("path", c.c_char_p),
                ("text", c.c_char_p),
                ("means", c.c_char_p),
                ("why", c.c_void_p)]


class Checkup(c.Structure):
    """struct optimfs_checkup"""
    _fields_ = [("symptom", c.c_void_p),
                ("parameter", c.c_void_p),
                ("ctx", c.c_void_p),
                ("checked", c.c_void_p)]


class Statistics(c.Structure):
    """struct optimfs_statistics"""
    _fields_ = _of(c.c_uint64, "tensors elements finite nan inf zeros "
                               "denormals") + \
        _of(c.c_double, "min max sum l1 squares spread mean std l2 linf "
                        "rms") + \
        _of(c.c_uint64, "first_nan first_inf xxh3") + \
        [("exponent_first", c.c_int),
         ("nexponents", c.c_uint),
         ("exponent", c.POINTER(c.c_uint64))]


class Opened(c.c_void_p):
    """struct optimfs *. It is closed when nothing refers to it any more, even
    if Ctrl-C interrupts the call that opened it."""
    writer: Optional[int] = None  # the process that writes: no fork of it closes it
    drops = False  # what is not committed when it is closed

    def __del__(self) -> None:
        if self and self.writer in (None, os.getpid()):
            if self.drops:
                lib.optimfs_abort(self, c.byref(Error()))
            lib.optimfs_close(self)


class OpenedFile(c.c_void_p):
    """struct optimfs_file *. It is closed likewise, before its checkpoint."""

    def __init__(self, fs: Opened) -> None:
        super().__init__()
        self.fs = fs

    def __del__(self) -> None:
        if self:
            lib.optimfs_file_close(self)


NO_INDEX = 2**64 - 1
HOST = -1

DIRENT_FN = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(Dirent))
RUN_ENTRY_FN = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(RunEntry))
PROGRESS_FN = c.CFUNCTYPE(None, c.c_void_p, c.c_uint64, c.c_uint64, c.c_char_p)
SYMPTOM_FN = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Symptom))
STOP_FN = c.CFUNCTYPE(c.c_bool, c.c_void_p)

_handle, _node, _err = c.c_void_p, c.c_uint64, c.POINTER(Error)
_out = c.POINTER(c.c_void_p)

# name -> (result, arguments)
PROTOTYPES = {
    "optimfs_open": (Opened, [c.c_char_p, c.POINTER(Options), _err]),
    "optimfs_close": (None, [_handle]),
    "optimfs_resolve": (c.c_int, [_handle, c.c_char_p, c.POINTER(Attr), _err]),
    "optimfs_readdir": (c.c_int, [_handle, _node, c.c_uint64, c.c_bool,
                                  DIRENT_FN, c.c_void_p, _err]),
    "optimfs_lookup": (c.c_int, [_handle, _node, c.c_char_p, c.POINTER(Attr),
                                 _err]),
    "optimfs_readlink": (c.c_int, [_handle, _node, _out, _err]),
    "optimfs_file_open": (c.c_int, [_handle, _node, _out, _err]),
    "optimfs_file_open_write": (c.c_int, [_handle, _node, c.c_bool, _out,
                                          _err]),
    "optimfs_file_close": (None, [_handle]),
    "optimfs_file_size": (c.c_uint64, [_handle]),
    "optimfs_file_read": (c.c_ssize_t, [_handle, c.c_void_p, c.c_size_t,
                                        c.c_uint64, _err]),
    "optimfs_load": (c.c_int, [_handle, c.POINTER(Part), c.c_size_t,
                               c.POINTER(Load), _err]),
    "optimfs_file_write": (c.c_int, [_handle, c.c_void_p, c.c_size_t,
                                     c.c_uint64, _err]),
    "optimfs_file_flush": (c.c_int, [_handle, _err]),
    "optimfs_getxattr": (c.c_int, [_handle, _node, c.c_char_p, _out,
                                   c.POINTER(c.c_size_t), _err]),
    "optimfs_setxattr": (c.c_int, [_handle, _node, c.c_char_p, c.c_char_p,
                                   c.c_size_t, _err]),
    "optimfs_create": (c.c_int, [_handle, _node, c.c_char_p, c.c_bool,
                                 c.POINTER(Attr), _err]),
    "optimfs_remove": (c.c_int, [_handle, _node, c.c_char_p, c.c_bool, _err]),
    "optimfs_commit": (c.c_int, [_handle, c.c_void_p, c.c_void_p, _err]),
    "optimfs_abort": (c.c_int, [_handle, _err]),
    "optimfs_reshard": (c.c_int, [_handle, c.c_char_p, c.POINTER(Reshard),
                                  _err]),
    "optimfs_summary": (c.c_void_p, [_handle, c.c_char_p, c.c_int, _err]),
    "optimfs_compare": (c.c_int, [_handle, _node, _handle, _node,
                                  c.POINTER(Tolerance), c.c_void_p,
                                  c.POINTER(Comparison), _err]),
    "optimfs_statistics": (c.c_int, [_handle, c.c_char_p, c.POINTER(Scan),
                                     c.POINTER(Statistics), _err]),
    "optimfs_statistics_fini": (None, [c.POINTER(Statistics)]),
    "optimfs_check": (c.c_int, [_handle, c.POINTER(Scan), c.POINTER(Checkup),
                                c.POINTER(c.c_uint64), _err]),
    "optimfs_run_list": (c.c_int, [_handle, RUN_ENTRY_FN, c.c_void_p, _err]),
    "optimfs_run_open": (Opened, [_handle, c.c_char_p, _err]),
    "optimfs_version": (c.c_char_p, []),
    "optimfs_features": (c.c_char_p, []),
}


def _own() -> Optional[str]:
    """The wheel's copy, once what it needs beside it is loaded: the loader
    takes a library that is there already by its name."""
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")
    own = os.path.join(here, SONAME)
    if not os.path.exists(own):
        return None
    for path in sorted(glob.glob(os.path.join(here, "*.so*"))):
        if path != own:
            c.CDLL(path, mode=c.RTLD_GLOBAL)
    return own


def _load() -> c.CDLL:
    named = os.environ.get("OPTIMFS_LIBRARY")
    if named:
        return c.CDLL(named)
    failures = []
    for path in (_own(), ctypes.util.find_library("optimfs"), SONAME):
        try:
            if path is not None:
                return c.CDLL(path)
        except OSError as e:
            failures.append(str(e))
    raise ImportError(
        "liboptimfs is not found (%s); install it, or let OPTIMFS_LIBRARY "
        "name the file" % "; ".join(failures))


lib = _load()
for _name, (_result, _arguments) in PROTOTYPES.items():
    _f = getattr(lib, _name)
    _f.restype, _f.argtypes = _result, _arguments

libc_free = c.CDLL(None).free
libc_free.restype, libc_free.argtypes = None, [c.c_void_p]
