# SPDX-License-Identifier: Apache-2.0
"""One optimizer step, in each way of storing weights and states, against those who do the same."""

import dataclasses
import json

import measure
from bench_case import OURS, compare, memory_speed, read_floats, row
from sides import SideFailed

COUNT, THREADS = 64 << 20, 2
ROUNDS = 15
CHECK_SECONDS = 120  # a side that takes longer for three steps would take the whole time of the benchmark
LOOP, LOOP_BYTES = "loop", 28  # of an element: four float32 arrays, three of them written
NEAREST, STOCHASTIC = ({"format": "bfloat16", "rounding": each} for each in ("nearest", "stochastic"))
FLOAT32, SPLIT, BLOCK8 = ({"format": each} for each in ("float32", "split", "block8"))
OWN = {"nearest": (NEAREST,) * 3, "float32_states": (FLOAT32,) * 3}  # our own step with other states
OF_OURS = (LOOP, *OWN)  # need no peer's environment
NAMES = {
    "deepspeed": "DeepSpeed 0.19.8 CPUAdam",
    "deepspeed_avx2": "DeepSpeed 0.19.8 CPUAdam compiled for AVX2",
    "deepspeed_cast": "DeepSpeed 0.19.8 CPUAdam, float32 states, and the casts",
    "deepspeed_whole": "DeepSpeed 0.19.8's sequence: a norm of each tensor, mul_, CPUAdam, cast of float32 weights",
    "torch_fused": "torch 2.15.0 fused AdamW",
    "torch_foreach": "torch 2.15.0 foreach AdamW",
    "torch_whole": "torch 2.15.0: clip_grad_norm_, fused AdamW, cast of float32 weights",
    "deepspeed_muon": "DeepSpeed 0.19.8 MuonWithAuxAdam",
    "torch_muon": "torch 2.15.0 Muon",
    "torchao_stochastic": "torchao 0.18.0 AdamW with stochastic rounding",
    "torchao_8bit": "torchao 0.18.0 AdamW8bit",
    "nearest": "ours, rounded to nearest",
    "float32_states": "ours, float32 moments",
    LOOP: "read-modify-write loop over the same bytes",
}
STEP = "one call of the step, update only: no norm and no look for Inf and NaN on either side (ours: check_grad_overflow false)"
WHOLE = "norm, Inf and NaN, clipping, update and the bfloat16 copy of float32 weights, by both sides"

ORTHOGONAL = "one call of the step: momentum, five Newton-Schulz iterations (ours and DeepSpeed's in float32, PyTorch's in bfloat16), update"


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
    rows: int = 0  # of each tensor, a matrix; 0: flat ones, and AdamW


