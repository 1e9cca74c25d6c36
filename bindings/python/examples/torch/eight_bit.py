# SPDX-License-Identifier: Apache-2.0
"""AdamW with moments in 8 bits, as bitsandbytes' AdamW8bit has them, in a plain loop: no engine, one line changed.

    python eight_bit.py
"""
import torch
from torch import nn

import outrigger.torch

EIGHT_BIT = {"format": "block8"}  # a scale for each block, rounded at random


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 1024), nn.Tanh(), nn.Linear(1024, 4)).to(torch.bfloat16)
    optimizer = outrigger.torch.OffloadedAdamW(model.parameters(), lr=0.01, states={"exp_avg": EIGHT_BIT, "exp_avg_sq": EIGHT_BIT})
    losses = []
    for _ in range(300):
        x = torch.randn(32, 8)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x.bfloat16()).float(), x[:, :4] * x[:, 4:])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    bytes_each = optimizer.host_bytes()["states"] / sum(each.numel() for each in model.parameters())
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, {bytes_each:.2f} bytes of states a parameter")
    assert sum(losses[-20:]) < 0.6 * sum(losses[:20]), "it does not learn"
    assert bytes_each < 4.5


main()
