#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats the C and C++ sources in place, or with --check only names those that differ.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/files.sh
clang_format=build/venv/bin/clang-format
if [[ ! -x $clang_format ]]; then
  echo "format: skipped, no $clang_format (make setup says why)"
  [[ ${OTR_REQUIRE_ALL:-0} != 1 ]]
  exit
fi
if [[ ${1:-} == --check ]]; then
  formatted_files | xargs -0 -r -n 16 -P "$(nproc)" "$clang_format" --dry-run -Werror
  echo "format: clean"
else
  formatted_files | xargs -0 -r -n 16 -P "$(nproc)" "$clang_format" -i
fi
