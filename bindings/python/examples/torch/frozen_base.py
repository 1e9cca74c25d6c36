# SPDX-License-Identifier: Apache-2.0
"""A frozen base with small trainable matrices beside it (LoRA): only those have gradients, masters and states.

    python frozen_base.py        outrigger run -n 2 --max-restarts 3 -- python frozen_base.py --checkpoints DIR
"""
import argparse

import torch
from torch import nn

import outrigger.torch


class LowRank(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(0.1 * torch.randn(rank, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T


def main(folder):
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(16, 128), nn.Tanh(), nn.Linear(128, 4))
    model = nn.Sequential(LowRank(base[0]), base[1], LowRank(base[2]))
    engine, _, _, _ = outrigger.torch.initialize(
        model=model, model_parameters=[each for each in model.parameters() if each.requires_grad],
        config={"train_micro_batch_size_per_gpu": 32, "optimizer": {"type": "AdamW", "params": {"lr": 0.02}},
                "zero_optimization": {"stage": 3}, "bf16": {"enabled": True}})
    before = base[0].weight.clone()
    _, state = engine.load_checkpoint(folder) if folder else (None, None)  # None, None: nothing is there yet
    losses = state["losses"] if state else []
    for step in range(len(losses), 300):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(32, 16, generator=generator)
        loss = nn.functional.mse_loss(engine(x.bfloat16()).float(), x[:, :4].sin())
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
        if folder and (step + 1) % 100 == 0:
            engine.save_checkpoint(folder, client_state={"losses": losses})
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    print(f"trained {trained} of {sum(each.numel() for each in model.parameters())} parameters: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    for purpose, resident, _ in engine.memory():
        print(f"  {purpose}: {resident} bytes")
    assert torch.equal(base[0].weight, before)
    assert losses[-1] < 0.5 * losses[0], "it does not learn"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--checkpoints", metavar="DIR", help="save the training here, and go on from here")
main(parser.parse_args().checkpoints)
