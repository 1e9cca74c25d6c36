#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures Outrigger beside its peers; docs/benchmarks.md says what and how.
#   scripts/bench/bench.sh [CASE…]     engine_step, reduce_scatter, collectives, mpi_exchange, optimizer_step, torch_training,
#                                      torch_overhead, checkpoints, offload_step, watching, calls, optimizer_curves; default all
# Writes build/bench/report.md and report.json, and adds to docs/benchmarks/results.json and the page that shows it
# (not with --no-record). BENCH_VENV: where the peers' environment is or goes
# (default build/bench/venv); BENCH_OUTPUT: where everything else goes (default build/bench).
# A peer that cannot be had: its rows say "not measured", and with OTR_REQUIRE_ALL=1 the call fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
output=${BENCH_OUTPUT:-build/bench}
programs=$output/programs
venv=${BENCH_VENV:-build/bench/venv}
mkdir -p "$output"

source scripts/bench/peers.sh
PEERS_MISSING="no case that was asked for has peers" MPI_MISSING=$PEERS_MISSING
with_peers=$(($# == 0))
for word in "$@"; do
  [[ $word == --* || $word =~ ^(mpi_exchange|offload_step|watching|calls)$ ]] || with_peers=1
done
[[ $with_peers == 0 ]] || install_peers "$venv" "$output/peers.log"

source scripts/ccache.sh
cmake -S . -B "$programs" -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=Release \
  -DOTR_BENCH=ON -DOTR_TESTS=OFF -DOTR_EXAMPLES=OFF -DOTR_UNITY=ON "${launchers[@]}"
cmake --build "$programs" --target bench_programs
if [[ $with_peers == 1 ]]; then
  install_mpi "$programs/tests/bench" "$output/mpi.log"
  install_fio "$output/fio.log"
fi

build/venv/bin/python scripts/bench/bench.py --programs "$programs/tests/bench" --package build/release/python --peer-python "$venv/bin/python" \
  --peer-missing "$PEERS_MISSING" --mpi-missing "$MPI_MISSING" --output "$output" "$@"
