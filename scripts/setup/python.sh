# SPDX-License-Identifier: Apache-2.0
# Python packages, in a virtual environment of the build folder; the system's Python stays as it is.
# shellcheck shell=bash

VENV=build/venv

setup_python() {
  local python=${OTR_PYTHON:-/usr/bin/python3} wanted stamp=$VENV/.outrigger
  [[ -x $python ]] || python=$(command -v python3 || true)
  if [[ -z $python ]]; then
    skip python "no python3"
    return
  fi
  wanted="$("$python" --version) $(listed pip | tr '\n' ' ')"
  if [[ -x $VENV/bin/python && -f $stamp && $(< "$stamp") == "$wanted" ]]; then
    return
  fi
  installing "pip into $VENV: $(listed pip | tr '\n' ' ')"
  # shellcheck disable=SC2046
  if "$python" -m venv --clear "$VENV" &&
    "$VENV/bin/python" -m pip install --quiet --no-input --disable-pip-version-check $(listed pip); then
    printf '%s\n' "$wanted" > "$stamp"
  else
    skip python "the virtual environment could not be filled; see the message above"
  fi
}
