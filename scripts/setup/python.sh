# SPDX-License-Identifier: Apache-2.0
# Python packages, in a virtual environment of the build folder; the system's Python stays as it is.
# shellcheck shell=bash

VENV=build/venv
FRAMEWORKS="torch jax" # parts of the list that the adapters' tests want; big

# Everything but frameworks.
setup_python() {
  local python=${OTR_PYTHON:-/usr/bin/python3} wanted stamp=$VENV/.outrigger packages
  packages=$(awk -v frameworks=" $FRAMEWORKS " '$1 == "pip" && !index(frameworks, " " $2 " ") { printf "%s ", $3 }' "$DEPENDENCIES")
  [[ -x $python ]] || python=$(command -v python3 || true)
  if [[ -z $python ]]; then
    skip python "no python3"
    return
  fi
  wanted="$("$python" --version) $packages"
  if [[ -x $VENV/bin/python && -f $stamp && $(< "$stamp") == "$wanted" ]]; then
    return
  fi
  installing "pip into $VENV: $packages"
  # shellcheck disable=SC2086
  if "$python" -m venv --clear "$VENV" && pip_install $packages; then
    printf '%s\n' "$wanted" > "$stamp"
  else
    skip python "the virtual environment could not be filled; see the message above"
  fi
}

pip_install() { "$VENV/bin/python" -m pip install --quiet --no-input --disable-pip-version-check "$@"; }

# A framework that an adapter is for: setup_framework PART.
setup_framework() {
  local part=$1 wanted stamp=$VENV/.outrigger-$1
  wanted=$(listed pip "$part" | tr '\n' ' ')
  [[ -x $VENV/bin/python ]] || return 0 # named as a skip already
  if [[ -f $stamp && $(< "$stamp") == "$wanted" ]]; then
    return
  fi
  installing "pip into $VENV: $wanted"
  # shellcheck disable=SC2086
  if pip_install $wanted; then
    printf '%s\n' "$wanted" > "$stamp"
  else
    skip "$part" "pip could not install $wanted"
  fi
}
