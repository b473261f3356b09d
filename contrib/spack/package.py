# SPDX-License-Identifier: Apache-2.0
"""Recipe for Spack: copy it to packages/optimfs/package.py of a repository and
use "spack dev-build optimfs@0.1.0" in the sources. To build from the archive
that "make dist" makes, add its address: url = "file:///..."."""
from spack.package import *


class Optimfs(AutotoolsPackage, CudaPackage):
    """Mount a sharded training checkpoint and read it as files."""

    license("Apache-2.0")

    version("0.1.0")

    variant("fuse", default=True, description="Mount, with libfuse")
    variant("http", default=True, description="Servers, by libcurl")
    variant("mpi", default=False, description="Several machines, by Open MPI")
    variant("nccl", default=False, when="+cuda+mpi",
            description="Gather through GPUs")
    variant("python", default=True, description="The Python package")

    depends_on("c", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("libdeflate")
    depends_on("xxhash@0.8:")
    depends_on("zlib-api")
    depends_on("libmicrohttpd@0.9.71:")
    depends_on("zstd@1.4:")
    depends_on("libfuse@3.10:", when="+fuse")
    depends_on("curl@7.85:", when="+http")
    depends_on("expat", when="+http")
    depends_on("openmpi", when="+mpi")
    depends_on("nccl", when="+nccl")

    extends("python@3.9:", when="+python")

    def configure_args(self):
        args = [
            "--with-zstd",
            "--with-libdeflate",
            "--with-mounthelperdir=%s" % self.prefix.sbin,
        ]
        args += self.with_or_without("fuse")
        args += self.with_or_without("http")
        args += self.with_or_without("mpi")
        args += self.with_or_without("cuda", activation_value="prefix")
        args += self.with_or_without(
            "nccl", activation_value=lambda _: self.spec["nccl"].prefix)
        return args

    @run_after("install")
    def install_python(self):
        if self.spec.satisfies("+python"):
            pip("install", "--no-deps", "--prefix=%s" % self.prefix,
                "./python")

    def setup_run_environment(self, env):
        env.set("OPTIMFS_LIBRARY",
                join_path(self.prefix.lib, "liboptimfs.so.0"))
