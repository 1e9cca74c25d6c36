# SPDX-License-Identifier: Apache-2.0
# Open MPI and MPICH, for tests, each in a folder of its own: they have programs of the same names.
# shellcheck shell=bash

MPI_ROOT=build/mpi

setup_mpi() {
  local part wanted stamp
  [[ -x $VENV/bin/python ]] || return 0 # named as a skip already
  for part in $(parts_of mpi); do
    wanted=$(listed mpi "$part")
    stamp=$MPI_ROOT/$part/.outrigger
    if [[ -f $stamp && $(< "$stamp") == "$wanted" ]]; then
      continue
    fi
    installing "pip into $MPI_ROOT/$part: $wanted"
    rm -rf "${MPI_ROOT:?}/$part"
    if "$VENV/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --no-deps --prefix "$MPI_ROOT/$part" "$wanted"; then
      printf '%s\n' "$wanted" > "$stamp"
    else
      skip "$part" "pip could not install $wanted"
    fi
  done
}
