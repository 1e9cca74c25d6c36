#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How fast a GPU is with what scripts/gpu/pack.sh has put into a folder, and PyTorch beside it; a line of JSON a row.
#   scripts/gpu/bench.sh FOLDER [MILLIONS OF ELEMENTS]
# Ours, PyTorch's, and both again: what differs between two of a kind is noise.
set -euo pipefail
folder=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
millions=${2:-64}
unset OTR_CUDA_DRIVER
export LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} OTR_PLUGIN_PATH=$folder/lib
source scripts/gpu/python.sh
find_python "$folder"
for _ in 1 2; do
  "$folder/bin/bench_gpu_kernels" "$millions"
  if [[ -z $python_missing ]]; then
    "$python" scripts/gpu/torch_peers.py "$millions"
  else
    echo "{\"row\": \"PyTorch\", \"not measured\": \"$python_missing\"}"
  fi
done
[[ -n $python_missing ]] || "$python" scripts/gpu/training.py
