#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes system calls on a file that the shell cannot make.

write.py FILE CALL...   prints the result of each CALL: "ok", or the name of the errno
"""
import ctypes
import errno
import mmap
import os
import struct
import sys


class Calls:
    """A CALL is NAME:ARGUMENT...: a method of this class and its arguments."""

    def __init__(self, path):
        self.path = path
        self.fd = None

    def open(self, flags="rw"):
        how = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR,
               "a": os.O_WRONLY | os.O_APPEND, "t": os.O_WRONLY | os.O_TRUNC,
               "x": os.O_RDWR | os.O_CREAT | os.O_EXCL,
               "c": os.O_RDWR | os.O_CREAT}[flags]
        self.fd = os.open(self.path, how, 0o644)

    def pwrite(self, off, n, byte="120"):
        data = bytes([int(byte)]) * int(n)
        got = os.pwrite(self.fd, data, int(off))
        assert got == len(data), got

    def text(self, text):
        os.write(self.fd, text.encode().decode("unicode_escape").encode())

    def pread(self, off, n):
        data = os.pread(self.fd, int(n), int(off))
        assert len(data) == int(n), len(data)

    def cut(self, size):
        os.ftruncate(self.fd, int(size))

    def allocate(self, off, n):
        os.posix_fallocate(self.fd, int(off), int(n))

    def fsync(self):
        os.fsync(self.fd)

    def close(self):
        fd, self.fd = self.fd, None
        os.close(fd)

    def closedup(self):
        """Closes a duplicate of the descriptor: sends FLUSH, keeps the file open."""
        os.close(os.dup(self.fd))

    def mmap(self, off, n, byte="120"):
        with mmap.mmap(self.fd, 0) as m:
            m[int(off):int(off) + int(n)] = bytes([int(byte)]) * int(n)
            m.flush()

    def mmapdie(self, off, n, byte="120"):
        """Writes to a mapping and kills the process before the pages are flushed."""
        m = mmap.mmap(self.fd, 0)
        m[int(off):int(off) + int(n)] = bytes([int(byte)]) * int(n)
        print("ok", flush=True)
        os.kill(os.getpid(), 9)

    def setxattr(self, name, value):
        os.setxattr(self.path, "user.optimfs." + name, value.encode())

    def getxattr(self, name, value):
        got = os.getxattr(self.path, "user.optimfs." + name).decode()
        assert got == value, got

    def mkdir(self):
        os.mkdir(self.path)

    def rmdir(self):
        os.rmdir(self.path)

    def unlink(self):
        os.unlink(self.path)

    def rename(self, to):
        os.rename(self.path, to)

    def exchange(self, to):
        """RENAME_EXCHANGE; Python has no renameat2."""
        self._rename2(to, 2)

    def noreplace(self, to):
        self._rename2(to, 1)

    def _rename2(self, to, flags):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.renameat2(-100, self.path.encode(), -100, to.encode(),
                          flags) != 0:
            raise OSError(ctypes.get_errno(), "renameat2")

    def link(self, to):
        os.link(self.path, to)

    def symlink(self, to):
        os.symlink(to, self.path)

    def mkfifo(self):
        os.mkfifo(self.path)

    def chmod(self, mode):
        os.chmod(self.path, int(mode, 8))

    def npy(self, dtype, shape, byte="64"):
        """Writes a whole .npy file in one write."""
        dims = tuple(int(d) for d in shape.split("x"))
        n = int(dtype[-1])
        for d in dims:
            n *= d
        head = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }" %
                (dtype, dims)).encode()
        head += b" " * (63 - (10 + len(head)) % 64) + b"\n"
        os.write(self.fd, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) +
                 head + bytes([int(byte)]) * n)


def main():
    calls = Calls(sys.argv[1])
    said = []
    for call in sys.argv[2:]:
        name, *args = call.split(":")
        try:
            getattr(calls, name)(*args)
            said.append("ok")
        except OSError as e:
            said.append(errno.errorcode[e.errno])
        except ValueError as e:
            said.append(str(e))
    print(*said)


main()
