# SPDX-License-Identifier: Apache-2.0
"""Keys of a checkpoint and names of files: the rules of optimfs(5)."""
from __future__ import annotations

import difflib
import fnmatch
import re
from typing import Any, Iterable, List

# Among more names none is looked for.
MANY = 10000
# A longer name is cut, "~" and a hash follow.
NAME_MAX = 255


def encode(key: str) -> str:
    """The file name of a key, unless it is longer than NAME_MAX bytes."""
    if key == "":
        return "%"
    if key in (".", ".."):
        return "%2E" * len(key)
    return re.sub(r"[\x00-\x1f\x7f/%]|~(?=[0-9a-f]{16}\Z)",
                  lambda m: "%%%02X" % ord(m[0]), key)


def decode(name: str) -> str:
    """The key of a file name, except of one that was cut."""
    if name == "%":
        return ""
    return re.sub(r"%([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), name)


def too_long(name: str) -> bool:
    return len(name.encode("utf-8", "surrogateescape")) > NAME_MAX


def is_cut(name: str) -> bool:
    """Does the name end in the hash of a longer key?"""
    return re.search(r"~[0-9a-f]{16}(~\d+)?$", name) is not None


def matches(pattern: str, path: str) -> bool:
    """Does a path match, "*" within a component?"""
    parts, names = pattern.strip("/").split("/"), path.split("/")
    return len(parts) == len(names) and all(
        p == n or fnmatch.fnmatchcase(n, p) for p, n in zip(parts, names))


def natural(path: str) -> List[Any]:
    """A key for sorted(): layers.2 before layers.10."""
    return [[int(p) if p.isdigit() else p for p in re.split(r"([0-9]+)", n)]
            for n in path.split("/")]


def ending(path: str, paths: Iterable[str]) -> str:
    """A suggestion of a path that ends so: "wq.weight"."""
    found = [p for p in paths if p.endswith(("/" + path, "." + path))]
    if not found:
        return ""
    return "; did you mean '%s'?%s" % (
        found[0], " %d names end so" % len(found) if len(found) > 1 else "")


def beginning(path: str, paths: Iterable[str]) -> str:
    """A suggestion of the paths in which a name begins so: "layers.0"."""
    for p in paths:
        at = ("/" + p).find("/" + path + ".")
        if at >= 0:
            return "; names that begin so: ck.glob('%s%s.*')" % (p[:at], path)
    return ""


def near(word: object, names: Iterable[str]) -> str:
    """A suggestion to end a message about an unknown name with, or ""."""
    known = list(names)
    if not isinstance(word, str) or len(known) > MANY:
        return ""
    found = difflib.get_close_matches(word, known, 1)
    return "; did you mean '%s'?" % found[0] if found else ""
