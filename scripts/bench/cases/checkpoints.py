# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of masters and moments: what a save, an asynchronous one and a load take, beside the disk and PyTorch's two formats."""

import shutil
import sys

import measure
from bench_case import CORES, OURS, memory_speed, read_floats, row

MATRICES, SIDE = 16, 2048
BYTES = 3 * 4 * MATRICES * SIDE**2
ROUNDS = 9
SIZE = f"{MATRICES * SIDE**2 / 1e6:.0f} M parameters, float32 master and moments ({BYTES / 1e6:.0f} MB), one rank, {CORES} threads"
SAVE, HOLD_UP, HOLD_UP_CHANGE, LOAD = (f"{what}, {SIZE}" for what in (
    "save", "asynchronous save", "asynchronous save and a step at once", "load from the disk"))
TIMED_SAVE = "from the call until the file is durable; the former one is removed before"
TIMED_HOLD_UP = "from the call until it returns: the time that the training stands still"
TIMED_CHANGE = "the call, and a change of a moment right behind it, which copies all that is not written: a step that comes later waits for less"
TIMED_LOAD = "the files out of the system's cache; from the call until all values are in the tensors"
OURS_HOLD_UP, OURS_CHANGE, OURS_LOAD = "outrigger, asynchronous", "outrigger, asynchronous and a change", "outrigger, load"
FIO, FIO_READ = "fio, direct writes", "fio, direct reads"
TORCH, DCP, DCP_ASYNC = "torch.save and fsync", "torch.distributed.checkpoint", "torch.distributed.checkpoint.async_save"
TORCH_LOAD, DCP_LOAD = "torch.load", "torch.distributed.checkpoint.load"
# Case, what is timed, our side → peer → target.
GROUPS = [
    (SAVE, TIMED_SAVE, OURS, {FIO: 0.9, TORCH: 3.0, DCP: 3.0}),
    (HOLD_UP, TIMED_HOLD_UP, OURS_HOLD_UP, {OURS: 20.0, TORCH: 3.0, DCP: 3.0, DCP_ASYNC: 3.0}),
    (HOLD_UP_CHANGE, TIMED_CHANGE, OURS_CHANGE, {OURS: 5.0, DCP_ASYNC: 3.0}),
    (LOAD, TIMED_LOAD, OURS_LOAD, {FIO_READ: 0.9, TORCH_LOAD: 1.0, DCP_LOAD: 1.0}),
]
OWN = {OURS: "save", OURS_HOLD_UP: "hold_up", OURS_CHANGE: "hold_up_change", OURS_LOAD: "load"}
FIO_SIDES = {FIO: "write", FIO_READ: "read"}
TORCH_SIDES = {TORCH: "torch_save", DCP: "dcp_save", DCP_ASYNC: "dcp_hold_up", TORCH_LOAD: "torch_load", DCP_LOAD: "dcp_load"}


def run(bench):
    return [one for group in GROUPS for one in _group(bench, *group)]


def _group(bench, case, timed, ours, targets):
    absent = {peer: bench.peer_missing for peer in targets if peer in TORCH_SIDES}
    absent |= {peer: "" if shutil.which("fio") else "there is no fio" for peer in targets if peer in FIO_SIDES}
    there = [peer for peer in targets if not absent.get(peer)]
    rows = [row(case, peer, targets[peer], timed, reason=absent[peer]) for peer in targets if peer not in there]

    def missing(reason):
        return [row(case, peer, targets[peer], timed, reason=reason) for peer in there]

    return rows + bench.measured(missing, lambda: _measure(bench, case, timed, ours, {peer: targets[peer] for peer in there}), needs_peers=False)


def _specification(bench, folder, side):
    own = folder / side.replace(" ", "-")
    own.mkdir(parents=True)
    if side in OWN:
        command = [bench.programs / "bench_checkpoints", OWN[side], own, MATRICES, SIDE]
    elif side in FIO_SIDES:
        command = [sys.executable, bench.peer_command("fio.py")[1], FIO_SIDES[side], own, BYTES]
    else:
        command = bench.peer_command("checkpoints.py", TORCH_SIDES[side], own, MATRICES, SIDE)
    return {"name": side, "cores": [set(bench.cores[:CORES])], "commands": [command], "environment": bench.peer_environment(CORES)}


def _measure(bench, case, timed, ours, targets):
    folder = bench.scratch("checkpoints") / OWN[ours]
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with bench.sides([_specification(bench, folder, side) for side in (ours, *targets)]) as sides:
            for side in sides[:-1]:
                side.check(folder, 300)
            rounds = measure.interleave(sides, ROUNDS, 1, bench.deadline, bench.seed)
        samples = {side: read_floats(folder / _samples(side)) for side in (ours, *targets) if side not in FIO_SIDES}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for side in targets:
        if side in FIO_SIDES:  # without its start, which is no matter of the disk
            rounds.seconds[side] = [facts[0]["seconds"] for facts in rounds.facts[side]]
    speeds = {"gb_per_s": {side: BYTES / measure.quantile(rounds.seconds[side], 0.5) / 1e9 for side in (ours, *targets)}}
    rows = []
    for peer, target in targets.items():
        if peer in samples and samples[peer] != samples[ours]:
            rows.append(row(case, peer, target, timed, reason="the two sides' numbers differ"))
            continue
        numerics = {"numerics": {"agree": True, "same": 1.0}} if peer in samples else {}
        rows.append(row(case, peer, target, timed, rounds, peer, ours=ours, memory=memory_speed(rounds), **speeds, **numerics))
    return rows


def _samples(side):
    return f"outrigger.{OWN[side]}" if side in OWN else TORCH_SIDES[side]
