#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Debian packages and the source archive: made, unpacked elsewhere and used.   package.sh BUILD_FOLDER PROGRAM.c
set -euo pipefail
build=$(realpath "$1")
program=$(realpath "$2")
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$root/scripts/package.sh" "$build" "$work/made" > "$work/log" || { cat "$work/log" && exit 1; }

expect() {  # FILE FIELD PATTERN
  local found
  found=$(dpkg-deb -f "$1" "$2")
  [[ $found =~ $3 ]] || { echo "$(basename "$1"): $2 is \"$found\", not like $3" >&2 && exit 1; }
}
library=$(echo "$work"/made/liboutrigger0_*.deb)
development=$(echo "$work"/made/liboutrigger-dev_*.deb)
tools=$(echo "$work"/made/outrigger-tools_*.deb)
expect "$library" Depends 'libc6 .*libhwloc15'
expect "$library" Description 'ZeRO sharding'
expect "$development" Depends 'liboutrigger0 \(= [0-9.]+\)'
expect "$tools" Depends 'liboutrigger0 \(= [0-9.]+\)'
dpkg-deb -e "$library" "$work/control"
grep -q ldconfig "$work/control/triggers"

for package in "$library" "$development" "$tools"; do
  dpkg-deb -x "$package" "$work/system"
done
if grep -rlIF -e "$root/" -e "$build/" -e "$work" "$work/system"; then
  echo "the files above name a folder of the build" >&2
  exit 1
fi
export LD_LIBRARY_PATH=$work/system/usr/lib
# The development package has no library, the other one no name to link by.
dpkg-deb -c "$library" > "$work/contents"
grep -q 'liboutrigger\.so\.0 ->' "$work/contents"
! grep -q 'liboutrigger\.so ->' "$work/contents" || { echo "the library's package has the developer's link" >&2 && exit 1; }
# The packages' prefix is /usr, and pkg-config leaves /usr/include out where it lies there.
read -ra flags <<< "$(PKG_CONFIG_PATH=$work/system/usr/lib/pkgconfig pkg-config --cflags --libs outrigger)"
"${CC:-cc}" -std=c99 -Wall -Werror "$program" "${flags[@]}" -o "$work/program"
"$work/program"
"$work/system/usr/bin/outrigger" --version
echo "Debian packages: used"

archive=("$work"/made/outrigger-*.tar.gz)
if [[ ! -f ${archive[0]} ]]; then
  echo "no source archive: this is no clone"
  exit 0
fi
tar -xzf "${archive[0]}" -C "$work"
cmake -S "$work"/outrigger-* -B "$work/configured" -DOTR_TESTS=OFF > "$work/log" || { cat "$work/log" && exit 1; }
echo "source archive: configured"
