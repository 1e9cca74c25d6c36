# SPDX-License-Identifier: Apache-2.0
"""One AdamW step of a flat tensor, against DeepSpeed's CPUAdam and torch's fused AdamW."""

import json

import measure
from bench_case import OURS, compare, memory_speed, read_floats, row

COUNT, THREADS = 64 << 20, 2
TARGET = 0.8
ROUNDS = 25
BYTES = {"float32": 28, "bfloat16": 14}  # read and written for each parameter: w, m, v both ways, g read
BITS = {"float32": 24, "bfloat16": 8}
# Weights lie within 0.125 and three steps move them by 0.003. DeepSpeed takes 1 - beta2 in float32, off by 1e-5:
# a weight near zero then differs in many units of its own last place, but in few of 0.0625.
FLOOR = {"float32": 0.0625, "bfloat16": 0.0}
LIMIT = {"float32": 8, "bfloat16": 2}
PEERS = {"deepspeed": "DeepSpeed 0.19.8 CPUAdam", "torch": "torch 2.15.0 fused AdamW"}
TIMED = (
    "one call of the step on a flat tensor of 64 Mi parameters, weights, gradients and both states in the same "
    "format; ours also looks for Inf and NaN and takes the norm, the peers do not"
)


def run(bench):
    return [one for dtype in ("float32", "bfloat16") for one in _format(bench, dtype)]


def _optimizer(dtype):
    state = {"format": dtype} if dtype == "float32" else {"format": dtype, "rounding": "nearest"}
    return {
        "type": "AdamW",
        "params": {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01},
        "gradient_clipping": 0,
        "states": {"master": state, "exp_avg": state, "exp_avg_sq": state},
    }


def _format(bench, dtype):
    case = f"AdamW step, {dtype} weights and states, 64 Mi parameters, {THREADS} threads"

    def missing(reason):
        return [row(case, name, TARGET, TIMED, reason=reason) for name in PEERS.values()]

    return bench.measured(missing, lambda: _measure(bench, case, dtype))


def _measure(bench, case, dtype):
    folder = bench.scratch(f"adam-{dtype}")
    optimizer = folder / "optimizer.json"
    optimizer.write_text(json.dumps(_optimizer(dtype)))
    cores = [set(bench.cores[:THREADS])]
    specifications = [
        {
            "name": OURS,
            "cores": cores,
            "commands": [[bench.programs / "bench_adam_step", dtype, COUNT, THREADS, optimizer]],
        }
    ]
    for peer, name in PEERS.items():
        specifications.append(
            {
                "name": name,
                "cores": cores,
                "environment": bench.peer_environment(THREADS),
                "commands": [bench.peer_command("adam_step.py", peer, dtype, COUNT, THREADS, optimizer)],
            }
        )
    with bench.sides(specifications) as sides:
        for side in sides[:-1]:
            side.check(folder, 120)
        own = read_floats(folder / "outrigger.weight")
        numerics = {
            name: compare(own, read_floats(folder / f"{peer}.weight"), BITS[dtype], FLOOR[dtype])
            for peer, name in PEERS.items()
        }
        rounds = measure.interleave(sides, ROUNDS, 2, bench.deadline, bench.seed)
        return [_row(case, dtype, name, rounds, numerics[name]) for name in PEERS.values()]


def _row(case, dtype, name, rounds, numerics):
    agree = numerics["largest_difference_ulp"] <= LIMIT[dtype]
    numerics = {"agree": agree, **numerics}
    if not agree:
        return row(case, name, TARGET, TIMED, numerics=numerics, reason="the two sides' numbers differ")
    seconds = measure.quantile(rounds.seconds[OURS], 0.5)
    memory = memory_speed(rounds)
    speed = BYTES[dtype] * COUNT / seconds / 1e9
    return row(
        case,
        name,
        TARGET,
        TIMED,
        rounds,
        name,
        numerics=numerics,
        memory=memory,
        ours_gb_per_s=speed,
        peer_gb_per_s=BYTES[dtype] * COUNT / measure.quantile(rounds.seconds[name], 0.5) / 1e9,
        ours_ns_per_parameter=seconds / COUNT * 1e9,
        share_of_triad=speed / memory["triad"],
    )
