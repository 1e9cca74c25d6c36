# SPDX-License-Identifier: Apache-2.0
# nvcc, for the CUDA kernels; it needs no GPU. In a folder of its own: PyTorch's environment holds other versions of its headers.
# shellcheck shell=bash

CUDA_ROOT=build/cuda

setup_cuda() {
  local wanted stamp=$CUDA_ROOT/.outrigger
  wanted=$(listed cuda | tr '\n' ' ')
  [[ -x $VENV/bin/python ]] || return 0 # named as a skip already
  if [[ -f $stamp && $(< "$stamp") == "$wanted" ]]; then
    return
  fi
  installing "pip into $CUDA_ROOT: $wanted"
  rm -rf "$CUDA_ROOT"
  # shellcheck disable=SC2086
  if "$VENV/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --no-deps --target "$CUDA_ROOT" $wanted; then
    printf '%s\n' "$wanted" > "$stamp"
  else
    skip cuda "pip could not install $wanted"
  fi
}
