#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks form: clang-format, clang-tidy, shellcheck, ruff. What a tool objects to is a failure; a tool
# that is not there is named, and a failure under OTR_REQUIRE_ALL=1.   scripts/lint.sh [BUILD_FOLDER]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/files.sh
folder=${1:-}
failed=()

# check NAME TOOL COMMAND…: run the command if the tool is there.
check() {
  local name=$1 tool=$2
  shift 2
  if ! command -v "$tool" > /dev/null; then
    echo "lint: $name skipped, no $tool (make setup says why)"
    [[ ${OTR_REQUIRE_ALL:-0} != 1 ]] || failed+=("$name")
  elif ! "$@"; then
    failed+=("$name")
  fi
}

shell_scripts() { project_files '*.sh' '.ci/run' | xargs -0 -r shellcheck --external-sources; }
python_files() { project_files '*.py' | xargs -0 -r build/venv/bin/ruff check --quiet; }

check clang-format build/venv/bin/clang-format scripts/format.sh --check
check shellcheck shellcheck shell_scripts
check ruff build/venv/bin/ruff python_files
# clang-tidy takes minutes: without a build folder only the form is checked.
if [[ -n $folder ]]; then
  cmake -S . -B "$folder" -G Ninja --log-level=WARNING -DOTR_UNITY=OFF # one command for each source
  check clang-tidy clang-tidy-19 python3 scripts/tidy.py "$folder"
fi

if [[ ${#failed[@]} -gt 0 ]]; then
  echo "lint: failed: ${failed[*]}"
  exit 1
fi
echo "lint: clean"
