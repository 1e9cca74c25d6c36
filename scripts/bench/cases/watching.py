# SPDX-License-Identifier: Apache-2.0
"""What records of every step and a trace cost: the step of engine_step.py watched, beside the same step not watched."""

import functools
import json
import os
import shutil

import measure
from bench_case import OURS, row
from cases.engine_step import MATRICES, RANKS, TIMED, configuration

# The side of the matrices → the least ratio. A record's cost is the same for a small step.
SIZES = {256: 0.9, 2048: 0.98}
PEER = "not watched"
ROUNDS = 15


def run(bench):
    return [each for side, target in SIZES.items() for each in _size(bench, side, target)]


def _size(bench, side, target):
    case = f"a step that writes its record and trace, {MATRICES} x {side} x {side}, stage 2, {RANKS} ranks"
    one = functools.partial(row, case, "the same step, not watched", target, TIMED)
    return bench.measured(lambda reason: [one(reason=reason)], lambda: [_measure(bench, side, one)], needs_peers=False)


def _measure(bench, side, one):
    folder = bench.scratch(f"watching-{side}")
    config = folder / "config.json"
    config.write_text(json.dumps(configuration(2)))
    cores = [{core} for core in bench.cores[:RANKS]]
    written = folder / "written"
    shutil.rmtree(written, ignore_errors=True)
    watched = {"OTR_RECORDS": str(written), "OTR_TRACE": str(written)}

    def started(name, environment):
        job = f"bench-{os.getpid()}-{side}-{name.replace(' ', '-')}"
        commands = [[bench.programs / "bench_engine_step", rank, RANKS, job, config, MATRICES, side] for rank in range(RANKS)]
        return {"name": name, "commands": commands, "cores": cores, "environment": environment}

    with bench.sides([started(OURS, watched), started(PEER, {})]) as sides:
        weights = [_weights(bench, side, each) for each in sides[:2]]
        if weights[0] != weights[1]:
            return one(reason="watching changes the weights")
        rounds = measure.interleave(sides, ROUNDS, 2, bench.deadline, bench.seed)
    lines = (written / "rank-0.jsonl").read_text(encoding="utf-8").splitlines()
    if not (written / "rank-0.trace.json").exists() or len(lines) < ROUNDS:
        return one(reason="nothing was watched")
    return one(rounds, PEER, numerics={"agree": True, "records": len(lines)})


def _weights(bench, side, worker):
    """After three steps: the bytes of the samples of all ranks."""
    folder = bench.scratch(f"watching-{side}/{worker.name.replace(' ', '-')}")
    worker.check(folder, 300)
    return [(folder / f"outrigger.weights.{rank}").read_bytes() for rank in range(RANKS)]
