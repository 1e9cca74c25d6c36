# SPDX-License-Identifier: Apache-2.0
"""The library's own reduce-scatter over shared memory on this machine: measured for 1 to 8 processes, fitted on 1 to 3, predicted for 4 and 8."""
import os
import random
import statistics
import sys
from pathlib import Path

import linear

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))
import machine  # noqa: E402
from sides import Side  # noqa: E402

RANKS, FITTED = (1, 2, 3, 4, 8), (1, 2, 3)
SIZES = (48 << 10, 768 << 10, 12 << 20, 48 << 20)  # of each rank; every number of ranks divides them into whole vectors
LATENCY_BOUND = 1 << 20  # and below


def terms(ranks, size, cores):
    """What each number of the fit is multiplied with. All ranks together read each rank's bytes and write one sum: (ranks + 1) × size, at the rate of one
    core, or of several. Each other rank is waited for once; those that have no core of their own sleep and are woken."""
    moved = (ranks + 1) * size
    alone = min(ranks, cores) == 1
    return [moved if alone else 0, 0 if alone else moved, ranks - 1, max(0, ranks - cores)]


def fit(points, cores):
    """Seconds a byte by one core and by several, a wait, a rank that is woken, on the points of few ranks; each relative error counts alike."""
    used = [p for p in points if p["ranks"] in FITTED]
    return linear.fit([[t / p["seconds"] for t in terms(p["ranks"], p["bytes"], cores)] for p in used], [1.0] * len(used))


def predicted(numbers, ranks, size, cores):
    return sum(a * b for a, b in zip(numbers, terms(ranks, size, cores)))


def residuals(found):
    """(point, predicted seconds, error) of each; those of FITTED are no check."""
    numbers = fit(found["points"], found["cores"])
    rows = []
    for point in found["points"]:
        seconds = predicted(numbers, point["ranks"], point["bytes"], found["cores"])
        rows.append((point, seconds, seconds / point["seconds"] - 1))
    return numbers, rows


def _buffers(ranks, size):
    """So many that one has left the caches when its turn comes again."""
    return max(3, min(48, -(-4 * machine.last_level_cache_bytes() // (size * ranks)))) if size < 12 << 20 else 3


def measure(programs, work, rounds):
    """All points in each round, in random order: what disturbs the machine meets them alike."""
    work.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))
    times = {(ranks, size): [] for ranks in RANKS for size in SIZES}
    order = random.Random(1)
    for turn in range(rounds):
        for ranks, size in order.sample(sorted(times), len(times)):
            job = f"scale-{os.getpid()}-{turn}-{ranks}-{size}"
            commands = [[programs / "bench_reduce_scatter", rank, ranks, job, size, _buffers(ranks, size)] for rank in range(ranks)]
            side = Side(f"ranks {ranks}", commands, [set(cores)] * ranks, work)
            try:
                side.ready(60)
                side.run(60)
                in_a_row = max(1, min(100, (32 << 20) // size))
                times[ranks, size] += [side.run(60, in_a_row)[0] for _ in range(3)]
            finally:
                side.close()
    points = [{"ranks": ranks, "bytes": size, "seconds": statistics.median(values), "fastest": min(values), "slowest": max(values)} for (ranks, size), values in times.items()]
    return {"cores": len(cores), "rounds": rounds, "points": points}
