# SPDX-License-Identifier: Apache-2.0
"""The ways of storing master weights and moments that are compared. Compute and gradients are bfloat16 in all of them, so
nothing but the states differs."""

import copy
from typing import Any, NamedTuple


class Variant(NamedTuple):
    title: str
    states: dict[str, Any]  # outrigger.states
    deepspeed: bool = False  # asked for with DeepSpeed's keys: rounded to nearest, with warnings


def _states(master: str, moments: str) -> dict[str, Any]:
    # No "rounding": the library's own keys mean stochastic.
    return {"master": {"format": master}, "exp_avg": {"format": moments}, "exp_avg_sq": {"format": moments}}


FLOAT32 = "float32"  # what all others are compared with
NEAREST = "bf16-nearest"  # what DeepSpeed's keys mean
VARIANTS = {
    FLOAT32: Variant("float32 master and moments", {}),
    NEAREST: Variant("bf16 master and moments, nearest even", {}, deepspeed=True),
    "bf16-stochastic": Variant("bf16 master and moments, stochastic", _states("bfloat16", "bfloat16")),
    "split": Variant("split master, bf16 moments, stochastic", _states("split", "bfloat16")),
    "bf16-block8": Variant("bf16 master, 8-bit moments, stochastic", _states("bfloat16", "block8")),
    "split-block8": Variant("split master, 8-bit moments, stochastic", _states("split", "block8")),
}
GOAL = ("split", "bf16-stochastic")  # these have to match float32

# What four ranks send of their gradients, as two hosts or on one level, and of their weights.
RANKS, HOSTS = 4, 2
WAYS = {FLOAT32: "float32", "hosts": "8-bit blocks of two hosts' sums", "ranks": "8-bit blocks of each rank's gradient",
        "weights": "8-bit integers of weights", "both": "8-bit integers of weights, 8-bit blocks of two hosts' sums"}

BASE: dict[str, Any] = {
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}},
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 1},  # stage 0 is the float32 baseline: no low-precision master
}


def configuration(name: str, seed: int = 1, **params: Any) -> dict[str, Any]:
    """An engine's configuration. seed: of stochastic rounding; params: of the optimizer."""
    variant, config = VARIANTS[name], copy.deepcopy(BASE)
    config["optimizer"]["params"].update(params)
    if variant.deepspeed:
        config["bf16"].update(bf16_master_weights_and_grads=True, bf16_optimizer_states=True)
    config["outrigger"] = {"seed": seed, "states": copy.deepcopy(variant.states)}
    return config
