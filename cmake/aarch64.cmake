# SPDX-License-Identifier: Apache-2.0
# Toolchain: compiles for aarch64 on another Linux and runs the result under qemu's emulation of one process.
# Highway for that processor lies in build/aarch64-root, where scripts/setup.sh unpacks it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# A processor without SVE and half-precision arithmetic: what uses them by mistake dies here.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu cortex-a72 -L /usr/aarch64-linux-gnu)
if(DEFINED ENV{OTR_AARCH64_ROOT})
  set(otr_root $ENV{OTR_AARCH64_ROOT})
else()
  get_filename_component(otr_root ${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-root ABSOLUTE)
endif()
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${otr_root})
set(ENV{PKG_CONFIG_LIBDIR} ${otr_root}/usr/lib/aarch64-linux-gnu/pkgconfig)
# Of more than Highway, where it is there: scripts/wheel_aarch64.sh.
if(EXISTS ${otr_root}/usr/include/aarch64-linux-gnu)
  set(CMAKE_CXX_FLAGS_INIT "-isystem ${otr_root}/usr/include/aarch64-linux-gnu")
  # Python's headers name the folder above, too.
  set(CMAKE_C_FLAGS_INIT "${CMAKE_CXX_FLAGS_INIT} -idirafter ${otr_root}/usr/include")
  foreach(kind SHARED MODULE EXE)
    set(CMAKE_${kind}_LINKER_FLAGS_INIT "-Wl,-rpath-link,${otr_root}/usr/lib/aarch64-linux-gnu:${otr_root}/lib/aarch64-linux-gnu")
  endforeach()
endif()
