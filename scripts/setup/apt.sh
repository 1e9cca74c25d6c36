# SPDX-License-Identifier: Apache-2.0
# Debian packages.
# shellcheck shell=bash

# missing_packages NAME…: those that are not installed.
missing_packages() {
  [[ $# -gt 0 ]] || return 0
  local installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2> /dev/null |
    awk '$2 == "installed" { print $1 }' || true)
  comm -23 <(printf '%s\n' "$@" | sort -u) <(sort -u <<< "$installed")
}

setup_apt() {
  if ! command -v apt-get > /dev/null; then
    say "this machine has no apt; these Debian packages, or their like, must be there already:"
    # shellcheck disable=SC2046
    say $(listed apt)
    return
  fi
  local missing
  # shellcheck disable=SC2046
  mapfile -t missing < <(missing_packages $(listed apt))
  [[ ${#missing[@]} -gt 0 ]] || return 0

  if may_install; then
    installing "apt: ${missing[*]}"
    apt_get update || say "apt-get update reported errors; going on with the lists there are"
    # One package that cannot be had must not keep the others out.
    apt_install "${missing[@]}" || install_by_part
  fi
  report_missing_parts
}

install_by_part() {
  local part missing
  for part in $(parts_of apt); do
    # shellcheck disable=SC2046
    mapfile -t missing < <(missing_packages $(listed apt "$part"))
    [[ ${#missing[@]} -eq 0 ]] || apt_install "${missing[@]}" || true
  done
}

report_missing_parts() {
  local part missing remedy="see apt's message above"
  may_install || remedy="run: sudo bash scripts/setup.sh system"
  for part in $(parts_of apt); do
    # shellcheck disable=SC2046
    mapfile -t missing < <(missing_packages $(listed apt "$part"))
    [[ ${#missing[@]} -gt 0 ]] || continue
    case $part in
      build | demo | test) fail "missing ${missing[*]}; $remedy" ;;
      *) skip "$part" "missing ${missing[*]}; $remedy" ;;
    esac
  done
}
