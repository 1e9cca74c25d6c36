# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of a whole training step under PyTorch, against DeepSpeed's engine and against DDP with fused AdamW."""

import functools
import json

import measure
from bench_case import OURS, compare_losses, free_port, memory_speed, remove_deepspeed_buffers, row

LAYERS, WIDTH, BATCH, CONTEXT, RANKS = 6, 512, 2, 128, 2
ROUNDS = 9
TARGETS = {1: 1.25, 2: 1.25, 3: 1.5}
DDP = {"ddp": "DDP over gloo, torch fused AdamW, float32 module and states", "ddp_bf16": "DDP over gloo, torch fused AdamW, bfloat16 module and states"}
DDP_TARGET = 1.0
AUTOGRAD = "autograd alone"
TIMED = (
    "from a barrier of the ranks to the last rank's return: forward in bf16 autocast, loss, backward, gradients reduced, global norm, "
    "clipping, AdamW, parameters published; the same model, data and autograd on all sides"
)


def configuration(stage):
    """The same file for ours and DeepSpeed; the states are in host memory on both."""
    return {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
        "torch_autocast": {"enabled": True, "dtype": "bfloat16"},
        "zero_optimization": {"stage": stage, "offload_optimizer": {"device": "cpu"}},
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.01},
        },
    }


def run(bench):
    return [result for stage in TARGETS for result in _stage(bench, stage)]


def _stage(bench, stage):
    case = f"GPT of 27 M parameters under PyTorch, {BATCH} x {CONTEXT} tokens a rank, stage {stage}, {RANKS} ranks, bf16, clip 1.0"
    rows = [functools.partial(row, case, f"DeepSpeed 0.19.8 stage {stage} over gloo", TARGETS[stage], TIMED),
            *(functools.partial(row, case, name, DDP_TARGET, TIMED) for name in DDP.values())]
    return bench.measured(lambda reason: [one(reason=reason) for one in rows], lambda: _measure(bench, stage, rows))


def _measure(bench, stage, rows):
    config = bench.scratch(f"torch-training-{stage}") / "config.json"
    config.write_text(json.dumps(configuration(stage)))
    cores = [{core} for core in bench.cores[:RANKS]]
    ports = {side: free_port() for side in ("outrigger", "deepspeed", *DDP, "autograd")}
    names = {"outrigger": OURS, "deepspeed": f"DeepSpeed stage {stage}", **DDP, "autograd": AUTOGRAD}
    try:
        specifications = [{
            "name": names[side], "cores": cores,
            "commands": [bench.peer_command("torch_training.py", side, rank, RANKS, port, config, LAYERS, WIDTH, BATCH, CONTEXT)
                         for rank in range(RANKS)],
            "environment": {**bench.peer_environment(1), "PYTHONPATH": str(bench.package)},
        } for side, port in ports.items()]
        with bench.sides(specifications) as sides:
            losses = {side.name: [fact["losses"] for fact in side.check(bench.scratch("torch-training"), 300)] for side in sides[:4]}
            numerics = compare_losses(losses[OURS], losses[names["deepspeed"]], 5e-3)
            if not numerics["agree"]:
                return [one(numerics=numerics, reason="the two sides' losses differ") for one in rows]
            rounds = measure.interleave(sides, ROUNDS, 2, bench.deadline, bench.seed)
            tokens = {name: RANKS * BATCH * CONTEXT / measure.summary(rounds.seconds[name])["median"] for name in names.values()}
            # What an engine that costs nothing would reach.
            peers = [names[side] for side in ("deepspeed", *DDP)]
            return [one(rounds, peer, numerics=numerics, memory=memory_speed(rounds), tokens_per_second=tokens,
                        ceiling=rounds.ratio(peer, AUTOGRAD)["median"]) for one, peer in zip(rows, peers, strict=True)]
    finally:
        remove_deepspeed_buffers(ports["deepspeed"])
