# SPDX-License-Identifier: Apache-2.0
# Highway for aarch64, for the kernels' tests under emulation. It is unpacked into the build folder: a foreign
# architecture of the system would double what each apt-get update fetches, and hold its own libraries to one version.
# shellcheck shell=bash

AARCH64_ROOT=build/aarch64-root

setup_aarch64() {
  [[ ! -d $AARCH64_ROOT ]] || return 0
  if ! command -v apt-get > /dev/null; then
    skip aarch64 "this machine has no apt; unpack Highway for aarch64 into $AARCH64_ROOT"
    return
  fi
  local names work=$AARCH64_ROOT.new
  mapfile -t names < <(listed arm64)
  installing "apt-get into $AARCH64_ROOT, for tests alone: ${names[*]} of arm64"
  rm -rf "$work"
  if fetch_arm64 "$work" "${names[@]}" && unpack_arm64 "$work"; then
    mv "$work/root" "$AARCH64_ROOT"
  else
    skip aarch64 "apt has no ${names[*]} of arm64; see its message above"
  fi
  rm -rf "$work"
}

# With the system's sources and keys but a state of its own, in which arm64 is the only architecture. Needs no root.
fetch_arm64() {
  local work=$PWD/$1 options
  shift
  mkdir -p "$work"/{state,cache}
  : > "$work/state/status"
  options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
    -o "Dir::State=$work/state" -o "Dir::State::status=$work/state/status" -o "Dir::Cache=$work/cache"
    -o Acquire::Languages=none -o Debug::NoLocking=1)
  apt-get "${options[@]}" update < /dev/null || true # one source without arm64 must not keep out the others
  apt-get "${options[@]}" install --download-only -y --no-install-recommends "$@" < /dev/null
}

# Highway alone: the cross compiler brings the C and C++ libraries that the others hold.
unpack_arm64() {
  local package found=1
  for package in "$1"/cache/archives/libhwy*.deb; do
    dpkg-deb -x "$package" "$1/root" || return 1
    found=0
  done
  return $found
}
