#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures what docs/report.md shows, and writes it: DeepSpeed's published experiments beside their counterparts here.
#   scripts/report/report.sh [--minutes M] [SECTION…]      sections: see report.py --help; default all
# Runs that are complete in build/report are kept, so a call that was stopped goes on. BENCH_VENV: where the Python with
# DeepSpeed is or goes, the one of make bench (default build/bench/venv). Without it, DeepSpeed's rows say "not measured".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venv=${BENCH_VENV:-build/bench/venv}
mkdir -p build/report

source scripts/bench/peers.sh
install_peers "$venv" build/report/peers.log

build/venv/bin/python scripts/report/report.py --peer-python "$venv/bin/python" --peer-missing "$PEERS_MISSING" "$@"
