# SPDX-License-Identifier: Apache-2.0
"""Two engines in a chain, with accumulation steps of their own: an encoder, and a head that trains on what it gives.

    python chain.py        outrigger run -n 2 --max-restarts 3 -- python chain.py --checkpoints DIR
"""
import argparse
import os

import torch
from torch import nn

import outrigger.torch


def engine_of(model, steps, stage):
    config = {"train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": steps,
              "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": stage}}
    return outrigger.torch.initialize(model=model, config=config)[0]


def main(folder):
    torch.manual_seed(0)
    encoder = engine_of(nn.Sequential(nn.Linear(8, 32), nn.Tanh()), steps=2, stage=3)
    head = engine_of(nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)), steps=4, stage=1)
    folders = [os.path.join(folder, name) for name in ("encoder", "head")] if folder else []
    _, state = encoder.load_checkpoint(folders[0]) if folder else (None, None)  # None, None: nothing is there yet
    losses = state["losses"] if state else []
    if state:
        head.load_checkpoint(folders[1], tag=f"micro{len(losses)}")  # of the same moment, which need not be its latest
    for micro in range(len(losses), 800):
        generator = torch.Generator().manual_seed(micro * encoder.world_size + encoder.global_rank)  # each rank has batches of its own
        x = torch.randn(16, 8, generator=generator)
        target = x.prod(1, keepdim=True).tanh() + x[:, :1]

        # Where the two are in different processes, the embedding's gradient is what travels.
        embedding = encoder(x)
        received = embedding.detach().requires_grad_()
        loss = nn.functional.mse_loss(head(received), target)
        loss.backward()
        embedding.backward(received.grad)

        encoder.step()  # an update every 2nd time
        head.step()     # every 4th
        losses.append(loss.item())
        if folder and (micro + 1) % 200 == 0:  # both are between two windows
            head.save_checkpoint(folders[1], tag=f"micro{micro + 1}")
            encoder.save_checkpoint(folders[0], tag=f"micro{micro + 1}", client_state={"losses": losses})  # last: it says which moment is whole
    first, last = sum(losses[:80]) / 80, sum(losses[-80:]) / 80
    print(f"mean loss of the first 80 micro-batches {first:.3f}, of the last 80 {last:.3f}; updates: encoder "
          f"{encoder.global_steps}, head {head.global_steps}")
    assert (encoder.global_steps, head.global_steps) == (400, 200)
    assert last < 0.5 * first, "it does not learn"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--checkpoints", metavar="DIR", help="save the training here, and go on from here")
main(parser.parse_args().checkpoints)
