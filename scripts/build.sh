#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures and builds the tree, or these targets of it, for which no test is configured.
#   scripts/build.sh FOLDER [SANITIZE [TARGET…]]
# Sources are compiled in groups. Who edits one file at a time is quicker with OTR_UNITY=OFF.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1
sanitize=${2:-}
targets=("${@:3}")

options=(-DOTR_SANITIZE="$sanitize" -DOTR_UNITY="${OTR_UNITY:-ON}" -DOTR_FAST="${OTR_FAST:-OFF}"
  -DOTR_PCH="${OTR_PCH:-OFF}")
if [[ -n $sanitize ]]; then
  options+=(-DCMAKE_BUILD_TYPE=Debug) # assertions on, little optimisation: quick to compile
else
  options+=(-DCMAKE_BUILD_TYPE=Release)
fi
# A folder that has tests keeps them.
tests=OFF
if [[ ${#targets[@]} -eq 0 ]] || grep -qs '^OTR_TESTS:BOOL=ON$' "$folder/CMakeCache.txt"; then
  tests=ON
fi
options+=(-DOTR_TESTS="$tests")
if [[ $tests == ON && -x build/venv/bin/python ]]; then
  options+=(-DPython3_EXECUTABLE="$PWD/build/venv/bin/python" -DOTR_TEST_PYTHON="$PWD/build/venv/bin/python")
fi
source scripts/ccache.sh

# A second configuration of the same folder says little; the first one shows what was found.
log_level=STATUS
[[ -f $folder/build.ninja ]] && log_level=WARNING
cmake -S . -B "$folder" -G Ninja --log-level="$log_level" "${options[@]}" "${launchers[@]}"
cmake --build "$folder" ${targets[@]+--target "${targets[@]}"}
