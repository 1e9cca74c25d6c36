# SPDX-License-Identifier: Apache-2.0
"""Reduce-scatter of 64 MiB of bfloat16 on two ranks, against gloo."""

import functools
import os

import machine
import measure
from bench_case import OURS, free_port, memory_speed, read_floats, row

BYTES, RANKS = 64 << 20, 2
TARGET = 4.0
ROUNDS = 25
TIMED = (
    "from a barrier of the ranks to the last rank's return of one reduce-scatter of 64 MiB a rank that lie where "
    "the caller wrote them (ours: a shared window; gloo: a tensor) into a buffer of the caller's; buffers "
    "are used in turn"
)


def run(bench):
    one = functools.partial(row, f"reduce-scatter of 64 MiB bf16, {RANKS} ranks", "gloo", TARGET, TIMED)
    return bench.measured(lambda reason: [one(reason=reason)], lambda: [_measure(bench, one)])


def _measure(bench, one):
    # So many that a buffer has left the last-level cache when its turn comes again, four at least.
    buffers = min(16, max(4, -(-2 * machine.last_level_cache_bytes() // (BYTES * RANKS))))
    folder = bench.scratch("reduce-scatter")
    cores = [{core} for core in bench.cores[:RANKS]]
    port, job = free_port(), f"bench-{os.getpid()}-rs"
    ours = [[bench.programs / "bench_reduce_scatter", rank, RANKS, job, BYTES, buffers] for rank in range(RANKS)]
    theirs = [bench.peer_command("gloo_reduce_scatter.py", rank, RANKS, port, BYTES, buffers) for rank in range(RANKS)]
    with bench.sides(
        [
            {"name": OURS, "commands": ours, "cores": cores},
            {"name": "gloo", "commands": theirs, "cores": cores, "environment": bench.peer_environment(1)},
        ]
    ) as sides:
        for side in sides[:2]:
            side.check(folder, 120)
        # The sums are exact in bfloat16, so the two have to be the same.
        agree = all(
            read_floats(folder / f"outrigger.{rank}") == read_floats(folder / f"gloo.{rank}") for rank in range(RANKS)
        )
        if not agree:
            return one(numerics={"agree": False}, reason="the two sides' sums differ")
        rounds = measure.interleave(sides, ROUNDS, 2, bench.deadline, bench.seed)
        speed = {
            f"{key}_gb_per_s": BYTES / measure.quantile(rounds.seconds[name], 0.5) / 1e9
            for key, name in (("ours", OURS), ("peer", "gloo"))
        }
        return one(
            rounds, "gloo", numerics={"agree": True, "same": 1.0}, buffers=buffers, memory=memory_speed(rounds), **speed
        )
