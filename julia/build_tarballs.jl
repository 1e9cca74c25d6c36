# SPDX-License-Identifier: Apache-2.0
# A recipe for BinaryBuilder, which makes a JLL package of the library. Not run yet: BinaryBuilder cannot be had where this was written.
#
#     HIGHWAY_SOURCE=… FMT_SOURCE=… julia julia/build_tarballs.jl --verbose x86_64-linux-gnu      folders with their sources, for which no JLL is known here

using BinaryBuilder

# The clone that this file lies in, and two libraries.
sources = [DirectorySource(abspath(joinpath(@__DIR__, "..")); target = "outrigger"), DirectorySource(ENV["HIGHWAY_SOURCE"]; target = "highway"),
           DirectorySource(ENV["FMT_SOURCE"]; target = "fmt")]

script = raw"""
cd ${WORKSPACE}/srcdir
common="-DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=${prefix} -DCMAKE_TOOLCHAIN_FILE=${CMAKE_TARGET_TOOLCHAIN} -DCMAKE_POSITION_INDEPENDENT_CODE=ON"
cmake -S highway -B build/highway ${common} -DBUILD_TESTING=OFF -DHWY_ENABLE_EXAMPLES=OFF
cmake -S fmt -B build/fmt ${common} -DFMT_TEST=OFF
for library in highway fmt; do
    cmake --build build/${library} --parallel ${nproc}
    cmake --install build/${library}
done
cmake -S outrigger -B build/outrigger ${common} -DOTR_TESTS=OFF -DOTR_EXAMPLES=OFF
cmake --build build/outrigger --parallel ${nproc} --target outrigger outrigger_simulated outrigger_cuda outrigger_nccl
cmake --install build/outrigger
install_license outrigger/LICENSE
"""

platforms = [Platform("x86_64", "linux"; libc = "glibc"), Platform("aarch64", "linux"; libc = "glibc")]

products = [LibraryProduct("liboutrigger", :liboutrigger)]

dependencies = [Dependency("Hwloc_jll"), BuildDependency("boost_jll"), BuildDependency("nlohmann_json_jll")]

build_tarballs(ARGS, "Outrigger", v"0.1.0", sources, script, platforms, products, dependencies; julia_compat = "1.5", preferred_gcc_version = v"12")
