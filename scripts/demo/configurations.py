# SPDX-License-Identifier: Apache-2.0
"""The three engine configurations that the demo compares. DeepSpeed reads the first two as they are."""

import copy

BASE = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_clipping": 1.0,
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": 4e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01},
    },
    "zero_optimization": {"stage": 3, "reduce_bucket_size": 65536},
    "bf16": {"enabled": True},
}


def configurations(batch):
    """name → (what it is, JSON object)"""
    float32 = copy.deepcopy(BASE)
    float32["train_micro_batch_size_per_gpu"] = batch

    nearest = copy.deepcopy(float32)
    nearest["bf16"].update(bf16_master_weights_and_grads=True, bf16_optimizer_states=True)

    stochastic = copy.deepcopy(nearest)
    stochastic["outrigger"] = {
        "states": {state: {"rounding": "stochastic"} for state in ("master", "exp_avg", "exp_avg_sq")}
    }
    return {
        "float32": ("float32 master and states", float32),
        "bf16-nearest": ("bf16 master and states, nearest even", nearest),
        "bf16-stochastic": ("bf16 master and states, stochastic", stochastic),
    }
