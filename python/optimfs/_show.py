# SPDX-License-Identifier: Apache-2.0
"""How objects are displayed: a line of text, and HTML in a notebook."""
from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Sequence

from . import _names
from ._errors import Error

if TYPE_CHECKING:
    from ._checkpoint import Checkpoint
    from ._tensor import Tensor
    from ._tree import Tree

# A histogram is of this many elements at most, evenly spread blocks of them.
SAMPLE = 1 << 16
BLOCKS = 16
ROWS = 20
# So many ranks have their colour explained.
LEGEND = 16


def human(n: float) -> str:
    """Bytes, in units of 1000."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if n < 1000 or unit == "TB":
            return "%d B" % n if unit == "B" else "%.1f %s" % (n, unit)
        n /= 1000
    raise AssertionError


def shown(text: Any) -> str:
    """Without what a terminal or a page obeys or does not show: controls,
    marks of direction, invisible characters."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1]
                   for c in str(text))


def _html(text: Any) -> str:
    return escape(shown(text))


def _count(n: int, what: str) -> str:
    return "%d %s%s" % (n, what, "" if n == 1 else "s")


class Text(str):
    """A text that a notebook and a prompt show as it is."""

    def __repr__(self) -> str:
        return str(self)


def tree(t: "Tree", path: str, depth: int) -> Text:
    """Directories, each with its number of files; below depth only sums."""
    lines: List[str] = []

    def visit(here: str, name: str, left: int, indent: str) -> int:
        at, files = len(lines), 0
        lines.append("")
        for entry, is_dir in sorted(t.list(t.stat(here).node),
                                    key=lambda e: _names.natural(e[0])):
            if not is_dir:
                files += 1
                continue
            below = "%s/%s" % (here, entry) if here else entry
            if left > 1:
                files += visit(below, entry, left - 1, indent + "  ")
            else:
                files += sum(1 for _ in t.walk(below))
        lines[at] = "%s%s/  %s" % (indent, shown(name), _count(files, "file"))
        return files

    visit(path, path, depth, "")
    return Text("\n".join(lines))


def numbers(t: "Tensor") -> str:
    """The elements of a small tensor as NumPy prints them, or ""."""
    try:
        from ._dtypes import widened
        return str(t.numpy(widened(t.dtype)))
    except (ImportError, TypeError, Error):
        return ""


def line(ck: "Checkpoint") -> str:
    if ck._tree.closed:
        return "<optimfs.Checkpoint %s: closed>" % shown(ck.path)
    i = ck.info()
    n, size = i["counts"], i["bytes"]
    ranks, damaged = i["world_size"], n["damaged"]
    missing = n["missing_files"]
    facts = [i["format"], _count(ranks, "rank") if ranks else "",
             _count(n["tensors"], "tensor"), human(size["logical"]),
             "%s missing" % _count(missing, "file") if missing else "",
             "%d damaged" % damaged if damaged else ""]
    return "<optimfs.Checkpoint %s: %s>" % (
        shown(ck.path), ", ".join(f for f in facts if f))


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def cells(tag: str, row: Sequence[Any]) -> str:
        return "<tr>%s</tr>" % "".join(
            "<%s style='text-align:left'>%s</%s>" % (tag, _html(str(c)), tag)
            for c in row)
    return "<table>%s%s</table>" % (
        cells("th", head) if head else "",
        "".join(cells("td", r) for r in rows))


def _optimizer(o: Dict[str, Any]) -> str:
    return "%s%s%s, %s" % (
        "" if o["name"] is None else o["name"] + ": ",
        o["kind"] or "unknown kind",
        "" if o["step"] is None else " at step %s" % o["step"],
        _count(o["parameters"], "parameter"))


def checkpoint(ck: "Checkpoint") -> str:
    """What it is and whether it is damaged, as far as the index tells; then
    the first tensors. No tensor is read."""
    if ck._tree.closed:
        return _html(line(ck))
    i, s = ck.info(), ck.summary()
    n, size = i["counts"], i["bytes"]
    damage = ck._tree.summary("", "problems").strip()
    facts = [("state", damage or "no damage in the index; ck.check() reads "
                                 "the optimizer and the model"),
             ("step", s["step"]),
             ("optimizer", "; ".join(map(_optimizer, s["optimizers"])) or
              None),
             ("format", i["format"]), ("writer", i["writer"]),
             ("trainer", i["trainer"]), ("ranks", i["world_size"]),
             ("parameters", n["parameters"]),
             ("optimizer states", n["optimizer_states"]),
             ("size", "%s, %s stored" % (human(size["logical"]),
                                         human(size["stored"]))),
             ("missing files", n["missing_files"]),
             ("damaged", n["damaged"]), ("warnings", n["warnings"])]
    rows: List[Sequence[Any]] = []
    for t in ck.tensors():
        if len(rows) == ROWS:
            break
        rows.append((t.path, t.dtype, list(t.shape), human(t.nbytes),
                     t.shards))
    more = n["tensors"] - len(rows)
    return "<b>%s</b>%s%s%s" % (
        _html(ck.path), _table((), [f for f in facts if f[1] is not None]),
        _table(("tensor", "dtype", "shape", "bytes", "shards"), rows),
        "and %d more" % more if more > 0 else "")


