# SPDX-License-Identifier: Apache-2.0
"""Collectives on private memory, as a caller of otr_comm_* has it: one large all-gather, and the small ones of every step."""

import os

import measure
from bench_case import OURS, free_port, read_floats, row

RANKS, ROUNDS = 2, 15
COPY = "a plain copy of as many bytes by every rank"
MPI, GLOO = "Open MPI", "gloo"
UNRECORDED = "ours, without the flight recorder"
OF_OURS = {COPY: "copy", UNRECORDED: "unrecorded"}  # programs of ours beside the one that is measured → the ends of their jobs' names
# Operation → its name in the report, bytes a rank, how many are timed in a row, and peer → target.
OPERATIONS = {
    "all_gather": ("all-gather of 24 MB a rank, private memory", 24 * 10**6, 1, {COPY: 0.9, MPI: 1.0, GLOO: 3.0}),
    "all_reduce": ("all-reduce of 7 float64", 56, 1000, {MPI: 0.8, GLOO: 10.0, UNRECORDED: 0.7}),
    "barrier": ("barrier", 0, 1000, {MPI: 0.8, GLOO: 10.0, UNRECORDED: 0.7}),
}
TIMED = "from a barrier of the ranks to the last rank's return"


def run(bench):
    return [one for operation in OPERATIONS for one in _operation(bench, operation)]


def _operation(bench, operation):
    name, size, times, peers = OPERATIONS[operation]
    case, timed = f"{name}, {RANKS} ranks", TIMED if times == 1 else f"{TIMED}; one of {times} in a row"
    absent = {MPI: bench.mpi_missing, GLOO: bench.peer_missing}
    there = [peer for peer in peers if not absent.get(peer)]
    rows = [row(case, peer, peers[peer], timed, reason=absent[peer]) for peer in peers if peer not in there]

    def missing(reason):
        return [row(case, peer, peers[peer], timed, reason=reason) for peer in there]

    return rows + bench.measured(missing, lambda: _measure(bench, operation, case, timed, there), needs_peers=False)


def _specification(bench, who, operation, size):
    cores = [{core} for core in bench.cores[:RANKS]]
    if who == MPI:  # mpirun binds the ranks
        return {"name": who, "cores": [set(bench.cores[:RANKS])], "environment": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
                "commands": [["mpirun", "-n", RANKS, "--bind-to", "core", bench.programs / "mpi_collectives", operation, size]]}
    if who == GLOO:
        port = free_port()
        return {"name": who, "cores": cores, "environment": bench.peer_environment(1),
                "commands": [bench.peer_command("gloo_collectives.py", rank, RANKS, port, operation, size) for rank in range(RANKS)]}
    job = f"bench-{os.getpid()}-{operation}-{OF_OURS.get(who, 'ours')}"
    own = "copy" if who == COPY else operation
    environment = {"OTR_FLIGHT_RECORDER": "off"} if who == UNRECORDED else {}
    return {"name": who, "cores": cores, "environment": environment,
            "commands": [[bench.programs / "bench_collectives", rank, RANKS, job, own, size] for rank in range(RANKS)]}


def _measure(bench, operation, case, timed, peers):
    _, size, times, targets = OPERATIONS[operation]
    folder = bench.scratch("collectives")
    with bench.sides([_specification(bench, who, operation, size) for who in (OURS, *peers)]) as sides:
        for who, side in zip((OURS, *peers), sides):
            if who not in OF_OURS:
                side.check(folder, 120)
        rounds = measure.interleave(sides[:-1], ROUNDS, 2, bench.deadline, bench.seed, times=times)

    def samples(who):
        return [read_floats(folder / f"{who}.{operation}.{rank}") for rank in range(RANKS)]

    rows = []
    for peer in peers:
        if peer not in OF_OURS and samples(OURS) != samples(peer):
            rows.append(row(case, peer, targets[peer], timed, reason="the two sides' numbers differ"))
            continue
        speed = {} if times > 1 else {"gathered_gb_per_s": {
            name: RANKS * size / measure.quantile(rounds.seconds[name], 0.5) / 1e9 for name in (OURS, *peers)}}
        rows.append(row(case, peer, targets[peer], timed, rounds, peer, numerics={"agree": True, "same": 1.0}, **speed))
    return rows
