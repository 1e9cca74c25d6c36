# SPDX-License-Identifier: Apache-2.0
# The benchmark's peers, in a virtual environment of their own.
# shellcheck shell=bash
# shellcheck source=scripts/setup/common.sh
source scripts/setup/common.sh

# install_peers FOLDER LOG: leaves PEERS_MISSING empty, or with the reason why there are none.
install_peers() {
  local folder=$1 log=$2 python=${OTR_PYTHON:-/usr/bin/python3} wanted stamp=$1/.outrigger-peers
  PEERS_MISSING=
  [[ -x $python ]] || python=$(command -v python3 || true)
  if [[ -z $python ]]; then
    PEERS_MISSING="no python3"
    return
  fi
  # The processor, because DeepSpeed's operators are compiled for this one.
  wanted=$(cat scripts/bench/requirements*.txt && grep -m1 flags /proc/cpuinfo | cksum)
  if [[ -x $folder/bin/python && -f $stamp && $(< "$stamp") == "$wanted" ]]; then
    return
  fi
  echo "bench: installing the peers with pip into $folder (about 6 GB; some minutes), log in $log"
  # deepspeed's set-up imports torch, so it comes after it and sees it.
  if "$python" -m venv --clear "$folder" > "$log" 2>&1 &&
    pip_into "$folder" -r scripts/bench/requirements.txt >> "$log" 2>&1 &&
    DS_ACCELERATOR=cpu pip_into "$folder" --no-build-isolation \
      -r scripts/bench/requirements-deepspeed.txt >> "$log" 2>&1 &&
    build_deepspeed_operators "$folder" >> "$log" 2>&1; then
    printf '%s\n' "$wanted" > "$stamp"
  else
    PEERS_MISSING="the peers could not be installed, see $log"
    echo "bench: $PEERS_MISSING"
  fi
}

# install_mpi FOLDER LOG: builds the peer over MPI in FOLDER; leaves MPI_MISSING empty, or with the reason why there is none.
install_mpi() {
  local folder=$1 log=$2 source=scripts/bench/peers/mpi_collectives.c
  MPI_MISSING=
  if ! command -v mpicc > /dev/null; then
    echo "bench: installing Open MPI with apt, log in $log"
    { may_install && apt_install openmpi-bin libopenmpi-dev; } > "$log" 2>&1 || true
  fi
  if ! mpicc -O2 -Itests/bench "$source" -o "$folder/mpi_collectives" >> "$log" 2>&1; then
    MPI_MISSING="there is no Open MPI, see $log"
    echo "bench: $MPI_MISSING"
  fi
}

# install_fio LOG: what measures the disk. Without it, its rows are not measured.
install_fio() {
  command -v fio > /dev/null && return
  echo "bench: installing fio with apt, log in $1"
  { may_install && apt_install fio; } > "$1" 2>&1 || echo "bench: there is no fio, see $1"
}

# DeepSpeed compiles its operators at first use, for this processor; here, so that no measurement waits.
build_deepspeed_operators() {
  local folder
  folder=$(cd "$1" && pwd)
  PATH="$folder/bin:$PATH" DS_ACCELERATOR=cpu TORCH_EXTENSIONS_DIR="$folder/torch_extensions" "$folder/bin/python" - << 'EOF'
from deepspeed.ops.op_builder.cpu import CPUAdamBuilder, ShareMemCommBuilder

CPUAdamBuilder().load()
ShareMemCommBuilder().load()
EOF
}

pip_into() {
  local folder=$1
  shift
  "$folder/bin/python" -m pip install --no-input --disable-pip-version-check "$@"
}
