#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts what a GPU's tests and benchmarks need into one folder that another machine can run: programs, the library and
# its plugins, the Python package, and the shared libraries that a fresh machine lacks.
#   scripts/gpu/pack.sh BUILD FOLDER      BUILD: a built tree (scripts/build.sh); FOLDER: made anew
# FOLDER.tar.xz is the same as one file, to be carried.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$1
folder=$2
rm -rf "$folder" "$folder.tar.xz"
mkdir -p "$folder"/{bin,lib,simulated,python,tests,source}
cp "$build/bindings/lowlevel_wrap.c" c_api/include/*.h "$folder/source/"
cp tests/gpu/*.py "$folder/tests/"

programs=(otr_test_c_api_device otr_test_c_api_offload otr_test_c_api_ahead otr_test_c_api_ratio otr_test_c_api_away
  otr_test_c_api_checkpoint_device engine_matrix_test otr_test_plugins_cuda plugins_cuda_kernels
  otr_test_plugins_nccl bench_gpu_kernels)
for program in "${programs[@]}"; do
  found=$(find "$build" -type f -name "$program" -perm -1 -print -quit)
  [[ -n $found ]] || { echo "pack: $program is not built in $build" >&2; exit 1; }
  strip -o "$folder/bin/$program" "$found"
done
strip -o "$folder/lib/liboutrigger.so.0" "$build/liboutrigger.so.0"
for plugin in cuda nccl; do strip -o "$folder/lib/liboutrigger_$plugin.so" "$build/liboutrigger_$plugin.so"; done
strip -o "$folder/simulated/liboutrigger_simulated.so" "$build/tests/plugins/mocked/liboutrigger_simulated.so"
for program in "$folder"/bin/* "$folder"/lib/*; do ldd "$program"; done |
  awk '/=> \// && /libhwloc|libhwy|libudev|libltdl/ { print $3 }' | sort -u | xargs -I{} cp -L {} "$folder/lib/"
cp -rL "$build/python/outrigger" "$folder/python/"
find "$folder/python" -name __pycache__ -prune -exec rm -r {} +
find "$folder/python" -name '*.so*' -exec strip {} \;
tar -C "$(dirname "$folder")" -c "$(basename "$folder")" | xz -T0 -2 > "$folder.tar.xz"
du -sh "$folder" "$folder.tar.xz"
