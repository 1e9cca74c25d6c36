# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch adapter adds to a step: of a model of 10 M parameters on one rank, and for each parameter and module."""

import functools
import json

import measure
from bench_case import OURS, compare_losses, free_port, memory_speed, row

LAYERS, WIDTH, BATCH, CONTEXT, THREADS = 7, 256, 8, 128, 2
COUNT = 1000
ROUNDS = 9
# Beside the same optimizer a step takes at most 3 % longer; beside PyTorch's own, no longer.
CASE = f"GPT of 10 M parameters under PyTorch, {BATCH} x {CONTEXT} tokens, one rank, {THREADS} threads, float32, clip 1.0"
TIMED = "forward, loss, backward, global norm, clipping, AdamW; the same module, data and autograd on all sides"
SAME, PEER, SLICES = "plain PyTorch, our optimizer", "plain PyTorch", "stage 3 in slices"
PEERS = {SAME: (0.97, "plain_ours", "plain PyTorch and our optimizer on one flat tensor"),
         PEER: (1.0, "plain", "plain PyTorch, clip_grad_norm_ and fused AdamW")}
OPTIMIZER = {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.01}}


def configuration(stage=0, clip=1.0, own=None):
    return {"train_micro_batch_size_per_gpu": BATCH, "gradient_clipping": clip, "optimizer": OPTIMIZER,
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}, "outrigger": own or {}}


def run(bench):
    rows = [functools.partial(row, CASE, words, target, TIMED) for target, _, words in PEERS.values()]
    return bench.measured(lambda reason: [one(reason=reason) for one in rows], lambda: _measure(bench, rows))


def _side(bench, name, command, threads):
    return {"name": name, "cores": [set(bench.cores[:threads])], "commands": [command],
            "environment": {**bench.peer_environment(threads), "PYTHONPATH": str(bench.package)}}


def _write(bench, name, config):
    path = bench.scratch("torch-overhead") / f"{name}.json"
    path.write_text(json.dumps(config))
    return path


def _rounds(bench, specifications, tolerance):
    """Interleaved rounds of the sides, the losses of the first compared with all others'; None if they differ."""
    with bench.sides(specifications) as sides:
        losses = [[fact["losses"] for fact in side.check(bench.scratch("torch-overhead"), 300)] for side in sides[:-1]]
        checks = [compare_losses(losses[0], other, tolerance) for other in losses[1:]]
        if not all(check["agree"] for check in checks):
            return checks, None
        return checks, measure.interleave(sides, ROUNDS, 2, bench.deadline, bench.seed)


def _measure(bench, rows):
    config = _write(bench, "step", configuration())
    sides = [_side(bench, name, bench.peer_command("torch_training.py", side, 0, 1, free_port(), config, LAYERS, WIDTH, BATCH, CONTEXT),
                   THREADS) for name, side in ((OURS, "outrigger"), *((name, side) for name, (_, side, _) in PEERS.items()))]
    checks, rounds = _rounds(bench, sides, 1e-4)
    if rounds is None:
        return [one(numerics=check, reason="the sides' losses differ") for one, check in zip(rows, checks, strict=True)]
    facts = {"memory": memory_speed(rounds), "adapter_us": _small(bench)}
    return [one(rounds, peer, numerics=check, **facts) for one, peer, check in zip(rows, PEERS, checks, strict=True)]


def _small(bench):
    """Microseconds a step for each parameter (over plain PyTorch) and, of stage 3 in slices, for each module beside that."""
    stage0, stage3 = (_write(bench, name, config) for name, config in (
        ("small", configuration(clip=0)), ("slices", configuration(3, 0, {"share_parameters": False}))))
    sides = [_side(bench, name, bench.peer_command("torch_small.py", side, config, COUNT), 1)
             for name, side, config in ((OURS, "outrigger", stage0), (PEER, "plain", stage0), (SLICES, "outrigger", stage3))]
    _, rounds = _rounds(bench, sides, 1e-4)
    if rounds is None:
        return None
    steps = rounds.facts[OURS][0][0]["steps"]
    ours, plain, slices = (measure.summary(rounds.seconds[name])["median"] / steps / COUNT * 1e6 for name in (OURS, PEER, SLICES))
    return {"a parameter": ours - plain, "a module of stage 3 in slices, with its gather": slices - ours, "plain PyTorch's own, a parameter": plain}
