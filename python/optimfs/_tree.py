# SPDX-License-Identifier: Apache-2.0
"""The tree of a checkpoint: paths, files and attributes, as bytes and text.

ctypes lets go of the GIL during every call, so that threads read at once.
"""
from __future__ import annotations

import contextlib
import ctypes as c
import errno
import io
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import (Any, Callable, Dict, Iterator, List, Optional, Sequence,
                    Tuple, Union)

from . import _abi
from ._abi import lib
from ._errors import NotFoundError, make

PREFIX = "user.optimfs."
# Between two calls of this many bytes Python looks for Ctrl-C.
MOST = 64 << 20
# What one thread reads at once, and how many threads do.
PIECE = 8 << 20
READERS = min(len(os.sched_getaffinity(0)), 4)
# What has a name in the text of statistics, in its order.
STATISTICS = ("tensors", "elements", "finite", "nan", "inf", "zeros",
              "denormals", "min", "max", "mean", "std", "l1", "l2", "linf",
              "rms", "first_nan", "first_inf")


# A range of a file, and where it goes: node, offset, length, address.
Part = Tuple[int, int, int, int]


def fs_text(b: bytes) -> str:
    return b.decode("utf-8", "surrogateescape")


def _whole(b: bytes) -> bytes:
    """b, which C does not cut at a null byte."""
    if b"\0" in b:
        raise ValueError("embedded null byte")
    return b


def fs_bytes(s: str) -> bytes:
    return _whole(s.encode("utf-8", "surrogateescape"))


def path_bytes(path: Union[str, "os.PathLike[str]"]) -> bytes:
    return _whole(os.fsencode(path))


def text_of(err: _abi.Error) -> str:
    return str(err.text, "utf-8", "replace")


def check(ok: bool, err: _abi.Error) -> None:
    """Raise what err says unless a call went well."""
    if not ok:
        raise make(err.code, err.number, text_of(err))


@dataclass(frozen=True)
class Finding:
    """A state that a correct run does not leave: its code ("OFS202"), where it
    is, what was found, and what it means and what to do."""
    code: str
    path: str
    text: str
    means: str


@dataclass(frozen=True)
class Stat:
    """A file or directory of the tree.

    size is an upper bound, which few files exceed, unless exact is true; stored
    is the number of bytes in the checkpoint.
    """
    node: int
    ino: int
    size: int
    exact: bool
    stored: int
    mtime_ns: int
    mode: int

    @property
    def is_dir(self) -> bool:
        """Is it a directory?"""
        return stat.S_ISDIR(self.mode)


def _stat(a: _abi.Attr) -> Stat:
    return Stat(a.node, a.ino, a.size, a.exact, a.stored, a.mtime_ns, a.mode)


def address(buffer: Any) -> Any:
    """The memory of a writable, contiguous buffer, for a C call."""
    view = memoryview(buffer)
    return (c.c_char * view.nbytes).from_buffer(view.cast("B")) \
        if view.nbytes else None


class Shared:
    """An object of the library that threads share. close() does not wait: the
    last call in progress frees the object."""

    def __init__(self, name: str, handle: Any) -> None:
        self._name, self._handle = name, handle

    @property
    def closed(self) -> bool:
        return self._handle is None

    @contextlib.contextmanager
    def using(self) -> Iterator[int]:
        """The handle as a number: the traceback of an exception would keep
        the handle."""
        handle = self._handle
        if handle is None:
            raise ValueError("%s is closed" % self._name)
        try:
            yield handle.value
        finally:
            del handle

    def close(self) -> None:
        self._handle = None


