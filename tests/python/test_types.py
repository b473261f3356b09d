# test_types.py - the type hints, as mypy checks them
# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

import pytest

import optimfs

pytest.importorskip("mypy")

USE = """
from typing import Any
import optimfs

def use(path: str) -> Any:
    with optimfs.open(path) as ck:
        tensor = ck["optim/state/w/exp_avg"]
        array = tensor[1000:2000, :64].numpy("float32")
        state = ck.state_dict()["model"].load()
        print(ck, ck.info()["format"], ck.stat("model").size, array, state)
        ck.view("dcp@8").save("new")
    with optimfs.edit(path, recover="yes") as editor:
        editor["optim/param_groups/0/lr"] = 1e-5
        del editor["optim/state/w"]
    for d in optimfs.diff("a", "b", rtol=1e-3):
        print(d.path, d.max_abs)
    with optimfs.open_run(path, runs_open=2) as run:
        print(run, run[1000].path, run["latest"].path, list(run),
              [e.why for e in run.entries()], run.series("model", "max"))
    try:
        optimfs.open(path)
    except optimfs.Error as e:
        print(e.code, e.errno, e.advice)
    return ck.param_groups[0]
"""


def test_strict(tmp_path):
    source = tmp_path / "use.py"
    source.write_text(USE)
    package = os.path.dirname(optimfs.__file__)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports",
         "--allow-subclassing-any", "--cache-dir", str(tmp_path / "cache"),
         package, str(source)],
        env=dict(os.environ, MYPYPATH=os.path.dirname(package)),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
