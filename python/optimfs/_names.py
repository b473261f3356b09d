# SPDX-License-Identifier: Apache-2.0
"""Keys of a checkpoint and names of files: the rules of optimfs(5)."""
from __future__ import annotations

import difflib
import re
from typing import Iterable

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


def near(word: object, names: Iterable[str]) -> str:
    """A suggestion to end a message about an unknown name with, or ""."""
    known = list(names)
    if not isinstance(word, str) or len(known) > MANY:
        return ""
    found = difflib.get_close_matches(word, known, 1)
    return "; did you mean '%s'?" % found[0] if found else ""
