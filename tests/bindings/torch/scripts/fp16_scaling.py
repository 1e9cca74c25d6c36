# SPDX-License-Identifier: Apache-2.0
"""fp16 with a loss scale that is too high at first: steps are skipped until it fits."""
import deepspeed
import torch
from common import batch, mlp, tell

config = {
    "train_micro_batch_size_per_gpu": 8, "gradient_clipping": 1.0, "optimizer": {"type": "Adam", "params": {"lr": 0.003}},
    "fp16": {"enabled": True, "initial_scale_power": 22, "hysteresis": 1, "loss_scale_window": 1000},
    "zero_optimization": {"stage": 2},
}
deepspeed.init_distributed()
model = mlp()
engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for step in range(20):
    x, y = batch(step)
    loss = torch.nn.functional.cross_entropy(engine(x.half()).float(), y)
    engine.backward(loss)
    engine.step()
    tell(step, loss)
assert 0 < engine.skipped_steps < 20, engine.skipped_steps
assert optimizer.cur_scale == 2.0 ** (22 - engine.skipped_steps), optimizer.cur_scale
