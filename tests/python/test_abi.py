# SPDX-License-Identifier: Apache-2.0
"""optimfs._abi has the structs and prototypes of the C header."""
import ctypes
import os
import re
import shlex
import subprocess

import conftest
import pytest
from optimfs import _abi

STRUCTS = {"optimfs_error": _abi.Error, "optimfs_options": _abi.Options,
           "optimfs_attr": _abi.Attr, "optimfs_dirent": _abi.Dirent,
           "optimfs_run_entry": _abi.RunEntry,
           "optimfs_reshard": _abi.Reshard,
           "optimfs_tolerance": _abi.Tolerance,
           "optimfs_comparison": _abi.Comparison,
           "optimfs_scan": _abi.Scan, "optimfs_symptom": _abi.Symptom,
           "optimfs_checkup": _abi.Checkup, "optimfs_statistics": _abi.Statistics}
INCLUDE = os.path.join(conftest.TOP, "include", "optimfs")
HEADER = os.path.join(INCLUDE, "optimfs.h")


def members(struct):
    return [name for name, _ in struct._fields_ if not name.startswith("_")]


def test_sizes_and_offsets_are_those_of_the_header(tmp_path):
    lines = ["#include <stdio.h>", '#include "optimfs/analyze.h"',
             '#include "optimfs/run.h"', "int main(void) {"]
    want = []
    for name, struct in STRUCTS.items():
        lines.append('printf("%%zu\\n", sizeof(struct %s));' % name)
        want.append((name, ctypes.sizeof(struct)))
        for m in members(struct):
            lines.append('printf("%%zu\\n", offsetof(struct %s, %s));'
                         % (name, m))
            want.append(("%s.%s" % (name, m), getattr(struct, m).offset))
    source = tmp_path / "abi.c"
    source.write_text("\n".join(lines + ["return 0;", "}", ""]))
    cc = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run(cc + ["-I", os.path.join(conftest.TOP, "include"), "-o",
                         str(tmp_path / "abi"), str(source)], check=True)
    out = subprocess.run([str(tmp_path / "abi")], check=True,
                         capture_output=True, text=True).stdout
    assert want == [(what, int(n))
                    for (what, _), n in zip(want, out.split())]


def prototypes():
    text = ""
    for name in ("optimfs.h", "analyze.h", "statistics.h", "run.h"):
        with open(os.path.join(INCLUDE, name)) as f:
            text += re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    found = {}
    for m in re.finditer(r"^[\w \*]*?\b(optimfs_\w+)\(([^;{]*)\);", text,
                         re.M | re.S):
        depth, args = 0, 0
        for ch in m[2]:
            depth += (ch == "(") - (ch == ")")
            args += ch == "," and depth == 0
        found[m[1]] = 0 if m[2].strip() == "void" else args + 1
    return found


@pytest.mark.parametrize("name", sorted(_abi.PROTOTYPES))
def test_a_function_takes_what_the_header_says(name):
    assert len(_abi.PROTOTYPES[name][1]) == prototypes()[name]


def test_constants_are_those_of_the_header():
    with open(HEADER) as f:
        text = f.read()
    assert "#define OPTIMFS_ROOT %d" % _abi.ROOT in text
    enum = re.search(r"enum optimfs_recover \{(.*?)\}", text, re.S)[1]
    names = re.findall(r"OPTIMFS_RECOVER_(\w+)", enum)
    assert {n.lower(): i for i, n in enumerate(names)} == _abi.RECOVER
    enum = re.search(r"enum optimfs_run_mode \{(.*?)\}", text, re.S)[1]
    names = re.findall(r"OPTIMFS_RUN_(\w+)", enum)
    assert {n.lower(): i for i, n in enumerate(names)} == _abi.RUN
    enum = re.search(r"enum optimfs_summary_form \{(.*?)\}", text, re.S)[1]
    names = re.findall(r"OPTIMFS_SUMMARY_(\w+)", enum)
    assert {n.lower(): i for i, n in enumerate(names)} == _abi.SUMMARY
