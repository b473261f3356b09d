# SPDX-License-Identifier: Apache-2.0
"""Exceptions, with the stable code of a failure and what to do about it."""
from __future__ import annotations

import errno
import functools
import os
import re
from typing import Dict, Optional

__all__ = ["Error", "NotFoundError", "ExistsError", "DamagedError",
           "BusyError", "UnsupportedError", "RefusedError", "UnreadWarning",
           "UnsyncedWarning", "advice"]


def _in_python(text: str) -> str:
    """What the commands call -o NAME=VALUE is an argument here."""
    return re.sub(r"-o (?=\w+=)", "", text)


class Error(OSError):
    """A failure of optimfs.

    errno     an errno value, of the table in optimfs(5)
    strerror  what failed, where and why
    code      the stable code "OFSnnn", or None
    advice    what to do about it, or None
    """

    def __init__(self, errno: int, text: str, number: int = 0) -> None:
        super().__init__(errno, _in_python(text))
        self.number = number
        self.code: Optional[str] = "OFS%03d" % number if number else None
        self.advice: Optional[str] = advice(self.code)

    def __str__(self) -> str:
        # not where the text itself says what to do, as in ofs_tool_fail
        if self.advice and not re.search("^none|^as OFS|the message",
                                         self.advice):
            return "%s\nWhat to do: %s" % (self.strerror, self.advice)
        return str(self.strerror)


class NotFoundError(Error, FileNotFoundError, KeyError):
    """There is no such path (ENOENT, ENODATA), or it is invalid (ENOTDIR,
    ENAMETOOLONG)."""


class ExistsError(Error, FileExistsError):
    """The path already exists (EEXIST)."""


class DamagedError(Error):
    """Bytes are missing or wrong (EIO, EUCLEAN, EBADMSG, EPROTO)."""


class BusyError(Error):
    """Another process writes the checkpoint (EBUSY)."""


class UnsupportedError(Error):
    """Understood, but not supported (EOPNOTSUPP)."""


class RefusedError(Error, PermissionError):
    """Refused by policy, or read-only (EPERM, EACCES, EROFS)."""


class UnreadWarning(UserWarning):
    """Something could not be read, and the result is without it."""


class UnsyncedWarning(UserWarning):
    """The written data is in place, but may not survive a crash."""


_CLASSES = {
    errno.ENOENT: NotFoundError, errno.ENODATA: NotFoundError,
    errno.EEXIST: ExistsError, errno.EIO: DamagedError,
    errno.EUCLEAN: DamagedError, errno.EBADMSG: DamagedError,
    errno.EPROTO: DamagedError,
    errno.EBUSY: BusyError, errno.EOPNOTSUPP: UnsupportedError,
    errno.EPERM: RefusedError, errno.EACCES: RefusedError,
    errno.EROFS: RefusedError,
}


def make(code: int, number: int, text: str) -> Error:
    """The exception for what struct optimfs_error says."""
    return _CLASSES.get(code, Error)(code, text, number)


@functools.lru_cache(maxsize=None)
def _table() -> Dict[str, str]:
    here = os.path.dirname(os.path.abspath(__file__))
    # beside the package when it is installed, else where the sources have it
    for path in (os.path.join(here, "errors.md"),
                 os.path.join(here, "..", "..", "docs", "errors.md")):
        try:
            with open(path, encoding="utf-8") as f:
                rows = [re.split(r"(?<!\\)\|", line) for line in f
                        if line.startswith("| OFS")]
        except OSError:
            continue
        return {r[1].strip(): r[4].strip() for r in rows if len(r) >= 5}
    return {}


def advice(code: Optional[str]) -> Optional[str]:
    """What docs/errors.md says to do about "OFSnnn"; None if nothing."""
    text = _table().get(code or "", "").replace("`", "")
    return None if text in ("", "none needed") else _in_python(text)
