# SPDX-License-Identifier: Apache-2.0
"""A caller's DeepSpeedCPUAdam with bf16 states, offload, and a scheduler of PyTorch."""
import deepspeed
import torch
from common import batch, mlp, tell
from deepspeed.ops.adam import DeepSpeedCPUAdam

config = {
    "train_micro_batch_size_per_gpu": 8, "gradient_clipping": 1.0,
    "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
}
deepspeed.init_distributed()
model = mlp()
optimizer = DeepSpeedCPUAdam(model.parameters(), lr=0.01, weight_decay=0.01, fp32_optimizer_states=False)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 10))
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=scheduler, config=config)
for step in range(20):
    x, y = batch(step)
    loss = torch.nn.functional.cross_entropy(engine(x.bfloat16()).float(), y)
    engine.backward(loss)
    engine.step()
    tell(step, loss)