class File(Shared):
    """An open file of the tree."""

    def __init__(self, tree: "Tree", node: int, write: bool = False,
                 truncate: bool = False) -> None:
        err = _abi.Error()
        with tree.writing() if write else tree.using() as fs:
            handle = _abi.OpenedFile(tree._handle)
            if write:
                r = lib.optimfs_file_open_write(fs, node, truncate,
                                                c.byref(handle), c.byref(err))
            else:
                r = lib.optimfs_file_open(fs, node, c.byref(handle),
                                          c.byref(err))
            if r != 0:
                del handle
        check(r == 0, err)
        super().__init__("the file", handle)
        self.size: int = lib.optimfs_file_size(handle)

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_at(self, at: Any, length: int, off: int) -> int:
        """length bytes at off into the memory at; how many there were. What
        is long is read by several threads: memory that is new costs as much
        to have as to fill."""
        base = c.addressof(at) if isinstance(at, c.Array) else at
        if length <= PIECE:
            return self._read_piece(base, length, off)

        def piece(start: int) -> int:
            return self._read_piece(base + start, min(PIECE, length - start),
                                    off + start)

        done = 0
        with ThreadPoolExecutor(READERS) as pool:
            for n in pool.map(piece, range(0, length, PIECE)):
                done += n
                if n < PIECE:
                    break
        return done

    def _read_piece(self, base: int, length: int, off: int) -> int:
        err, done = _abi.Error(), 0
        with self.using() as handle:
            while done < length:
                n = lib.optimfs_file_read(handle, base + done, length - done,
                                          off + done, c.byref(err))
                check(n >= 0, err)
                if n == 0:
                    break
                done += n
        return done

    def read(self, off: int = 0, length: Optional[int] = None) -> bytes:
        """length bytes at off, fewer only at the end; all by default."""
        if length is None:
            length = max(self.size - off, 0)
        at = (c.c_char * length)()
        n = self.read_at(at, length, off) if length else 0
        return at.raw if n == length else at.raw[:n]

    def write(self, data: Any, off: int) -> None:
        view = memoryview(data).cast("B")
        err = _abi.Error()
        with self.using() as handle:
            for start in range(0, view.nbytes, MOST):
                piece = view[start:start + MOST]
                at = (c.c_char * piece.nbytes).from_buffer_copy(piece) \
                    if piece.readonly else address(piece)
                r = lib.optimfs_file_write(handle, at, piece.nbytes,
                                           off + start, c.byref(err))
                check(r == 0, err)

    def flush(self) -> None:
        err = _abi.Error()
        with self.using() as handle:
            check(lib.optimfs_file_flush(handle, c.byref(err)) == 0, err)


