#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# conda build's part for liboutrigger.
set -euo pipefail
# shellcheck disable=SC2086 # CMAKE_ARGS is a list of words of the compiler's package
cmake -S . -B build/conda -G Ninja ${CMAKE_ARGS:-} -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" \
  -DCMAKE_INSTALL_LIBDIR=lib -DOTR_TESTS=OFF -DOTR_EXAMPLES=OFF -DOTR_UNITY=ON -DCMAKE_COMPILE_WARNING_AS_ERROR=OFF
cmake --build build/conda --target outrigger outrigger_simulated outrigger_cuda outrigger_nccl
cmake --install build/conda
