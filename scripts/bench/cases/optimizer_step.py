# SPDX-License-Identifier: Apache-2.0
"""One optimizer step, in each way of storing weights and states, against those who do the same."""

import dataclasses
import json

import measure
from bench_case import OURS, compare, memory_speed, read_floats, row

COUNT, THREADS = 64 << 20, 2
ROUNDS = 15
NEAREST, STOCHASTIC = ({"format": "bfloat16", "rounding": each} for each in ("nearest", "stochastic"))
FLOAT32, SPLIT, BLOCK8 = ({"format": each} for each in ("float32", "split", "block8"))
NAMES = {
    "deepspeed": "DeepSpeed 0.19.8 CPUAdam",
    "deepspeed_avx2": "DeepSpeed 0.19.8 CPUAdam compiled for AVX2",
    "deepspeed_cast": "DeepSpeed 0.19.8 CPUAdam, float32 states, and the casts",
    "deepspeed_whole": "DeepSpeed 0.19.8's sequence: norm, mul_, CPUAdam, cast",
    "torch_fused": "torch 2.15.0 fused AdamW",
    "torch_foreach": "torch 2.15.0 foreach AdamW",
    "torch_whole": "torch 2.15.0: clip_grad_norm_, fused AdamW, cast",
    "torchao_stochastic": "torchao 0.18.0 AdamW with stochastic rounding",
    "torchao_8bit": "torchao 0.18.0 AdamW8bit",
    "nearest": "ours, rounded to nearest",
}
STEP = "one call of the step, update only: no norm and no look for Inf and NaN on either side (ours: check_grad_overflow false)"
WHOLE = "norm, Inf and NaN, clipping, update and the bfloat16 copy of float32 weights, by both sides"


@dataclasses.dataclass
class Variant:
    """Ours and its peers. bytes: read and written for a parameter, at least. unit: of the comparison, as bits of a mantissa
    beside `floor`; limit: in units."""

    name: str
    weights: str
    grads: str
    states: tuple  # master, exp_avg, exp_avg_sq
    peers: dict  # peer → target
    bytes: float
    bits: int = 8
    limit: float = 2
    floor: float = 0.0625
    peer_weights: str = ""
    clip: float = 0
    tensors: int = 1
    simd: str = ""
    count: int = COUNT
    timed: str = STEP


# Weights lie within 0.125 and three steps move them by 0.003. DeepSpeed takes 1 - beta2 in float32, off by 1e-5: a weight
# near zero then differs in many units of its own last place, but in few of 0.0625.
VARIANTS = [
    Variant("float32 weights and states", "float32", "float32", (FLOAT32,) * 3, {"deepspeed": 1.0, "torch_fused": 1.0}, 28,
            bits=24, limit=8),
    Variant("bfloat16 weights and states", "bfloat16", "bfloat16", (NEAREST,) * 3, {"deepspeed": 1.5, "torch_fused": 2.0}, 14),
    Variant("bfloat16 weights and states, AVX2 only", "bfloat16", "bfloat16", (NEAREST,) * 3, {"deepspeed_avx2": 3.0}, 14, simd="AVX2"),
    # A stochastic store is within a unit; three steps. Ours rounds three states so, torchao the weight.
    Variant("bfloat16 weights and states, stochastic", "bfloat16", "bfloat16", (STOCHASTIC,) * 3,
            {"nearest": 1 / 1.2, "torchao_stochastic": 1.3}, 14, limit=4),
    Variant("split master, bfloat16 moments", "split", "bfloat16", (SPLIT, STOCHASTIC, STOCHASTIC), {"deepspeed_cast": 1.6}, 18,
            peer_weights="published"),
    Variant("float32 weights, 8-bit moments", "float32", "float32", (FLOAT32, BLOCK8, BLOCK8), {"torchao_8bit": 2.0}, 16.1,
            limit=4),
    Variant("a whole step, float32 states", "published", "bfloat16", (FLOAT32,) * 3, {"deepspeed_whole": 1.4, "torch_whole": 1.4},
            30, clip=1.0, timed=WHOLE),
    Variant("a whole step, bfloat16 states", "bfloat16", "bfloat16", (NEAREST,) * 3, {"deepspeed_whole": 2.5}, 16, clip=1.0,
            timed=WHOLE),
    Variant("10000 tensors of 1000 elements, float32", "float32", "float32", (FLOAT32,) * 3,
            {"deepspeed": 10.0, "torch_fused": 3.0, "torch_foreach": 10.0}, 28, bits=24, limit=8,
            tensors=10000, count=10_000_000),
]


