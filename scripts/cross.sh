#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the kernels and their tests for aarch64 and runs them under emulation: NEON must be what is dispatched
# to, with the oracle's bits, and with those that this machine's kernels_test prints a digest of, where it is given.
#   scripts/cross.sh [FOLDER [PROGRAM [KERNELS_TEST]]]     PROGRAM: kernels_test, or kernels_digest, which has the digest alone
# Exit 77 where a tool is missing: a skip; a failure under OTR_REQUIRE_ALL=1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-build/aarch64}
program=${2:-kernels_test}
own_test=${3:-}

missing=()
for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v "$tool" > /dev/null || missing+=("$tool")
done
for part in /usr/src/googletest build/aarch64-root; do
  [[ -d $part ]] || missing+=("$part")
done
if [[ ${#missing[@]} -gt 0 ]]; then
  echo "cross: missing ${missing[*]} (make setup says why)"
  [[ ${OTR_REQUIRE_ALL:-0} != 1 ]] || exit 1
  exit 77
fi

source scripts/ccache.sh
cmake -S . -B "$folder" -G Ninja --log-level=WARNING --no-warn-unused-cli -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake \
  -DCMAKE_BUILD_TYPE=Release -DOTR_KERNELS_ONLY=ON "${launchers[@]}"
cmake --build "$folder" --parallel "${OTR_JOBS:-$(nproc)}" --target "$program"

# Where NEON cannot be had, its name in OTR_SIMD is an error that the tests of the dispatch report. Those of a
# process of their own stay out: the system cannot start one of another processor.
OTR_SIMD=NEON GTEST_FILTER='-DispatchEnvironment.*' \
  ctest --test-dir "$folder" -R "^$program\$" --no-tests=error --output-on-failure --no-label-summary

digest='s/^digest: //p'
there=$(sed -n "$digest" "$folder/Testing/Temporary/LastTest.log")
here=$there
[[ -z $own_test ]] || here=$("$own_test" --gtest_filter='DigestTest.*' | sed -n "$digest")
if [[ -z $there || $here != "$there" ]]; then
  echo "cross: the digest of the kernels' results is '$there' on aarch64 and '$here' here" >&2
  exit 1
fi
echo "cross: NEON has the bits of the oracle, digest $there${own_test:+, as here}"
