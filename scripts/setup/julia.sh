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
