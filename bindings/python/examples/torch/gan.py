# SPDX-License-Identifier: Apache-2.0
"""A GAN: two engines, and gradients that one of them has to forget.

    python gan.py        outrigger run -n 2 -- python gan.py
"""
import torch
from torch import nn

import outrigger.torch


def engine_of(model):
    config = {"train_micro_batch_size_per_gpu": 64, "optimizer": {"type": "AdamW", "params": {"lr": 0.002, "betas": [0.5, 0.99]}},
              "zero_optimization": {"stage": 2}, "gradient_clipping": 0}
    return outrigger.torch.initialize(model=model, config=config)[0]


def real(generator):
    """Points of a normal distribution at (2, -1)."""
    return torch.randn(64, 2, generator=generator) * 0.5 + torch.tensor([2.0, -1.0])


def main():
    torch.manual_seed(0)
    generator = engine_of(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)))
    critic = engine_of(nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)))
    loss_of = nn.functional.binary_cross_entropy_with_logits
    random = torch.Generator().manual_seed(100 + generator.global_rank)
    means = []
    for _ in range(500):
        critic.zero_grad()  # what the generator's backward left there
        fake = generator(torch.randn(64, 4, generator=random))
        loss = loss_of(critic(real(random)), torch.ones(64, 1)) + loss_of(critic(fake.detach()), torch.zeros(64, 1))
        loss.backward()
        critic.step()

        generator.zero_grad()
        loss_of(critic(fake), torch.ones(64, 1)).backward()
        generator.step()
        means.append(fake.detach().mean(0))
    mean = torch.stack(means[-200:]).mean(0)  # the two circle around their balance
    print(f"the mean of what is generated: ({mean[0]:.2f}, {mean[1]:.2f}); of what is real: (2, -1)")
    assert (mean - torch.tensor([2.0, -1.0])).norm() < 0.7, "it does not learn"


main()
