# SPDX-License-Identifier: Apache-2.0
"""A training on a GPU, where there is one: parameters, gradients and states are there, or the states are on the host.

    python gpu.py        outrigger run -n 2 -- python gpu.py
"""
import os

import torch
from torch import nn

import outrigger.torch


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 256), nn.Linear(256, 4)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def train(engine, steps):
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step * engine.world_size + engine.global_rank)
        x = torch.randn(32, 16, generator=generator).to(engine.device)
        loss = nn.functional.mse_loss(engine(x), x[:, :4].sin())
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0], "it does not learn"
    return losses


def main():
    device = "cpu"
    if torch.cuda.is_available():
        device = f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    config = {"train_micro_batch_size_per_gpu": 32, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
              "zero_optimization": {"stage": 2}}

    torch.manual_seed(0)
    model = Model().to(device)
    engine, *_ = outrigger.torch.initialize(model=model, config=config)
    losses = train(engine, 100)
    assert engine.device == model.first.weight.device
    engine.destroy()

    torch.manual_seed(0)
    config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    with outrigger.torch.zero.Init(device=device):
        model = Model()  # on the host, until initialize
    engine, *_ = outrigger.torch.initialize(model=model, config=config)
    offloaded = train(engine, 100)
    print(f"on {engine.device}: loss {losses[0]:.3f} to {losses[-1]:.3f}; with states on the host to {offloaded[-1]:.3f}")
    for purpose, resident, _ in engine.memory():
        print(f"  {purpose}: {resident} bytes")


main()
