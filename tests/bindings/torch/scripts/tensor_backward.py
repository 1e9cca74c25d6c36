# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own backward: a loss of two engines computed outside, and a tensor's backward with a gradient."""
import deepspeed
import torch
from common import batch, mlp, tell

config = {"train_micro_batch_size_per_gpu": 8, "optimizer": {"type": "AdamW", "params": {"lr": 0.005}},
          "zero_optimization": {"stage": 2}}
deepspeed.init_distributed()
models = mlp(), mlp(hidden=32)
engines = [deepspeed.initialize(model=model, model_parameters=model.parameters(), config=dict(config))[0] for model in models]
for step in range(10):
    x, y = batch(step)
    loss = torch.nn.functional.cross_entropy(engines[0](x) * engines[1](x).sigmoid(), y)
    loss.backward()
    for engine in engines:
        engine.step()
    tell(step, loss)
for step in range(10, 20):
    x, y = batch(step)
    logits = engines[0](x)
    loss = torch.nn.functional.cross_entropy(logits.detach().requires_grad_(), y)
    leaf = logits.detach().requires_grad_()
    torch.nn.functional.cross_entropy(leaf, y).backward()
    logits.backward(leaf.grad)
    engines[0].step()
    tell(step, loss)
