# SPDX-License-Identifier: Apache-2.0
"""Looks at gradients, masters and states, and changes one: deepspeed.utils.safe_*."""
import deepspeed
import torch
from common import batch, mlp, tell
from deepspeed.utils import (safe_get_full_fp32_param, safe_get_full_grad, safe_get_full_optimizer_state, safe_set_full_fp32_param,
                             safe_set_full_optimizer_state)

config = {"train_micro_batch_size_per_gpu": 8, "gradient_clipping": 0.0, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
          "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}
deepspeed.init_distributed()
model = mlp()
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for step in range(6):
    x, y = batch(step)
    loss = torch.nn.functional.cross_entropy(engine(x.bfloat16()).float(), y)
    engine.backward(loss)
    tell(10 * step, loss)
    weight = engine.module[2].weight
    tell(10 * step + 1, safe_get_full_grad(weight).float().norm())
    engine.step()
    tell(10 * step + 2, safe_get_full_fp32_param(weight).norm())
    tell(10 * step + 3, safe_get_full_optimizer_state(weight, "exp_avg").norm())
    if step == 3:
        safe_set_full_fp32_param(weight, safe_get_full_fp32_param(weight))
        safe_set_full_optimizer_state(weight, torch.zeros(48, 48), "exp_avg")
