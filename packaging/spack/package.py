# SPDX-License-Identifier: Apache-2.0
"""A Spack package: copy it to packages/outrigger of a repository of yours, then spack dev-build outrigger@0.1.0 in a clone."""
from spack.package import CMakePackage, depends_on, version


class Outrigger(CMakePackage):
    """ZeRO sharding and low-precision optimizer states for any training framework, behind a C interface."""

    version("0.1.0")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("boost@1.81:")
    depends_on("fmt")
    depends_on("highway")
    depends_on("hwloc@2:")
    depends_on("nlohmann-json@3.11:")
    depends_on("xxhash")

    def cmake_args(self):
        return [
            self.define("OTR_TESTS", False),
            self.define("OTR_EXAMPLES", False),
            self.define("OTR_UNITY", True),
            self.define("CMAKE_COMPILE_WARNING_AS_ERROR", False),
        ]