# Weights lie within 0.125 and three steps move them by 0.003. DeepSpeed takes 1 - beta2 in float32, off by 1e-5: a weight
# near zero then differs in many units of its own last place, but in few of 0.0625.
VARIANTS = [
    Variant("float32 weights and states", "float32", "float32", (FLOAT32,) * 3,
            {"deepspeed": 1.0, "torch_fused": 1.0, LOOP: 0.9}, 28, bits=24, limit=8),
    Variant("bfloat16 weights and states", "bfloat16", "bfloat16", (NEAREST,) * 3, {"deepspeed": 1.5, "torch_fused": 2.0}, 14),
    Variant("bfloat16 weights and states, AVX2 only", "bfloat16", "bfloat16", (NEAREST,) * 3, {"deepspeed_avx2": 3.0}, 14, simd="AVX2"),
    # A stochastic store is within a unit; three steps. Ours rounds three states so, torchao the weight.
    Variant("bfloat16 weights and states, stochastic", "bfloat16", "bfloat16", (STOCHASTIC,) * 3,
            {"nearest": 1 / 1.2, "torchao_stochastic": 1.3}, 14, limit=4),
    Variant("split master, bfloat16 moments", "split", "bfloat16", (SPLIT, STOCHASTIC, STOCHASTIC), {"deepspeed_cast": 1.6}, 18,
            peer_weights="published"),
    Variant("float32 weights, 8-bit moments", "float32", "float32", (FLOAT32, BLOCK8, BLOCK8), {"torchao_8bit": 2.0, "float32_states": 1.0}, 16.1,
            limit=4),
    Variant("a whole step, 64 tensors of 1 Mi parameters, float32 states", "published", "bfloat16", (FLOAT32,) * 3,
            {"deepspeed_whole": 1.4, "torch_whole": 1.4}, 30, clip=1.0, tensors=64, timed=WHOLE),
    Variant("a whole step, 64 tensors of 1 Mi parameters, bfloat16 states", "bfloat16", "bfloat16", (NEAREST,) * 3,
            {"deepspeed_whole": 2.5, "torch_whole": 2.0}, 16, clip=1.0, tensors=64, timed=WHOLE),
    Variant("10000 tensors of 1000 elements, float32", "float32", "float32", (FLOAT32,) * 3,
            {"deepspeed": 10.0, "torch_fused": 3.0, "torch_foreach": 10.0}, 28, bits=24, limit=8,
            tensors=10000, count=10_000_000),
    # A step moves a weight by about 5e-4; PyTorch's iteration is in bfloat16.
    Variant("12 matrices of 1536 x 1536, float32", "float32", "float32", (FLOAT32,) * 3, {"deepspeed_muon": 1.0, "torch_muon": 1.0},
            20, limit=8, floor=2**-7, tensors=12, count=12 * 1536**2, timed=ORTHOGONAL, rows=1536),
]


def run(bench):
    return [one for variant in VARIANTS for one in _variant(bench, variant)]


def _variant(bench, variant):
    size = "" if variant.tensors > 1 else f", {variant.count >> 20} Mi parameters"
    case = f"{'Muon' if variant.rows else 'AdamW'} step, {variant.name}{size}, {THREADS} threads"

    def missing(peers, reason):
        return [row(case, NAMES[peer], variant.peers[peer], variant.timed, reason=reason) for peer in peers]

    peers = [peer for peer in variant.peers if peer in OF_OURS or not bench.peer_missing]
    absent = missing([peer for peer in variant.peers if peer not in peers], bench.peer_missing)
    if not peers:
        return absent
    return absent + bench.measured(lambda reason: missing(peers, reason), lambda: _measure(bench, case, variant, peers),
                                   needs_peers=False)


def optimizer_file(folder, name, variant, states):
    path = folder / name
    adam = {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}
    path.write_text(json.dumps({
        "type": "Muon" if variant.rows else "AdamW",
        "params": {"lr": 0.02, "momentum": 0.95, "weight_decay": 0.01} if variant.rows else adam,
        "gradient_clipping": variant.clip,
        "check_grad_overflow": variant.clip > 0,
        "states": dict(zip(("master", "exp_avg", "exp_avg_sq"), states, strict=True)),
    }))
    return path


def loop_count(variant):
    """Elements over which the loop moves as many bytes as the step."""
    return max(1, round(variant.count * variant.bytes / LOOP_BYTES))


def specification(bench, variant, who, folder, threads):
    """A side (see Bench.sides): ours, one of the peers, or the loop."""
    result = {"name": NAMES.get(who, who), "cores": [set(bench.cores[:threads])]}
    if who == LOOP:
        return {**result, "commands": [[bench.programs / "bench_read_modify_write", loop_count(variant), threads]]}
    file = optimizer_file(folder, f"{who}.json", variant, OWN.get(who, variant.states))
    sizes = [variant.count, variant.tensors, threads, file, *([variant.rows] if variant.rows else [])]
    if who in (OURS, *OWN):
        return {**result, "environment": {"OTR_SIMD": variant.simd} if variant.simd else {},
                "commands": [[bench.programs / "bench_optimizer_step", variant.weights, variant.grads, *sizes]]}
    environment = bench.peer_environment(threads)
    if variant.simd:  # operators for another processor have a folder of their own
        environment["TORCH_EXTENSIONS_DIR"] += f"-{variant.simd}"
    form = variant.peer_weights or variant.weights
    return {**result, "environment": environment,
            "commands": [bench.peer_command("optimizer_step.py", who, form, variant.grads, *sizes)]}


