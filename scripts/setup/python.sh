# SPDX-License-Identifier: Apache-2.0
# Python packages, in a virtual environment of the build folder; the system's Python stays as it is.
# shellcheck shell=bash

VENV=build/venv
FRAMEWORKS="torch ray jax watch" # parts of the list that the adapters' tests want; big
LONG=ray_train                   # and their long tests

# Everything but these.
setup_python() {
  local part
  setup_venv || return 0
  for part in $(parts_of pip); do
    [[ " $FRAMEWORKS $LONG " == *" $part "* ]] || setup_pip "$part"
  done
}

setup_venv() {
  local python=${OTR_PYTHON:-/usr/bin/python3} version stamp=$VENV/.outrigger
  [[ -x $python ]] || python=$(command -v python3 || true)
  if [[ -z $python ]]; then
    skip python "no python3"
    return 1
  fi
  version=$("$python" --version)
  if [[ -x $VENV/bin/python && -f $stamp && $(< "$stamp") == "$version" ]]; then
    return
  fi
  if "$python" -m venv --clear "$VENV"; then
    printf '%s\n' "$version" > "$stamp"
  else
    skip python "the virtual environment could not be made; see the message above"
    return 1
  fi
}

# setup_pip PART: its packages, once.
setup_pip() {
  local part=$1 wanted stamp=$VENV/.outrigger-$1
  wanted=$(listed pip "$part" | tr '\n' ' ')
  [[ -x $VENV/bin/python ]] || return 0 # named as a skip already
  if [[ -f $stamp && $(< "$stamp") == "$wanted" ]]; then
    return
  fi
  installing "pip into $VENV: $wanted"
  # shellcheck disable=SC2086
  if "$VENV/bin/python" -m pip install --quiet --no-input --disable-pip-version-check $wanted; then
    printf '%s\n' "$wanted" > "$stamp"
  else
    skip "$part" "pip could not install $wanted"
  fi
}
