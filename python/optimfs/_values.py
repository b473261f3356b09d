# SPDX-License-Identifier: Apache-2.0
"""Values that are not tensors: text of the tree to Python and back."""
from __future__ import annotations

import json
import math
from typing import Any, List


class Opaque(str):
    """The class of an object that optimfs does not make: "module.Class"."""

    def __repr__(self) -> str:
        return "Opaque(%s)" % super().__repr__()


def _is_params(path: str) -> bool:
    return path.endswith("/params") and "param_groups" in path.split("/")


def parse(text: bytes, kind: str, path: str) -> Any:
    """The value that the file of the tree at path says."""
    if kind == "bytes":
        return text
    s = text.decode("utf-8", "surrogateescape")
    if _is_params(path) and kind != "string":
        return _names(s)
    if s.endswith("\n"):
        s = s[:-1]
    if kind == "string":
        return s
    try:
        value = json.loads(s)
    except ValueError:
        return complex(s) if kind == "scalar" else s
    if isinstance(value, dict) and next(iter(value), None) == "__opaque__":
        return Opaque(value["__opaque__"])
    return value


def _names(s: str) -> List[str]:
    """One name a line; JSON where a name has a newline in it."""
    lines = s.split("\n")[:-1]
    if len(lines) == 1 and lines[0].startswith("[") and "\\u000a" in s:
        found: List[str] = json.loads(s)
        return found
    return lines


def text(value: Any, path: str) -> bytes:
    """What to write to the file of the tree at path for a value."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, str):
        s = value
    elif _is_params(path):
        s = json.dumps(value) if any("\n" in p for p in value) else \
            "\n".join(value)
    else:
        item = getattr(value, "item", None)
        s = _number(value if item is None else item())
    return (s + "\n").encode("utf-8", "surrogateescape")


def _number(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    if isinstance(value, complex):
        return repr(value)
    try:
        return json.dumps(value)
    except TypeError:
        raise TypeError("a checkpoint takes no %s as a value"
                        % type(value).__name__) from None
