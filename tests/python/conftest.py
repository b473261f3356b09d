# conftest.py - fixtures of the tests of the Python package, and TAP output
# SPDX-License-Identifier: Apache-2.0
import json
import os
import shutil
import struct

import pytest

TOP = os.environ.get("TOP_SRCDIR") or os.path.abspath(
    os.path.join(os.path.dirname(__file__), "..", ".."))
DATA = os.path.join(TOP, "tests", "data")


@pytest.fixture
def data():
    """The path of a checkpoint of tests/data."""
    return lambda name: os.path.join(DATA, name)


@pytest.fixture
def copy(tmp_path):
    """A writable copy of a checkpoint of tests/data."""
    def make(name, to="ck"):
        path = tmp_path / to
        shutil.copytree(os.path.join(DATA, name), path)
        for dirpath, _, files in os.walk(path):
            os.chmod(dirpath, 0o755)
            for f in files:
                os.chmod(os.path.join(dirpath, f), 0o644)
        return str(path)
    return make


@pytest.fixture
def safetensors(tmp_path):
    """Write a safetensors file: name -> (dtype, shape, bytes)."""
    def make(tensors, to="made.safetensors"):
        header, off = {}, 0
        for name, (dtype, shape, raw) in tensors.items():
            header[name] = {"dtype": dtype, "shape": list(shape),
                            "data_offsets": [off, off + len(raw)]}
            off += len(raw)
        text = json.dumps(header).encode()
        path = tmp_path / to
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for _, _, raw in tensors.values():
                f.write(raw)
        return str(path)
    return make


class Tap:
    """Prints a line of TAP for each test; everything else is a comment."""

    def __init__(self):
        # Not standard output, which pytest captures.
        self.out = os.fdopen(int(os.environ["OPTIMFS_TAP"]), "w", buffering=1)
        self.n = 0

    def line(self, word, name, more=""):
        self.n += 1
        name = name.replace("#", "")
        print("%s %d - %s%s" % (word, self.n, name, more), file=self.out)

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.rpartition("/")[2].replace(".py::", ": ")
        if report.failed:
            self.line("not ok", name)
            for text in report.longreprtext.splitlines()[-40:]:
                print("# " + text, file=self.out)
        elif report.skipped:
            self.skip(name, report)
        elif report.when == "call":
            self.line("ok", name)

    def skip(self, name, report):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) \
            else "skipped"
        self.line("ok", name, " # SKIP " + why.replace("Skipped: ", ""))

    def pytest_collectreport(self, report):
        if report.failed:
            self.line("not ok", "collecting " + report.nodeid)
            for text in report.longreprtext.splitlines()[-40:]:
                print("# " + text, file=self.out)
        elif report.skipped:  # a module without what it imports
            self.skip(report.nodeid.rpartition("/")[2], report)

    def pytest_sessionfinish(self):
        print("1..%d" % self.n, file=self.out)


def pytest_configure(config):
    if os.environ.get("OPTIMFS_TAP"):
        config.pluginmanager.register(Tap())
