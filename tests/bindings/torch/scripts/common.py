# SPDX-License-Identifier: Apache-2.0
"""Data and printing of the scripts; the rest of each is as DeepSpeed's documentation writes it."""
import torch
import torch.distributed


def batch(step, inputs=16, classes=8, size=8):
    """This rank's micro-batch: inputs, and a class for each that depends on them."""
    generator = torch.Generator().manual_seed(1000 * torch.distributed.get_rank() + step)
    x = torch.randn(size, inputs, generator=generator)
    return x, (x[:, :classes] + 0.1 * torch.randn(size, classes, generator=generator)).argmax(1)


def tell(step, loss):
    """Rank 0 prints the mean over ranks."""
    value = torch.as_tensor(loss).detach().double().clone()
    torch.distributed.all_reduce(value)
    if torch.distributed.get_rank() == 0:
        print(f"loss {step} {value.item() / torch.distributed.get_world_size():.9g}", flush=True)


def mlp(inputs=16, hidden=48, outputs=8):
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(inputs, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, hidden), torch.nn.Tanh(),
                               torch.nn.Linear(hidden, outputs))
