#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Outrigger inside of another project, by add_subdirectory and by FetchContent: configured, and with "build" built and run.
#   subproject.sh PROGRAM.c [build]
set -euo pipefail
program=$(realpath "$1")
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source "$root/scripts/ccache.sh"

for how in add_subdirectory FetchContent; do
  mkdir "$work/$how"
  {
    echo 'cmake_minimum_required(VERSION 3.25)'
    echo 'project(consumer LANGUAGES C CXX)'
    if [[ $how == add_subdirectory ]]; then
      echo "add_subdirectory($root outrigger)"
    else
      echo 'include(FetchContent)'
      echo "FetchContent_Declare(outrigger SOURCE_DIR $root)"
      echo 'FetchContent_MakeAvailable(outrigger)'
    fi
    echo "add_executable(consumer $program)"
    echo 'target_link_libraries(consumer PRIVATE outrigger::outrigger)'
    echo 'install(TARGETS consumer)'
    # What was built for Outrigger alone is none of the project's.
    echo 'if(TARGET outrigger_tool OR TARGET quickstart OR OTR_TESTS)'
    echo '  message(FATAL_ERROR "examples, tools or tests of Outrigger are in this project")'
    echo 'endif()'
    echo 'if(CMAKE_COMPILE_WARNING_AS_ERROR OR CMAKE_CXX_STANDARD)'
    echo '  message(FATAL_ERROR "Outrigger has changed this project")'
    echo 'endif()'
  } > "$work/$how/CMakeLists.txt"
  cmake -S "$work/$how" -B "$work/$how/build" -G Ninja "${launchers[@]}" -DOTR_UNITY=ON > "$work/log" || { cat "$work/log" && exit 1; }
  ! grep -q "include/outrigger.h\|liboutrigger" "$work/$how/build"/outrigger/cmake_install.cmake 2> /dev/null ||
    { echo "the project's installation has Outrigger in it" >&2 && exit 1; }
  echo "$how: configured"
  [[ ${2:-} == build ]] || continue
  cmake --build "$work/$how/build" --target consumer > "$work/log" || { tail -n 30 "$work/log" && exit 1; }
  "$work/$how/build/consumer"
  echo "$how: built and run"
done
