# SPDX-License-Identifier: Apache-2.0
# Julia. Debian 12 has no such package; its predecessor has, and that one runs on Debian 12 too. So
# where apt knows no Julia, the suite "bullseye" of the machine's own Debian source becomes a further
# source, pinned so low that nothing else comes from it.
# shellcheck shell=bash

JULIA_SOURCE=/etc/apt/sources.list.d/outrigger-julia.sources
JULIA_PIN=/etc/apt/preferences.d/outrigger-julia

setup_julia() {
  ! command -v julia > /dev/null || return 0
  if ! command -v apt-get > /dev/null; then
    skip julia "this machine has no apt; install Julia 1.5 or newer and put it on PATH"
    return
  fi
  if ! may_install; then
    skip julia "run: sudo bash scripts/setup.sh system"
    return
  fi
  installing "apt: julia"
  if ! julia_candidate && ! add_julia_source; then
    skip julia "no package of this system, and no Debian 12 source to find one beside"
    return
  fi
  if ! apt_install julia || ! julia -e 'exit(0)' 2> /dev/null; then
    remove_julia_source
    skip julia "the package does not install or does not start here"
  fi
}

julia_candidate() { [[ $(apt-cache policy julia 2> /dev/null) =~ Candidate:\ [0-9] ]]; }

remove_julia_source() { as_root rm -f "$JULIA_SOURCE" "$JULIA_PIN"; }

add_julia_source() {
  local uri key
  uri=$(apt-get indextargets --format "\$(RELEASE) \$(COMPONENT) \$(REPO_URI)" 'Created-By: Packages' |
    awk '$1 == "bookworm" && $2 == "main" { print $3; exit }')
  [[ -n $uri ]] || return 1
  key=$(awk '$1 == "Signed-By:" && $2 ~ /debian/ { print $2; exit }' /etc/apt/sources.list.d/*.sources 2> /dev/null || true)
  : "${key:=/usr/share/keyrings/debian-archive-keyring.gpg}"
  say "adding the suite bullseye of $uri, at priority 50, for julia: $JULIA_SOURCE"
  printf 'Types: deb\nURIs: %s\nSuites: bullseye\nComponents: main\nSigned-By: %s\n' "$uri" "$key" |
    as_root tee "$JULIA_SOURCE" > /dev/null
  printf 'Package: *\nPin: release n=bullseye\nPin-Priority: 50\n' | as_root tee "$JULIA_PIN" > /dev/null
  apt_get update || true
  if ! julia_candidate; then
    remove_julia_source
    return 1
  fi
}

# Julia 1.5 of bullseye beside Debian 12's libunwind dies in the first exception it throws. The libunwind of
# its own suite goes into the build folder, with a wrapper that the tests prefer; the system keeps its own.
JULIA_WRAPPED=build/julia

# In a subshell: bash would report the crash of a child of its own.
throws_well() { ("$1" --startup-file=no -e 'try sqrt(-1.0) catch end') > /dev/null 2>&1; }

setup_julia_unwind() {
  local julia
  julia=$(command -v julia) || return 0
  ! throws_well "$julia" 2> /dev/null || return 0
  ! throws_well "$JULIA_WRAPPED/julia" 2> /dev/null || return 0
  installing "apt-get download: libunwind8 of bullseye into $JULIA_WRAPPED, for julia alone"
  rm -rf "$JULIA_WRAPPED"
  mkdir -p "$JULIA_WRAPPED"
  if ! wrap_julia "$julia" || ! throws_well "$JULIA_WRAPPED/julia" 2> /dev/null; then
    skip julia "it dies when it throws an exception, and the libunwind it was built with could not be had"
  fi
}

wrap_julia() {
  local library
  (cd "$JULIA_WRAPPED" && apt-get -qq -o APT::Sandbox::User=root download libunwind8/bullseye) || return 1
  dpkg-deb -x "$JULIA_WRAPPED"/libunwind8_*.deb "$JULIA_WRAPPED" || return 1
  library=$(find "$PWD/$JULIA_WRAPPED" -name libunwind.so.8 | head -n 1)
  [[ -n $library ]] || return 1
  # shellcheck disable=SC2016
  printf '#!/bin/sh\nLD_LIBRARY_PATH="%s:${LD_LIBRARY_PATH:-}" exec %s "$@"\n' "${library%/*}" "$1" > "$JULIA_WRAPPED/julia"
  chmod +x "$JULIA_WRAPPED/julia"
}
