# SPDX-License-Identifier: Apache-2.0
# What the parts of scripts/setup.sh share.
# shellcheck shell=bash

DEPENDENCIES=scripts/setup/dependencies.txt
WANTED=""             # parts to set up; empty: all
declare -A SKIPPED=() # part → reason
CHANGED=0             # whether anything was installed

say() { printf 'setup: %s\n' "$*"; }

fail() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

# installing TOOL: NAME…: say it, and remember that something changed.
installing() {
  CHANGED=1
  say "installing with $*"
}

# skip PART REASON: go on without an optional part; finish() names it.
skip() { SKIPPED[$1]="${SKIPPED[$1]:+${SKIPPED[$1]}; }$2"; }

# only PART…: sets up these alone.
only() { WANTED=$*; }

# listed KIND [PART]: the names in the list of dependencies, of what is wanted.
listed() { wanted_lines "$1" | awk -v part="${2:-}" 'part == "" || $2 == part { print $3 }'; }

# parts_of KIND: the wanted parts that have names of this kind.
parts_of() { wanted_lines "$1" | awk '!seen[$2]++ { print $2 }'; }

wanted_lines() {
  awk -v kind="$1" -v wanted=" $WANTED " '$1 == kind && (wanted == "  " || index(wanted, " " $2 " "))' "$DEPENDENCIES"
}

# as_root COMMAND…: run it with the rights that may_install found.
as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  else
    sudo -n "$@"
  fi
}

may_install() { [[ $(id -u) == 0 ]] || sudo -n true 2> /dev/null; }

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 "$@" < /dev/null
}

apt_install() { apt_get install -y --no-install-recommends "$@" > /dev/null; }

finish() {
  local part
  for part in "${!SKIPPED[@]}"; do
    say "skipped: $part (${SKIPPED[$part]})"
  done
  if [[ ${#SKIPPED[@]} -gt 0 && ${OTR_REQUIRE_ALL:-0} == 1 ]]; then
    fail "OTR_REQUIRE_ALL=1 and ${#SKIPPED[@]} part(s) are missing: ${!SKIPPED[*]}"
  fi
  if [[ $CHANGED == 0 ]]; then
    say "ready, nothing was missing"
  else
    say "ready"
  fi
}
