# SPDX-License-Identifier: Apache-2.0
# Third-party parts, each an interface target; all private to the shared library.
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
add_library(otr_dep_highway INTERFACE)
target_link_libraries(otr_dep_highway INTERFACE PkgConfig::HWY)
if(OTR_KERNELS_ONLY)
  return()
endif()

find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED)  # older Boost.Interprocess dies with SIGBUS on a full /dev/shm
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt REQUIRED)

add_library(otr_dep_core INTERFACE)
target_link_libraries(otr_dep_core INTERFACE Threads::Threads Boost::headers PkgConfig::HWLOC
  nlohmann_json::nlohmann_json fmt::fmt-header-only)
target_compile_definitions(otr_dep_core INTERFACE XXH_INLINE_ALL)
