#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares this tree with an earlier commit of itself: what make bench measures of ours, of both, interleaved.
#   scripts/bench/versions.sh COMMIT [--minutes M] [--starts N] [--rows TEXT]
# Prints the times of the earlier one over ours; fails where ours is slower by more than the noise. PyTorch's rows need it in
# build/venv (make frameworks).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
commit=$(git rev-parse --short=12 "${1:?an earlier commit}^{commit}")
shift
source scripts/ccache.sh

# The benchmark programs of a tree, and its Python package, which comes with the tests.
build() {
  cmake -S "$1" -B "$2" -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=Release -DOTR_BENCH=ON -DOTR_TESTS=ON -DOTR_UNITY=ON \
    -DOTR_EXAMPLES=OFF -DPython3_EXECUTABLE="$PWD/build/venv/bin/python" "${launchers[@]}"
  cmake --build "$2" --target bench_programs outrigger_python
}

folder=build/bench/versions
old=$folder/$commit
if [[ ! -d $old ]]; then
  mkdir -p "$folder"
  git clone --quiet --shared --no-checkout . "$old"
  git -C "$old" checkout --quiet "$commit"
fi
build "$old" "$old/build/bench"
build . "$folder/new"
build/venv/bin/python scripts/bench/versions.py --old "$old/build/bench" --new "$folder/new" --output "$folder" "$@"
