# SPDX-License-Identifier: Apache-2.0
"""A GAN: two engines, and gradients that one of them has to forget.

    python gan.py        outrigger run -n 2 --max-restarts 3 -- python gan.py --checkpoints DIR
"""
import argparse
import os

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


def main(folder):
    torch.manual_seed(0)
    generator = engine_of(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)))
    critic = engine_of(nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)))
    loss_of = nn.functional.binary_cross_entropy_with_logits
    random = torch.Generator().manual_seed(100 + generator.global_rank)
    folders = [os.path.join(folder, name) for name in ("generator", "critic")] if folder else []
    _, state = generator.load_checkpoint(folders[0]) if folder else (None, None)  # None, None: nothing is there yet
    means = state["means"] if state else []
    if state:
        critic.load_checkpoint(folders[1], tag=f"global_step{len(means)}")  # of the same moment, which need not be its latest
        random.set_state(state["random"])
    for step in range(len(means), 500):
        critic.zero_grad()  # what the generator's backward left there
        fake = generator(torch.randn(64, 4, generator=random))
        loss = loss_of(critic(real(random)), torch.ones(64, 1)) + loss_of(critic(fake.detach()), torch.zeros(64, 1))
        loss.backward()
        critic.step()

        generator.zero_grad()
        loss_of(critic(fake), torch.ones(64, 1)).backward()
        generator.step()
        means.append(fake.detach().mean(0))
        if folder and (step + 1) % 100 == 0:
            critic.zero_grad()  # between two windows
            critic.save_checkpoint(folders[1])
            generator.save_checkpoint(folders[0], client_state={"means": means, "random": random.get_state()})  # last: it says which moment is whole
    mean = torch.stack(means[-200:]).mean(0)  # the two circle around their balance
    print(f"the mean of what is generated: ({mean[0]:.2f}, {mean[1]:.2f}); of what is real: (2, -1)")
    assert (mean - torch.tensor([2.0, -1.0])).norm() < 0.7, "it does not learn"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--checkpoints", metavar="DIR", help="save the training here, and go on from here")
main(parser.parse_args().checkpoints)
