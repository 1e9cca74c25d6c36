#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures what docs/scaling.md stands on, and writes its tables and pictures.
#   scripts/scale/scale.sh [--rounds N] [--commit-gib G] [PART…]     parts: planner, same_host, offloaded; default all
# Its programs go to build/scale. Keep the machine idle meanwhile: same_host is timed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
programs=build/scale/programs

source scripts/ccache.sh
cmake -S . -B "$programs" -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=Release \
  -DOTR_UNITY=ON -DOTR_BENCH=ON -DOTR_TESTS=OFF -DOTR_EXAMPLES=OFF "${launchers[@]}"
cmake --build "$programs" --target scale_programs

build/venv/bin/python scripts/scale/scale.py --programs "$programs/tests/bench" "$@"