def check(side, who, folder):
    """The weights after three steps, and what the side says of them."""
    (facts,) = side.check(folder, CHECK_SECONDS)
    return read_floats(folder / f"{'outrigger' if who in (OURS, *OWN) else who}.weight"), facts


def agreement(variant, own, written):
    numbers = compare(own, written, variant.bits, variant.floor)
    return {"agree": numbers["largest_difference_ulp"] <= variant.limit, **numbers}


def _measure(bench, case, variant, peers):
    folder = bench.scratch(case.replace(" ", "-").replace(",", ""))
    compared = [peer for peer in peers if peer != LOOP]
    names = [OURS, *compared, LOOP]
    with bench.sides([specification(bench, variant, who, folder, THREADS) for who in names]) as sides:
        ours, *others, loop, memory = sides
        own, facts = check(ours, OURS, folder)
        numerics, failed, running = {}, {}, []
        for side, peer in zip(others, compared, strict=True):
            try:
                numerics[peer] = agreement(variant, own, check(side, peer, folder)[0])
                running.append(side)
            except SideFailed as failure:  # it alone is not measured
                failed[peer] = str(failure)
                side.close()
        (loop_facts,) = loop.check(folder, CHECK_SECONDS)
        rounds = measure.interleave([ours, *running, loop, memory], ROUNDS, 2, bench.deadline, bench.seed)
    facts["roofline"] = {"bytes_per_parameter": variant.bytes, "loop_form": loop_facts["form"],
                         "loop_gb_per_s": _speed(variant, rounds, NAMES[LOOP]), "ours_gb_per_s": _speed(variant, rounds, OURS),
                         "share": rounds.ratio(NAMES[LOOP], OURS)["median"]}
    if variant.rows:
        facts["products_gflop_per_s"] = _products(variant, rounds, [OURS, *(NAMES[peer] for peer in numerics)])
    rows = [row(case, NAMES[peer], variant.peers[peer], variant.timed, reason=reason) for peer, reason in failed.items()]
    rows += [_row(case, variant, peer, rounds, numerics.get(peer), facts) for peer in peers if peer not in failed]
    for each in rows:
        if each["peer"] == NAMES[LOOP]:
            each["forms_gb_per_s"] = loop_facts["forms_gb_per_s"]
    return rows


def _products(variant, rounds, names):
    """What bounds Muon: each of its five iterations has three products, of square matrices here. Whole steps, counted as if
    nobody made use of two of them being symmetric."""
    flop = variant.tensors * 5 * 3 * 2 * variant.rows**3
    return {name: flop / measure.quantile(rounds.seconds[name], 0.5) / 1e9 for name in names}


def _speed(variant, rounds, name):
    return variant.bytes * variant.count / measure.quantile(rounds.seconds[name], 0.5) / 1e9


def _row(case, variant, peer, rounds, numerics, facts):
    name, target = NAMES[peer], variant.peers[peer]
    if peer == LOOP:
        facts = {**facts, "timed": "our step, and one pass of the loop that moves as many bytes"}
    else:
        facts = {**facts, "timed": variant.timed, "numerics": numerics}
        if not numerics["agree"]:
            return row(case, name, target, variant.timed, numerics=numerics, reason="the two sides' numbers differ")
        # What a step at the loop's speed would reach against this peer.
        facts["roofline"] = {**facts["roofline"], "ceiling": rounds.ratio(name, NAMES[LOOP])["median"]}
    seconds = measure.quantile(rounds.seconds[OURS], 0.5)
    memory = memory_speed(rounds)
    speed = _speed(variant, rounds, OURS)
    return row(case, name, target, facts.pop("timed"), rounds, name, memory=memory, ours_gb_per_s=speed,
               ours_ns_per_parameter=seconds / variant.count * 1e9, share_of_triad=speed / memory["triad"], **facts)
