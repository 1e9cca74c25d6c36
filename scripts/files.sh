# SPDX-License-Identifier: Apache-2.0
# project_files PATTERN…: the project's files that match, ignored and deleted ones left out.
# shellcheck shell=bash
project_files() {
  git ls-files -z --cached --others --exclude-standard -- "$@" |
    while IFS= read -r -d '' file; do
      [[ ! -f $file ]] || printf '%s\0' "$file"
    done
}

# What clang-format looks after. A frozen header stays as it was released.
formatted_files() {
  project_files '*.c' '*.cpp' '*.h' '*.cu' '*.cuh' ':!tests/abi/otr_*.h'
}
