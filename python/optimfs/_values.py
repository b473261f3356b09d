# SPDX-License-Identifier: Apache-2.0
"""Values that are not tensors: text of the tree to Python and back."""
from __future__ import annotations

import json
import math
from typing import Any


class Opaque(str):
    """The class of an object that optimfs does not make: "module.Class"."""

    def __repr__(self) -> str:
        return "Opaque(%s)" % super().__repr__()


def parse(text: bytes, kind: str, name: str) -> Any:
    """The value that a file of the tree says."""
    if kind == "bytes":
        return text
    s = text.decode("utf-8", "surrogateescape")
    if s.endswith("\n"):
        s = s[:-1]
    if kind == "string":
        return s
    if name == "params":
        return s.split("\n") if s else []
    try:
        value = json.loads(s)
    except ValueError:
        return s
    if isinstance(value, dict) and next(iter(value), None) == "__opaque__":
        return Opaque(value["__opaque__"])
    return value


def text(value: Any, name: str) -> bytes:
    """What to write for a value."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, str):
        s = value
    elif name == "params":
        s = "\n".join(value)
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
