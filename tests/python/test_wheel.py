# SPDX-License-Identifier: Apache-2.0
"""Installation from the tree and from a wheel into a new venv, offline."""
import os
import shutil
import subprocess
import sys
import zipfile

import conftest
import pytest

pytest.importorskip("ensurepip")

SEE = """
import optimfs, sys
from importlib.metadata import entry_points, version
assert version("optimfs") == optimfs.__version__
assert optimfs.__file__.startswith(sys.prefix), optimfs.__file__
found = entry_points()
specs = found.select(group="fsspec.specs") if hasattr(found, "select") \\
    else found["fsspec.specs"]
assert [e.value for e in specs] == ["optimfs.fsspec:OptimfsFileSystem"]
with optimfs.open(sys.argv[1]) as ck:
    print(ck["model/norm.bias"].tobytes().hex(), ck["model/norm.bias"].shape)
    print(optimfs.advice("OFS140"))
with open("/proc/self/maps") as f:
    maps = f.read()
for name in sys.argv[2:]:
    assert sys.prefix + "/" in [line for line in maps.splitlines()
                                if name in line][0], maps
"""


def run(*command, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(
        ("OPTIMFS", "PYTHON", "PIP"))}
    done = subprocess.run(command, env=dict(clean, **env), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    path = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", str(path))
    return str(path / "bin")


def pip_install(venv, what):
    run(venv + "/pip", "--disable-pip-version-check", "install", "--no-index",
        "--force-reinstall", what)


@pytest.fixture
def checkpoint(data):
    return data("pytorch/dcp_fsdp2_w3/ckpt")


def test_pip_installs_from_the_tree_offline(venv, checkpoint):
    pip_install(venv, os.path.join(conftest.TOP, "python"))
    out = run(venv + "/python", "-c", SEE, checkpoint,
              OPTIMFS_LIBRARY=os.environ["OPTIMFS_LIBRARY"])
    assert "(12,)" in out and "restore the file" in out


def test_a_wheel_carries_the_library(venv, checkpoint, tmp_path):
    out = run(sys.executable,
              os.path.join(conftest.TOP, "python", "wheel_backend.py"),
              os.environ["OPTIMFS_LIBRARY"], str(tmp_path))
    wheel = out.strip()
    assert "-py3-none-manylinux_2_" in wheel
    with zipfile.ZipFile(wheel) as z:
        assert z.testzip() is None
        carried = [os.path.basename(n) for n in z.namelist()
                   if n.startswith("optimfs/lib/")]
        assert any(n.endswith("licenses/LICENSE") for n in z.namelist())
    assert "liboptimfs.so.0" in carried
    assert any(n.startswith("libxxhash") for n in carried)
    if shutil.which("patchelf"):  # as auditwheel wants it
        with zipfile.ZipFile(wheel) as z:
            z.extractall(tmp_path / "unpacked")
        for name in carried:
            assert "[$ORIGIN]" in run("readelf", "-d", str(
                tmp_path / "unpacked/optimfs/lib" / name))
    pip_install(venv, wheel)
    out = run(venv + "/python", "-c", SEE, checkpoint, *carried)
    assert "(12,)" in out and "restore the file" in out


def test_a_library_that_is_not_there_is_named():
    out = subprocess.run(
        [sys.executable, "-c", "import optimfs"], text=True,
        capture_output=True, env=dict(os.environ,
                                      OPTIMFS_LIBRARY="/nonexistent/lib.so"))
    assert out.returncode != 0 and "/nonexistent/lib.so" in out.stderr
