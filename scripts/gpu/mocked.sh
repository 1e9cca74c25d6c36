#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pack.sh and test.sh on a machine without a GPU: with the mock driver as the system's.
#   scripts/gpu/mocked.sh BUILD DRIVER FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
scripts/gpu/pack.sh "$1" "$3" > /dev/null
mkdir -p "$3/driver"
ln -sf "$(realpath "$2")" "$3/driver/libcuda.so.1"
LD_LIBRARY_PATH=$3/driver OTR_JOBS=2 scripts/gpu/test.sh "$3"
