# SPDX-License-Identifier: Apache-2.0
"""FSDP2 with masters and moments on the host: PyTorch's own training loop, and one line of it changed. Stopped in the middle and
gone on from a checkpoint of torch.distributed.

    outrigger run -n 2 -- python offload.py FOLDER        torchrun --nproc-per-node 2 offload.py FOLDER
"""
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import outrigger.torch

LOW = {"format": "bfloat16"}  # rounded at random: seed, step and place of an element decide


def sharded(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4)).to(torch.bfloat16)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    return model


def optimizer_of(model):
    optimizer = outrigger.torch.OffloadedAdamW(model.parameters(), lr=0.01, max_norm=1.0,
                                               states={"exp_avg": LOW, "exp_avg_sq": LOW})
    return optimizer


def batch(step):
    generator = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    x = torch.randn(32, 8, generator=generator)
    return x.bfloat16(), x[:, :4] * x[:, 4:]


def train(model, optimizer, steps):
    losses = []
    for step in steps:
        x, target = batch(step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x).float(), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(folder):
    dist.init_process_group("gloo")
    model = sharded(seed=0)
    optimizer = optimizer_of(model)
    losses = train(model, optimizer, range(150))
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder)
    losses += train(model, optimizer, range(150, 300))

    again = sharded(seed=1)
    resumed = optimizer_of(again)
    weights, states = get_state_dict(again, resumed)
    dcp.load({"model": weights, "optimizer": states}, checkpoint_id=folder)
    set_state_dict(again, resumed, model_state_dict=weights, optim_state_dict=states)
    repeated = train(again, resumed, range(150, 300))

    local = sum(each.to_local().numel() for each in model.parameters())
    taken = optimizer.host_bytes()["states"] / max(local, 1)
    print(f"rank {dist.get_rank()}: loss {losses[0]:.3f} to {losses[-1]:.3f}, norm {optimizer.grad_norm:.3f}, {taken:.1f} bytes of states "
          f"a parameter; gone on from the checkpoint: {'the same' if repeated == losses[150:] else 'OTHER'} losses")
    assert losses[-1] < 0.6 * losses[0], "it does not learn"
    assert repeated == losses[150:] and taken == 6
    dist.destroy_process_group()


main(sys.argv[1])