class Reader(io.BufferedIOBase):
    """A file of the tree as Python's own file objects are."""

    def __init__(self, file: File) -> None:
        super().__init__()
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
            raise ValueError("whence is 0, 1 or 2, not %r" % (whence,))
        base = (0, self._at, self._file.size)[whence]
        if base + offset < 0:
            raise ValueError("a position before the beginning")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def _left(self) -> int:
        if self.closed:
            raise ValueError("the file is closed")
        return max(self._file.size - self._at, 0)

    def read(self, size: Optional[int] = -1) -> bytes:
        left = self._left()
        if size is None or size < 0 or size > left:
            size = left
        b = self._file.read(self._at, size)
        self._at += len(b)
        return b

    read1 = read

    def peek(self, size: int = 0) -> bytes:
        return self._file.read(self._at, min(self._left(), max(size, 4096)))

    def readinto(self, buffer: Any) -> int:
        at = address(buffer)
        if at is None:
            return 0
        n = self._file.read_at(at, len(at), self._at)
        self._at += n
        return n

    readinto1 = readinto

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class Tree(Shared):
    """An opened checkpoint. Each open file has a reference to it."""

    def __init__(self, path: str, fs: _abi.Opened, rw: bool = False) -> None:
        super().__init__(path, fs)
        self.path = path
        self._writer = fs.writer = os.getpid() if rw else None

    @property
    def inherited(self) -> bool:
        """Is this a fork of the process that writes, whose changes end with
        it alone?"""
        return self._writer not in (None, os.getpid())

    @contextlib.contextmanager
    def writing(self) -> Iterator[int]:
        """using() to change something."""
        if self.inherited:
            raise make(errno.EBUSY, 259, "OFS259 %s: being written by pid "
                       "%s, of which this is a fork" % (self.path,
                                                        self._writer))
        with self.using() as fs:
            yield fs

    def stat(self, path: str) -> Stat:
        err, attr = _abi.Error(), _abi.Attr()
        with self.using() as fs:
            r = lib.optimfs_resolve(fs, fs_bytes(path), c.byref(attr),
                                    c.byref(err))
        if r != 0 and err.code in (errno.ENOTDIR, errno.ENAMETOOLONG):
            raise NotFoundError(err.code, text_of(err), err.number)
        check(r == 0, err)
        return _stat(attr)

    def list(self, node: int) -> List["tuple[str, bool]"]:
        """(name, is it a directory?) of what is in a directory, sorted."""
        found: List["tuple[str, bool]"] = []

        def each(_: Any, entry: Any) -> int:
            e = entry.contents
            found.append((fs_text(e.name), stat.S_ISDIR(e.mode)))
            return 0

        err = _abi.Error()
        with self.using() as fs:
            r = lib.optimfs_readdir(fs, node, 0, False, _abi.DIRENT_FN(each),
                                    None, c.byref(err))
        check(r == 0, err)
        return found

    def walk(self, path: str = "") -> Iterator[str]:
        """The paths of all files below path, in order."""
        for name, is_dir in self.list(self.stat(path).node):
            below = "%s/%s" % (path, name) if path else name
            if is_dir:
                yield from self.walk(below)
            else:
                yield below

    def open(self, path: str) -> File:
        st = self.stat(path)
        if st.is_dir:
            raise make(errno.EISDIR, 9, "OFS009 %s: is a directory"
                       % (path or "the root"))
        return File(self, st.node)

    def read(self, path: str) -> bytes:
        with self.open(path) as f:
            return f.read()

    def xattr(self, node: int, name: str) -> Optional[str]:
        """The attribute user.optimfs.<name>; None where there is none."""
        err, value, size = _abi.Error(), c.c_void_p(), c.c_size_t()
        with self.using() as fs:
            r = lib.optimfs_getxattr(fs, node, fs_bytes(PREFIX + name),
                                     c.byref(value), c.byref(size),
                                     c.byref(err))
        if r != 0:
            return None
        try:
            return fs_text(c.string_at(value, size.value))
        finally:
            _abi.libc_free(value)

    def load(self, parts: Sequence[Part], device: int = _abi.HOST,
             stream: int = 0) -> None:
        """Read ranges of files, many at once, to addresses in this process or
        on a CUDA device."""
        err = _abi.Error()
        raised: List[BaseException] = []
        stop_fn = _abi.STOP_FN(lambda _ctx: bool(raised))
        how = _abi.Load(device=device, stream=stream or None)
        how.stop = c.cast(stop_fn, c.c_void_p)
        array = (_abi.Part * len(parts))(*(_abi.Part(*p) for p in parts))

        def work() -> int:
            with self.using() as fs:
                return int(lib.optimfs_load(fs, array, len(parts),
                                            c.byref(how), c.byref(err)))

        check(_interruptible(work, raised) == 0, err)

    def compare(self, node: int, other: "Tree", its: int, rtol: float,
                atol: float) -> _abi.Comparison:
        """How far two tensors of one type and shape are from each other."""
        err, found = _abi.Error(), _abi.Comparison()
        with self.using() as a, other.using() as b:
            r = lib.optimfs_compare(
                a, node, b, its, c.byref(_abi.Tolerance(rtol, atol)), None,
                c.byref(found), c.byref(err))
        check(r == 0, err)
        return found

    def statistics(self, path: str) -> Dict[str, Union[int, float, str]]:
        """What .optimfs/stat/<path> says; of a directory the sums."""
        err, s, how = _abi.Error(), _abi.Statistics(), _abi.Scan()
        raised: List[BaseException] = []
        stop_fn = _abi.STOP_FN(lambda _ctx: bool(raised))
        how.stop = c.cast(stop_fn, c.c_void_p)

        def work() -> int:
            with self.using() as fs:
                return int(lib.optimfs_statistics(
                    fs, fs_bytes(path), c.byref(how), c.byref(s),
                    c.byref(err)))

        check(_interruptible(work, raised) == 0, err)
        found = {name: getattr(s, name) for name in STATISTICS}
        found = {name: v for name, v in found.items()
                 if v == v and v != _abi.NO_INDEX}
        if s.tensors == 1:
            del found["tensors"]
            if s.xxh3:
                found["xxh3"] = "%016x" % s.xxh3
        for i in range(s.nexponents):
            if s.exponent[i]:
                found["exponent.%d" % (s.exponent_first + i)] = s.exponent[i]
        lib.optimfs_statistics_fini(c.byref(s))
        return found

    def check(self) -> List[Finding]:
        """What `optimfs check` finds."""
        err, how, n = _abi.Error(), _abi.Scan(), c.c_uint64()
        raised: List[BaseException] = []
        found: List[Finding] = []

        def symptom(_: Any, pointer: Any) -> None:
            s = pointer.contents
            found.append(Finding("OFS%03d" % s.number, fs_text(s.path),
                                 fs_text(s.text), fs_text(s.means)))

        stop_fn = _abi.STOP_FN(lambda _ctx: bool(raised))
        symptom_fn = _abi.SYMPTOM_FN(symptom)
        how.stop = c.cast(stop_fn, c.c_void_p)
        out = _abi.Checkup(symptom=c.cast(symptom_fn, c.c_void_p))

        def work() -> int:
            with self.using() as fs:
                return int(lib.optimfs_check(fs, c.byref(how), c.byref(out),
                                             c.byref(n), c.byref(err)))

        check(_interruptible(work, raised) == 0, err)
        return found

    def summary(self, path: str, form: str) -> str:
        """What `optimfs info` says of a path; form: a key of _abi.SUMMARY."""
        err = _abi.Error()
        with self.using() as fs:
            text = lib.optimfs_summary(fs, fs_bytes(path), _abi.SUMMARY[form],
                                       c.byref(err))
        check(text is not None, err)
        try:
            return fs_text(c.string_at(text))
        finally:
            _abi.libc_free(text)

    def readlink(self, name: str) -> Optional[str]:
        """The target of a link in the root; None if there is no such link."""
        err, attr, target = _abi.Error(), _abi.Attr(), c.c_void_p()
        with self.using() as fs:
            if lib.optimfs_lookup(fs, _abi.ROOT, fs_bytes(name),
                                  c.byref(attr), c.byref(err)) != 0 or \
                    lib.optimfs_readlink(fs, attr.node, c.byref(target),
                                         c.byref(err)) != 0:
                return None
        try:
            return fs_text(c.string_at(target))
        finally:
            _abi.libc_free(target)

    def list_run(self, each: Callable[[_abi.RunEntry], None]) -> None:
        """Call each for the checkpoints of a run."""
        raised: List[BaseException] = []

        def tell(_: Any, entry: Any) -> int:
            try:
                each(entry.contents)
            except BaseException as e:
                raised.append(e)
            return len(raised)

        err = _abi.Error()
        with self.using() as fs:
            r = lib.optimfs_run_list(fs, _abi.RUN_ENTRY_FN(tell), None,
                                     c.byref(err))
        if raised:
            raise raised[0]
        check(r == 0, err)

    def open_in_run(self, name: str) -> "Tree":
        """The tree of a checkpoint of a run: "1000", "by-name/final"."""
        err = _abi.Error()
        with self.using() as run:
            fs = lib.optimfs_run_open(run, fs_bytes(name), c.byref(err))
        check(bool(fs), err)
        return Tree("%s:%s" % (self.path, name), fs)

    def set_xattr(self, node: int, name: str, value: str) -> None:
        err, b = _abi.Error(), fs_bytes(value)
        with self.writing() as fs:
            r = lib.optimfs_setxattr(fs, node, fs_bytes(PREFIX + name), b,
                                     len(b), c.byref(err))
        check(r == 0, err)

    def create(self, path: str, is_dir: bool = False) -> Stat:
        """A new file or directory, and the directories above it."""
        above, _, name = path.rpartition("/")
        try:
            parent = self.stat(above)
        except NotFoundError:
            parent = self.create(above, is_dir=True)
        err, attr = _abi.Error(), _abi.Attr()
        with self.writing() as fs:
            r = lib.optimfs_create(fs, parent.node, fs_bytes(name), is_dir,
                                   c.byref(attr), c.byref(err))
        check(r == 0, err)
        return _stat(attr)

    def remove(self, path: str) -> None:
        """A file, or a directory with all that is in it."""
        here = self.stat(path)
        if here.is_dir:
            for name, _ in self.list(here.node):
                self.remove("%s/%s" % (path, name))
        above, _, name = path.rpartition("/")
        err = _abi.Error()
        with self.writing() as fs:
            r = lib.optimfs_remove(fs, self.stat(above).node, fs_bytes(name),
                                   here.is_dir, c.byref(err))
        check(r == 0, err)

    def commit(self) -> Optional[str]:
        """None when all is safe; what failed if the last sync did."""
        err = _abi.Error()
        with self.writing() as fs:
            r = lib.optimfs_commit(fs, None, None, c.byref(err))
        check(r >= 0, err)
        return text_of(err) if r else None

    def abort(self) -> None:
        err = _abi.Error()
        with self.writing() as fs:
            check(lib.optimfs_abort(fs, c.byref(err)) == 0, err)

    def drop(self) -> None:
        """Discard the changes when the tree is closed."""
        if self._handle is not None:
            self._handle.drops = True

    def reshard(self, to: str, directory: Union[str, "os.PathLike[str]"],
                jobs: int = 0,
                progress: Optional[Callable[[int, int], None]] = None
                ) -> Optional[str]:
        raised: List[BaseException] = []  # C has none: it is asked to stop

        def tell(_ctx: Any, done: int, total: int, _file: Any) -> None:
            try:
                if progress is not None and not raised:
                    progress(done, total)
            except BaseException as e:
                raised.append(e)

        how = _abi.Reshard(to=fs_bytes(to), jobs=jobs)
        progress_fn = _abi.PROGRESS_FN(tell)
        stop_fn = _abi.STOP_FN(lambda _ctx: bool(raised))
        how.watch.progress = c.cast(progress_fn, c.c_void_p)
        how.watch.stop = c.cast(stop_fn, c.c_void_p)
        err = _abi.Error()

        def work() -> int:
            with self.using() as fs:
                return int(lib.optimfs_reshard(fs, path_bytes(directory),
                                               c.byref(how), c.byref(err)))

        r = _interruptible(work, raised)
        check(r >= 0, err)
        return text_of(err) if r else None