def _colour(rank: int) -> str:
    return "hsl(%d,60%%,70%%)" % (rank * 47 % 360)


def _shard_map(t: "Tensor") -> str:
    """The boxes of the first two dimensions, a colour a rank."""
    shape = (t._full + (1, 1))[:2]
    if 0 in shape:
        return ""
    boxes, ranks = [], {}
    for s in t.shards:
        if s.rank is not None:
            ranks[s.rank] = "<span style='color:%s'>&#9632;</span> %d" % (
                _colour(s.rank), s.rank)
        y, x = (s.offsets + (0, 0))[:2]
        h, w = (s.sizes + (1, 1))[:2]
        boxes.append(
            "<rect x='%g%%' y='%g%%' width='%g%%' height='%g%%' "
            "fill='%s' stroke='#555'><title>%s</title></rect>"
            % (100 * x / shape[1], 100 * y / shape[0], 100 * w / shape[1],
               100 * h / shape[0], _colour(s.rank or 0),
               _html("%s%s at %s, %s" % (
                   "" if s.rank is None else "rank %d: " % s.rank,
                   list(s.sizes), list(s.offsets), s.file))))
    legend = [ranks[r] for r in sorted(ranks)]
    if len(legend) > LEGEND:
        legend[LEGEND - 1:-1] = ["..."]
    return ("<svg width='240' height='120'>%s</svg><br>dimension 0 downwards"
            "%s%s" % ("".join(boxes), ", 1 to the right" if len(shape) > 1 and
                      t._full[1:] else "",
                      "; ranks " + " ".join(legend) if legend else ""))


def sample(t: "Tensor") -> Any:
    """Some elements as float64: all, or blocks of neighbours that are spread
    evenly over the first dimension."""
    import numpy as np
    from ._dtypes import widened
    wide = widened(t.dtype)
    if t.size <= SAMPLE or not t.shape:
        return t.numpy(wide).reshape(-1).astype(np.float64)
    row = t.size // t.shape[0]
    rows = max(1, SAMPLE // BLOCKS // row)
    parts = []
    for b in range(min(BLOCKS, t.shape[0])):
        at = b * (t.shape[0] - rows) // max(1, BLOCKS - 1)
        part = t[at:at + rows]
        while part.size > SAMPLE // BLOCKS and part.ndim > 1 and \
                part.shape[0] == 1:
            part = part[0]
        part = part[:SAMPLE // BLOCKS]
        if part.size <= SAMPLE:
            parts.append(part.numpy(wide).reshape(-1))
    return np.concatenate(parts).astype(np.float64) if parts else \
        np.empty(0)


def _histogram(t: "Tensor") -> str:
    try:
        import numpy as np
        if t.dtype.startswith("complex"):
            return ""
        values = sample(t)
    except (ImportError, TypeError):
        return ""  # no NumPy, or no numbers: there is no picture of it
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return ""
    counts = np.histogram(finite, bins=40)[0]
    numbers: Any = counts.tolist()
    bars = "".join(
        "<rect x='%d' y='%.1f' width='5' height='%.1f' fill='#69c'/>"
        % (6 * i, 60 - 60 * n / counts.max(), 60 * n / counts.max())
        for i, n in enumerate(numbers))
    axis = "".join("<text x='%d' y='73' font-size='10' fill='currentColor' "
                   "text-anchor='%s'>%.3g</text>" % at for at in (
                       (0, "start", finite.min()), (240, "end", finite.max())))
    return ("<svg width='240' height='76'>%s%s</svg><br>%.4g to %.4g, "
            "mean %.4g of %d elements%s" % (
                bars, axis, finite.min(), finite.max(), finite.mean(),
                values.size,
                ", %d not finite" % (values.size - finite.size)
                if finite.size < values.size else ""))


def tensor(t: "Tensor") -> str:
    return "<b>%s</b><br>%s %s, %s, %s<br>%s<br>%s" % (
        _html(t.path), _html(t.dtype), list(t.shape), human(t.nbytes),
        _count(len(t.shards), "shard"), _shard_map(t), _histogram(t))
