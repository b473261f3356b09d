#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wheel_backend.py - make a wheel of the package, without any tool

pip calls it for "pip install ./python" (PEP 517): a wheel of the Python files
alone, which uses the system's liboptimfs. "make wheel" runs it:

    wheel_backend.py LIBRARY DIRECTORY [PROGRAM]

makes a wheel that carries that library and what it needs beyond the base
system, named for the oldest glibc that has all its symbols. With the program,
which must be static, "pip install" gives the command optimfs, too. For another
machine, WHEEL_LIBRARIES has the directories of its libraries, and STRIP its strip.
"""
import base64
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)

# What manylinux says is on every system.
BASE = ("libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so",
        "libz.so", "libgcc_s.so", "ld-linux", "linux-vdso")

METADATA = """\
Metadata-Version: 2.1
Name: optimfs
Version: {version}
Summary: Sharded training checkpoints as plain tensors and files
License: Apache-2.0
{home}Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == 'numpy'
Provides-Extra: torch
Requires-Dist: torch; extra == 'torch'
Provides-Extra: fsspec
Requires-Dist: fsspec; extra == 'fsspec'
Description-Content-Type: text/markdown

"""

ENTRY_POINTS = """\
[fsspec.specs]
optimfs = optimfs.fsspec:OptimfsFileSystem
"""


class UnsupportedOperation(Exception):
    """PEP 517 looks for it by name."""


def version():
    with open(os.path.join(TOP, "configure.ac")) as f:
        return re.search(r"AC_INIT\(\[optimfs\], \[([^]]+)\]", f.read())[1]


def home():
    """The line of METADATA with the address of the project, if it is known."""
    url = os.environ.get("HOMEPAGE")
    return "Home-page: %s\n" % url if url else ""


def read(*names):
    with open(os.path.join(*names), "rb") as f:
        return f.read()


def package():
    """Archive name -> content, of the package itself."""
    files = {}
    for path in sorted(glob.glob(os.path.join(HERE, "optimfs", "*"))):
        if path.endswith((".py", "py.typed")):
            files["optimfs/" + os.path.basename(path)] = read(path)
    files["optimfs/errors.md"] = read(TOP, "docs", "errors.md")
    return files


def machine(library):
    """As uname -m names it."""
    kind = int.from_bytes(read(library)[18:20], "little")  # e_machine
    return {62: "x86_64", 183: "aarch64"}.get(kind) or os.uname().machine


def find(name, linked):
    """The path of a library that another one needs."""
    for directory in os.environ.get("WHEEL_LIBRARIES", "").split(":"):
        if directory and os.path.exists(os.path.join(directory, name)):
            return os.path.join(directory, name)
    if name not in linked:
        sys.exit("%s is not found: WHEEL_LIBRARIES=DIRECTORY" % name)
    return linked[name]


def needed(library):
    """Name -> path of the libraries to carry beside a library."""
    linked = {}
    if machine(library) == os.uname().machine:
        out = subprocess.run(["ldd", library], check=True,
                             capture_output=True, text=True).stdout
        linked = dict(re.findall(r"^\s*(\S+) => (/\S+)", out, re.M))
    found, queue = {}, [library]
    while queue:
        out = subprocess.run(["readelf", "-d", queue.pop()], check=True,
                             capture_output=True, text=True).stdout
        for name in re.findall(r"\(NEEDED\).*\[(.+)\]", out):
            if not name.startswith(BASE) and name not in found:
                found[name] = find(name, linked)
                queue.append(found[name])
    return found


def glibc(paths):
    """The oldest glibc 2.N that has what these files ask for: N."""
    out = subprocess.run(["readelf", "-V"] + list(paths), check=True,
                         capture_output=True, text=True).stdout
    return max(int(n) for n in re.findall(r"GLIBC_2\.(\d+)", out))


def copyrights(names):
    """What Debian says of the carried libraries, as far as it is here."""
    files = {}
    for name in names:
        stem = name.split(".so")[0]
        for path in sorted(glob.glob("/usr/share/doc/%s[0-9]*/copyright"
                                     % glob.escape(stem)))[:1]:
            files["licenses/%s.txt" % stem] = read(path)
    return files


def stripped(path, scratch):
    """A library without what only a debugger wants. With patchelf it says that
    what it needs is beside it, which auditwheel asks for; the package works
    without that, too, because it loads what is beside first."""
    subprocess.run([os.environ.get("STRIP", "strip"), "--strip-unneeded",
                    "-o", scratch, path], check=True)
    if shutil.which("patchelf"):
        subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", scratch],
                       check=True)
    try:
        return read(scratch)
    finally:
        os.unlink(scratch)


def with_library(library, directory):
    """Archive name -> content of lib/, licenses, and the platform's tag."""
    beside = needed(library)
    files = {}
    for name, path in [("liboptimfs.so.0", library)] + sorted(beside.items()):
        files["optimfs/lib/" + name] = stripped(
            os.path.realpath(path), os.path.join(directory, ".stripped"))
    tag = "manylinux_2_%d_%s" % (
        glibc([library] + list(beside.values())), machine(library))
    return files, copyrights(beside), tag


def with_program(program):
    """Archive name -> content: pip puts it beside the interpreter."""
    if b"/ld-linux" in read(program):
        sys.exit("%s is not static: make static" % program)
    return {"optimfs-%s.data/scripts/optimfs" % version(): read(program)}


def write(directory, files, info, tag):
    """Write a wheel; its name."""
    pure = tag == "any"
    full = "py3-none-" + tag
    base = "optimfs-%s.dist-info/" % version()
    files = dict(files)
    description = read(TOP, "docs", "python.md")
    files[base + "METADATA"] = \
        METADATA.format(version=version(), home=home()).encode() + description
    files[base + "entry_points.txt"] = ENTRY_POINTS.encode()
    files[base + "WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: optimfs\nRoot-Is-Purelib: %s\n"
        "Tag: %s\n" % ("true" if pure else "false", full)).encode()
    info = dict(info, **{"licenses/LICENSE": read(TOP, "LICENSE")})
    files.update((base + k, v) for k, v in info.items())
    record = ""
    for name, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
        record += "%s,sha256=%s,%d\n" % (name, digest.decode().rstrip("="),
                                         len(content))
    files[base + "RECORD"] = (record + base + "RECORD,,\n").encode()
    wheel = "optimfs-%s-%s.whl" % (version(), full)
    with zipfile.ZipFile(os.path.join(directory, wheel), "w",
                         zipfile.ZIP_DEFLATED) as z:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name)  # of 1980: the same each time
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (
                0o100755 if re.search("/(lib|scripts)/", name) else 0o100644) << 16
            z.writestr(entry, content)
    return wheel


def build_wheel(directory, config_settings=None, metadata_directory=None):
    return write(directory, package(), {}, "any")


def build_editable(directory, config_settings=None, metadata_directory=None):
    return write(directory, {"optimfs.pth": (HERE + "\n").encode()}, {},
                 "any")


def build_sdist(directory, config_settings=None):
    raise UnsupportedOperation("make dist makes the source archive")


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    library, directory = sys.argv[1:3]
    files, info, tag = with_library(library, directory)
    for program in sys.argv[3:]:
        files.update(with_program(program))
    print(os.path.join(directory,
                       write(directory, dict(package(), **files), info, tag)))


if __name__ == "__main__":
    main()
