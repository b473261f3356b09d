# SPDX-License-Identifier: Apache-2.0
"""The page of `optimfs report`, which the program makes."""
from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sysconfig
from typing import Any, Dict, List, Union

from ._errors import make


class Report:
    """An HTML page that describes a checkpoint, two, or a run.

    A notebook displays it, save() writes it, str() is the page.
    """

    def __init__(self, page: str) -> None:
        self._page = page

    @property
    def data(self) -> Dict[str, Any]:
        """What the page shows, as docs/json.md describes it."""
        block = re.search(r'id="data">(.*?)</script>', self._page, re.S)
        found: Dict[str, Any] = json.loads(block[1] if block else "{}")
        return found

    @property
    def verdict(self) -> str:
        """The first line of the page: "Sound. dcp, 64 ranks, ..."; that of a
        second checkpoint is on a second line."""
        return "\n".join(html.unescape(v) for v in re.findall(
            "<h1[^>]*>(.*?)</h1>", self._page))

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Write the page to a file, which any browser opens."""
        with open(path, "w", encoding="utf-8") as f:
            f.write(self._page)

    def __str__(self) -> str:
        return self._page

    def __repr__(self) -> str:
        return "<optimfs.Report %s>" % self.verdict.replace("\n", " / ")

    def _repr_html_(self) -> str:
        return ("<iframe sandbox='allow-scripts' style='width:100%%;"
                "height:40rem;border:1px solid #999' srcdoc=\"%s\"></iframe>"
                % html.escape(self._page))


def program() -> str:
    """The program that comes with the package, or is installed."""
    beside = os.path.join(sysconfig.get_path("scripts"), "optimfs")
    found = os.environ.get("OPTIMFS_PROGRAM") or shutil.which(beside) or \
        shutil.which("optimfs")
    if found is None:
        raise FileNotFoundError(
            "report() runs the program optimfs, which is neither in %s nor in "
            "PATH: install it, or let OPTIMFS_PROGRAM name the file"
            % os.path.dirname(beside))
    return found


def report(paths: List[str], options: Dict[str, Any], data: bool) -> Report:
    """Run `optimfs report`; the options are those that the paths were opened
    with, which it does not take."""
    given = sorted(k for k, v in options.items() if v not in (None, False))
    if given:
        raise TypeError("report() is of a checkpoint that was opened without "
                        "options, not with %s" % ", ".join(given))
    command = [program(), "report", "-q"] + ([] if data else ["--no-data"])
    done = subprocess.run(command + ["--", *paths], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    said = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode != 0:
        said = said.partition("\n")[0]
        code = re.search(r"OFS(\d+)", said)
        raise make(0, int(code[1]) if code else 0,
                   said[code.start():] if code else said)
    return Report(done.stdout.decode("utf-8", "surrogateescape"))
