# SPDX-License-Identifier: Apache-2.0
"""Backward and step with states on the host, beside what no pipeline can beat: its parts, each by itself, on a simulated device whose
copies take exactly the time that their speed gives."""

import json
import os

import measure
from bench_case import CORES, OURS, memory_speed, row

MATRICES, SIDE = 24, 1024
ELEMENTS = MATRICES * SIDE**2
BACKWARD, FORWARD, BYTES_PER_SECOND = 0.06, 0.03, 1e9
STEPS_IN_A_ROW = 4  # tests/bench/offload_step.c
UPDATE_PART = 2**20  # elements; core/engine/plan.cpp
ROUNDS = 15
PARTS = "the longest of its parts"
HOST = "host's update alone"
WAITS = "Outrigger, waiting for each step"
TARGET = 1 / 1.1
TIMED = ("from the first acquire until the step returns, the copies of the step before included; the parts: the longer of backward and "
         "download (the norm needs all gradients), then the longer of update and upload, and the first part's way through each; with offloaded "
         "parameters their upload, the longer of backward and download, the update, and the first bucket's way")


def run(bench):
    return ([one for world in (1, 2) for stage in (2, 3) for bucket in (2**20, 2**22) for one in _rows(bench, world, stage, bucket)] +
            [one for world in (1, 2) for one in _rows(bench, world, 3, 2**20, True)] +
            [one for world in (1, 2) for one in _row_of_forwards(bench, world)])


def _ranks(world):
    return f"{world} rank{'s' if world > 1 else ''}"


def _rows(bench, world, stage, bucket, parameters=False):
    """parameters: they are on the host, too, and the device has room for half of them, so half comes a second time in the backward."""
    case = (f"offloaded step, stage {stage}, {_ranks(world)}, buckets of {bucket / 2**20:.0f} Mi, "
            f"{ELEMENTS / 1e6:.0f} M parameters in bfloat16{', offloaded, too' if parameters else ''}, float32 states, clipping")

    def missing(reason):
        return [row(case, PARTS, TARGET, TIMED, reason=reason)]

    return bench.measured(missing, lambda: _measure(bench, case, world, stage, bucket, parameters), needs_peers=False)


def _row_of_forwards(bench, world):
    case = (f"offloaded step, stage 2, {_ranks(world)}, the next forward beside it, {ELEMENTS / 1e6:.0f} M parameters in bfloat16, float32 states, clipping")
    timed = (f"{STEPS_IN_A_ROW} forwards, backwards and steps in a row, of {FORWARD} and {BACKWARD} s for the device; a step is begun and its report asked for "
             "before the next backward, or made in one call")

    def missing(reason):
        return [row(case, WAITS, 1, timed, reason=reason)]

    return bench.measured(missing, lambda: _measure_forwards(bench, case, timed, world), needs_peers=False)


def _measure_forwards(bench, case, timed, world):
    config = bench.scratch("offload_step") / "forwards.json"
    config.write_text(_configuration(2, 2**20))
    both = [_specification(bench, name, config, world, BACKWARD, BYTES_PER_SECOND, FORWARD, how) for name, how in ((OURS, "begins"), (WAITS, "waits"))]
    with bench.sides(both) as sides:
        rounds = measure.interleave(sides, ROUNDS, 2, bench.deadline, bench.seed)
    return [row(case, WAITS, 1, timed, rounds, WAITS, memory=memory_speed(rounds))]


def _specification(bench, name, config, world, backward, speed, *more):
    job = f"bench-offload-{os.getpid()}-{name.replace(' ', '-').replace(',', '')}"
    return {"name": name, "cores": [set(bench.cores[:CORES])] * world,
            "commands": [[bench.programs / "bench_offload_step", rank, world, job, config, MATRICES, SIDE, backward, speed, *more]
                         for rank in range(world)]}


def _configuration(stage, bucket, **more):
    return json.dumps({
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "bf16": {"enabled": True}, "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage, "reduce_bucket_size": bucket, "offload_optimizer": {"device": "cpu"}, **more}})


def _measure(bench, case, world, stage, bucket, parameters):
    config = bench.scratch("offload_step") / f"{world}-{stage}-{bucket}-{parameters}.json"
    more = {"offload_param": {"device": "cpu"}, "stage3_max_live_parameters": ELEMENTS // 2} if parameters else {}
    config.write_text(_configuration(stage, bucket, **more))
    both = [_specification(bench, OURS, config, world, BACKWARD, BYTES_PER_SECOND), _specification(bench, HOST, config, world, 0, 0)]
    with bench.sides(both) as sides:
        rounds = measure.interleave(sides, ROUNDS, 2, bench.deadline, bench.seed)
    copy = 2 * ELEMENTS / BYTES_PER_SECOND
    fill = 2 * (bucket + UPDATE_PART) / BYTES_PER_SECOND
    update = [max(facts["step_s"] for facts in ranks) for ranks in rounds.facts[HOST]]
    if parameters:
        rounds.seconds[PARTS] = [copy + max(BACKWARD, copy) + 2 * bucket / BYTES_PER_SECOND + seconds for seconds in update]
    else:
        rounds.seconds[PARTS] = [max(BACKWARD, copy) + max(seconds, copy) + fill + seconds * UPDATE_PART * world / ELEMENTS for seconds in update]
    costs = {name: max(facts[name] for ranks in rounds.facts[OURS] for facts in ranks)
             for name in ("allocations", "synchronizations", "unpinned_bytes")}
    parts = {"backward_s": BACKWARD, "download_s": copy, "update_s": measure.quantile(update, 0.5), "upload_s": copy}
    return [row(case, PARTS, TARGET, TIMED, rounds, PARTS, memory=memory_speed(rounds), costs=costs, phases=parts)]
