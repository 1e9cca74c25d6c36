# SPDX-License-Identifier: Apache-2.0
"""Accumulation over four micro-batches at stage 2 with a warm-up schedule from the configuration, bf16."""
import deepspeed
import torch
from common import batch, mlp, tell

config = {
    "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4, "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 0.01, "warmup_num_steps": 4, "total_num_steps": 12}},
    "bf16": {"enabled": True}, "zero_optimization": {"stage": 2},
}
deepspeed.init_distributed()
model = mlp()
engine, _, _, scheduler = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for micro in range(40):
    x, y = batch(micro)
    loss = torch.nn.functional.cross_entropy(engine(x.bfloat16()).float(), y)
    engine.backward(loss)
    boundary = engine.is_gradient_accumulation_boundary()
    engine.step()
    if boundary:
        tell(engine.global_steps, loss)
assert engine.global_steps == 10 and len(engine.get_lr()) == 1