def _interruptible(work: Callable[[], int], raised: List[BaseException]) -> int:
    """Calls work in another thread, because Ctrl-C interrupts a thread that
    waits, but none that is in C. work ends early when raised has something."""
    busy = threading.Lock()

    def run() -> int:
        with busy:
            return -1 if raised else work()

    with ThreadPoolExecutor(1) as pool:
        try:
            r = pool.submit(run).result()
        except BaseException as e:
            raised.append(e)
    with busy:  # the pool forgets a thread whose start was interrupted
        pass
    if raised:
        raise raised[0]
    return r


def open_tree(path: Union[str, "os.PathLike[str]"], **options: Any) -> Tree:
    """Tree with the options of struct optimfs_options by name; None or False
    is the default of each."""
    o = _abi.Options()
    kinds = {field[0]: field[1] for field in _abi.Options._fields_}
    for name, value in options.items():
        if name not in kinds or name in ("group", "together"):
            raise TypeError("unknown option %r" % name)
        if value is None:
            continue
        if isinstance(value, (str, os.PathLike)):
            value = path_bytes(value)
        elif kinds[name] is c.c_char_p:  # which takes an int for an address
            raise TypeError("option %r is a string, not %r" % (name, value))
        setattr(o, name, value)
        if getattr(o, name) != value:  # cut to the bits that C has for it
            raise ValueError("option %r cannot be %r" % (name, value))
    err, path = _abi.Error(), os.fsdecode(path)
    fs = lib.optimfs_open(path_bytes(path), c.byref(o), c.byref(err))
    check(bool(fs), err)
    return Tree(path, fs, o.rw)
