#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a source archive of the last commit, and Debian packages of what a build folder has built.
#   scripts/package.sh FOLDER OUTPUT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(realpath "$1")
mkdir -p "$2"
output=$(realpath "$2")
version=$(sed -n 's/^#define OTR_VERSION_STRING "\(.*\)"$/\1/p' c_api/include/outrigger.h)

if git rev-parse --git-dir > /dev/null 2>&1; then
  # The time of the commit, and gzip without the time of now: the same commit gives the same archive.
  git archive --format=tar --prefix="outrigger-$version/" HEAD | gzip -9 -n > "$output/outrigger-$version.tar.gz"
  echo "$output/outrigger-$version.tar.gz"
else
  echo "no source archive: this is no clone of the repository" >&2
fi
if command -v dpkg-shlibdeps > /dev/null; then
  (cd "$folder" && cpack -G DEB -B "$output" > "$output/cpack.log" 2>&1) || { cat "$output/cpack.log" && exit 1; }
  rm -rf "$output/_CPack_Packages" "$output/cpack.log"
  ls "$output"/*.deb
else
  echo "no Debian packages: there is no dpkg-shlibdeps (Debian: dpkg-dev)" >&2
fi
