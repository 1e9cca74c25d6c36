# SPDX-License-Identifier: Apache-2.0
"""Sums and gathers over MPI beside the bare library; two levels beside one where hosts exchange little, with what goes in 8 bits; a forward
behind a step."""

import json
import os
import pathlib
import subprocess
import sys

import measure
from bench_case import OURS, row

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "scripts" / "hosts"))
import hosts  # noqa: E402 - found by the line above

SLICE, ROUNDS = 16 * 2**20, 15  # bytes of one rank's slice
SLOW_SLICE, SLOW_ROUNDS, MEGABITS = 2**20, 9, 1000
TIMED = "from a barrier of the ranks to the last rank's return"
NAMES = {"sum": "the sum of float32 gradients for each rank's slice", "gather": "the gather of slices in place"}
BLOCKS = "blocks"  # a sum, too
INTEGERS = "integers"  # a gather, beside that of "weights"
ELEMENTS = 2**21  # of each of 16 parameters
KINDS = {"openmpi": "Open MPI", "mpich": "MPICH"}


def run(bench):
    rows = []
    for kind, library in KINDS.items():
        rows += _beside_bare(bench, kind, library)
    return rows + _levels(bench) + [_forward_behind(bench)]


def _beside_bare(bench, kind, library):
    def each(operation, ranks):
        return f"over MPI: {NAMES[operation]}, {SLICE >> 20} MiB a slice, {ranks} ranks", f"bare {library}"

    ranks = 2
    folder = ROOT / "build" / "mpi" / kind
    program = bench.programs / f"bench_mpi_exchange_{kind}"
    if not program.exists():
        return [row(*each(operation, ranks), 0.95, TIMED, reason=f"there is no {library} in build/mpi") for operation in NAMES]
    start = [folder / "bin" / ("mpirun" if kind == "openmpi" else "mpiexec"), "-n", ranks]
    found = _run(bench, [*start, program, SLICE, ROUNDS], kind)
    return [_row(*each(operation, ranks), 0.95, found, operation, "flat", "bare") for operation in NAMES]


def _levels(bench):
    names = NAMES | {BLOCKS: f"{NAMES['sum']}, as 8-bit blocks between hosts", INTEGERS: "the gather of bfloat16 weights, as 8-bit integers"}

    def each(operation, count, ranks):
        peer = "the same weights as they are" if operation == INTEGERS else "one level of MPI"
        return f"{count} hosts of {ranks} ranks, {MEGABITS} Mbit/s between them: {names[operation]}, {SLOW_SLICE >> 20} MiB a slice", peer

    program, rows = bench.programs / "bench_mpi_exchange_openmpi", []
    for count, ranks in ((2, 2), (4, 2)):
        reason = hosts.missing() or ("" if program.exists() else "there is no Open MPI in build/mpi")
        targets = {"sum": 1.5, "gather": 1.0, BLOCKS: 1.5, INTEGERS: 1.5}
        if reason:
            rows += [row(*each(operation, count, ranks), target, TIMED, reason=reason) for operation, target in targets.items()]
            continue
        with hosts.hosts(count, MEGABITS) as made:
            start = [*made.launcher(ROOT / "build" / "mpi" / "openmpi" / "bin" / "mpirun", ranks), "-n", count * ranks]
            found = _run(bench, [*start, program, SLOW_SLICE, SLOW_ROUNDS], "openmpi", made.environment)
        rows += [_row(*each(operation, count, ranks), targets[operation], found, operation, "levels", "flat") for operation in ("sum", "gather")]
        rows.append(_row(*each(BLOCKS, count, ranks), targets[BLOCKS], found, "sum", "blocks", "flat"))
        rows.append(_row(*each(INTEGERS, count, ranks), targets[INTEGERS], found, "gather", "integers", "weights"))
    return rows


def _forward_behind(bench):
    case = f"2 hosts of one rank, {MEGABITS} Mbit/s between them: a step at stage 1, {16 * ELEMENTS >> 20} Mi parameters in bf16, and a forward as long"
    peer, target, timed = "the same step, waited for", 1.3, "from the step's call to the end of the forward, the longest rank"
    program = bench.programs / "bench_hosts_step"
    reason = hosts.missing() or ("" if (ROOT / "build" / "mpi" / "openmpi").exists() else "there is no Open MPI in build/mpi")
    if reason:
        return row(case, peer, target, timed, reason=reason)
    with hosts.hosts(2, MEGABITS) as made:
        start = [*made.launcher(ROOT / "build" / "mpi" / "openmpi" / "bin" / "mpirun", 1), "-n", 2]
        found = _run(bench, [*start, program, ELEMENTS, SLOW_ROUNDS], "openmpi", made.environment)
    if not found["same"]:
        return row(case, peer, target, timed, reason="the ranks' weights differ")
    rounds = measure.Rounds([OURS, peer])
    rounds.seconds = {OURS: found["begun"], peer: found["waited"]}
    return row(case, peer, target, timed, rounds, peer, numerics={"agree": True, "same": 1.0})


def _run(bench, command, kind, environment=None):
    library = ROOT / "build" / "mpi" / kind / "lib" / {"openmpi": "libmpi.so.40", "mpich": "libmpi.so.12"}[kind]
    variables = {"OTR_MPI_LIBRARY": str(library), "OTR_PLUGIN_PATH": str(bench.package.parent), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                 "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_event_tick_rate": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
    done = subprocess.run([str(word) for word in command], env=os.environ | variables | (environment or {}), capture_output=True, text=True,
                          timeout=300, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{kind}'s ranks ended with {done.returncode}: {done.stdout[-1000:]} {done.stderr[-1000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _row(case, peer, target, found, operation, ours, theirs):
    if not found["same"]:
        return row(case, peer, target, TIMED, reason="the sides' numbers differ")
    rounds = measure.Rounds([OURS, peer])
    rounds.seconds = {OURS: found[ours][operation], peer: found[theirs][operation]}
    return row(case, peer, target, TIMED, rounds, peer, numerics={"agree": True, "same": 1.0}, library=found["library"])