def run(bench):
    return [one for variant in VARIANTS for one in _variant(bench, variant)]


def _variant(bench, variant):
    size = "" if variant.tensors > 1 else f", {variant.count >> 20} Mi parameters"
    case = f"AdamW step, {variant.name}{size}, {THREADS} threads"

    def missing(reason):
        return [row(case, NAMES[peer], target, variant.timed, reason=reason) for peer, target in variant.peers.items()]

    return bench.measured(missing, lambda: _measure(bench, case, variant))


def _file(folder, name, variant, states):
    path = folder / name
    path.write_text(json.dumps({
        "type": "AdamW",
        "params": {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01},
        "gradient_clipping": variant.clip,
        "check_grad_overflow": variant.clip > 0,
        "states": dict(zip(("master", "exp_avg", "exp_avg_sq"), states, strict=True)),
    }))
    return path


def _measure(bench, case, variant):
    folder = bench.scratch(case.replace(" ", "-").replace(",", ""))
    file = _file(folder, "optimizer.json", variant, variant.states)
    cores = [set(bench.cores[:THREADS])]

    def ours(name, optimizer):
        return {"name": name, "cores": cores, "environment": {"OTR_SIMD": variant.simd} if variant.simd else {},
                "commands": [[bench.programs / "bench_optimizer_step", variant.weights, variant.grads, variant.count, variant.tensors,
                              THREADS, optimizer]]}

    def theirs(peer):
        if peer == "nearest":
            return ours(NAMES[peer], _file(folder, "nearest.json", variant, (NEAREST,) * 3))
        form = variant.peer_weights or variant.weights
        environment = bench.peer_environment(THREADS)
        if variant.simd:  # operators for another processor have a folder of their own
            environment["TORCH_EXTENSIONS_DIR"] += f"-{variant.simd}"
        return {"name": NAMES[peer], "cores": cores, "environment": environment,
                "commands": [bench.peer_command("optimizer_step.py", peer, form, variant.grads, variant.count, variant.tensors,
                                                THREADS, file)]}

    with bench.sides([ours(OURS, file), *(theirs(peer) for peer in variant.peers)]) as sides:
        own, numerics, facts = None, {}, {}
        for side, peer in zip(sides, [None, *variant.peers]):
            (fact,) = side.check(folder, 300)
            written = read_floats(folder / f"{'outrigger' if peer in (None, 'nearest') else peer}.weight")
            if peer is None:
                own, facts = written, fact
            else:
                numerics[peer] = compare(own, written, variant.bits, variant.floor)
        rounds = measure.interleave(sides, ROUNDS, 2, bench.deadline, bench.seed)
        return [_row(case, variant, peer, rounds, numerics[peer], facts) for peer in variant.peers]


def _row(case, variant, peer, rounds, numerics, facts):
    name, target = NAMES[peer], variant.peers[peer]
    numerics = {"agree": numerics["largest_difference_ulp"] <= variant.limit, **numerics}
    if not numerics["agree"]:
        return row(case, name, target, variant.timed, numerics=numerics, reason="the two sides' numbers differ")
    seconds = measure.quantile(rounds.seconds[OURS], 0.5)
    memory = memory_speed(rounds)
    speed = variant.bytes * variant.count / seconds / 1e9
    return row(case, name, target, variant.timed, rounds, name, numerics=numerics, memory=memory, ours_gb_per_s=speed,
               ours_ns_per_parameter=seconds / variant.count * 1e9, share_of_triad=speed / memory["triad"], **facts)
