# SPDX-License-Identifier: Apache-2.0
"""A Conan 2 recipe of the clone that it lies in: conan create packaging/conan --build=missing"""
import re
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy
from conan.tools.gnu import PkgConfigDeps

CLONE = Path(__file__).resolve().parents[2]


class Outrigger(ConanFile):
    name = "outrigger"
    license = "Apache-2.0"
    description = "ZeRO sharding and low-precision optimizer states for any training framework, behind a C interface"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"system_dependencies": [True, False]}
    default_options = {"system_dependencies": False, "hwloc/*:shared": True}

    def set_version(self):
        header = (CLONE / "c_api/include/outrigger.h").read_text(encoding="utf-8")
        self.version = re.search(r'OTR_VERSION_STRING "([^"]+)"', header)[1]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "core/*", "kernels/*", "plugins/*", "c_api/*"):
            copy(self, pattern, CLONE, self.export_sources_folder)

    def requirements(self):
        if self.options.system_dependencies:
            return
        self.requires("boost/1.86.0", options={"header_only": True})
        self.requires("fmt/11.0.2")
        self.requires("highway/1.2.0")
        self.requires("hwloc/2.11.1")
        self.requires("nlohmann_json/3.11.3")
        self.requires("xxhash/0.8.2")

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("Outrigger is built on Linux only")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update({"OTR_TESTS": "OFF", "OTR_EXAMPLES": "OFF", "OTR_UNITY": "ON", "CMAKE_COMPILE_WARNING_AS_ERROR": "OFF"})
        toolchain.generate()
        CMakeDeps(self).generate()
        PkgConfigDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        self.cpp_info.libs = ["outrigger"]
        self.cpp_info.set_property("cmake_file_name", "outrigger")
        self.cpp_info.set_property("cmake_target_name", "outrigger::outrigger")
        self.cpp_info.set_property("pkg_config_name", "outrigger")
