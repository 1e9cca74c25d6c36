#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs into a staging folder, moves it elsewhere, and builds C programs against it through CMake and
# through pkg-config.   install.sh BUILD_FOLDER PROGRAM.c… QUICKSTART.c
set -euo pipefail
build=$(realpath "$1")
shift
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

DESTDIR=$work/stage cmake --install "$build" --prefix /usr/local > "$work/install.log"
mv "$work/stage/usr/local" "$work/moved"
rm -rf "$work/stage"

# Nothing that was installed knows where it was built or staged.
if grep -rlIF -e "$root/" -e "$build/" -e "$work" "$work/moved"; then
  echo "the files above name a folder of the build" >&2
  exit 1
fi

cat > "$work/CMakeLists.txt" << 'EOF'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
set(CMAKE_C_STANDARD 99)
find_package(outrigger 0.1 REQUIRED CONFIG)
add_executable(consumer ${SOURCE})
target_link_libraries(consumer PRIVATE outrigger::outrigger m)
EOF
PKG_CONFIG_PATH=$(dirname "$(find "$work/moved" -name outrigger.pc)")
export PKG_CONFIG_PATH

for source in "$@"; do
  cmake -S "$work" -B "$work/cmake" -DSOURCE="$source" -DCMAKE_PREFIX_PATH="$work/moved" > "$work/cmake.log" ||
    { cat "$work/cmake.log" && exit 1; }
  cmake --build "$work/cmake" > "$work/cmake.log" || { cat "$work/cmake.log" && exit 1; }
  "$work/cmake/consumer"

  read -ra flags <<< "$(pkg-config --cflags --libs outrigger)"
  "${CC:-cc}" -std=c99 -Wall -Werror "$source" "${flags[@]}" -lm -o "$work/by_pkg_config"
  LD_LIBRARY_PATH=$(pkg-config --variable=libdir outrigger) "$work/by_pkg_config"
  rm -rf "$work/cmake" "$work/by_pkg_config"
  echo "$(basename "$source"): built and run through CMake and pkg-config"
done

# The quickstart computes in float32; with another compute dtype it says so and computes nothing.
sed 's/{\\"stage\\": 3}}/{\\"stage\\": 3}, \\"bf16\\": {\\"enabled\\": true}}/' "${@: -1}" > "$work/bf16.c"
grep -qF 'bf16\"' "$work/bf16.c"
"${CC:-cc}" -std=c99 -Wall -Werror "$work/bf16.c" "${flags[@]}" -lm -o "$work/bf16"
if LD_LIBRARY_PATH=$(pkg-config --variable=libdir outrigger) "$work/bf16" 2> "$work/bf16.log"; then
  echo "the quickstart goes on with weights that are not float32" >&2
  exit 1
fi
grep -q "not float32" "$work/bf16.log"
