#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the build, the tests and the demo need and this machine lacks, and says what it does.
# Never prompts; quick when nothing is missing.
#   scripts/setup.sh              everything but frameworks
#   scripts/setup.sh build        what the library and the tools need: no Python
#   scripts/setup.sh package      those, and what makes Debian packages
#   scripts/setup.sh demo         what the library, the tools and the demo need: no tests, no other languages
#   scripts/setup.sh frameworks   those too: what the adapters are for (PyTorch: 4 GB; JAX), nvcc, and two MPI libraries
#   scripts/setup.sh soak         those and what the long tests need: candle, burn, an older Rust, pandas for Ray Train
#   scripts/setup.sh system       system packages only (the part that needs root)
# OTR_REQUIRE_ALL=1 turns a part that cannot be had into a failure; OTR_PYTHON names the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for part in common apt julia rust java aarch64 python cuda mpi; do
  # shellcheck source=/dev/null
  source "scripts/setup/$part.sh"
done

setup_system() {
  setup_apt
  setup_julia
  setup_rust
}

case ${1:-} in
  build) only build ;;
  package) only build package ;;
  demo) only build demo ;;
esac
if [[ ${1:-} == system ]]; then
  setup_system # writes nothing into the tree: it may run as another user than the build
else
  mkdir -p build
  exec 9> build/.setup.lock # two set-ups of one tree take turns
  flock 9
  if [[ ${1:-} =~ ^(build|package|demo)$ ]]; then
    setup_apt
  else
    setup_system
    setup_crates
    setup_maven
    setup_julia_unwind
    setup_aarch64
  fi
  [[ ${1:-} =~ ^(build|package)$ ]] || setup_python
  [[ ${1:-} != soak ]] || setup_rust_soak
  if [[ ${1:-} == frameworks || ${1:-} == soak ]]; then
    for part in $FRAMEWORKS; do setup_pip "$part"; done
    [[ $1 != soak ]] || setup_pip "$LONG"
    setup_cuda
    setup_mpi
  fi
fi
finish
