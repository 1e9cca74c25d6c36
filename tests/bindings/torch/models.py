# SPDX-License-Identifier: Apache-2.0
"""What the tests of outrigger.torch share: small models, plain PyTorch as the reference, configurations."""
import copy

import torch

import outrigger
import outrigger.torch
from outrigger import lowlevel


class Net(torch.nn.Module):
    def __init__(self, inputs=6, hidden=16, outputs=4):
        super().__init__()
        self.a = torch.nn.Linear(inputs, hidden)
        self.b = torch.nn.Linear(hidden, hidden)
        self.c = torch.nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


def net(seed=0, **sizes):
    torch.manual_seed(seed)
    return Net(**sizes)


ADAMW = {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}}
PRECISIONS = {"float32": {}, "bf16": {"bf16": {"enabled": True}},
              "fp16": {"fp16": {"enabled": True, "initial_scale_power": 10}}}


def config(stage=2, gas=1, clip=0, **more):
    return {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": gas, "gradient_clipping": clip,
            "zero_optimization": {"stage": stage}, "optimizer": copy.deepcopy(ADAMW), **copy.deepcopy(more)}


def solo():
    return outrigger.Comm.self_group(outrigger.Context(workers=1))


def engine_of(model, comm=None, **options):
    """An engine over a copy of the model."""
    engine, *_ = outrigger.torch.initialize(model=copy.deepcopy(model), config=config(**options), comm=comm or solo())
    return engine


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)


class Plain:
    """A model trained by PyTorch alone: a float32 master, a working copy in the compute dtype."""

    def __init__(self, model, dtype=torch.float32, clip=0):
        self.master = copy.deepcopy(model)
        self.module = copy.deepcopy(model).to(dtype)
        self.optimizer, self.clip = adamw(self.master), clip

    def step(self, scale=1):
        for master, working in zip(self.master.parameters(), self.module.parameters()):
            master.grad = None if working.grad is None else working.grad.float() / scale
            working.grad = None
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.master.parameters(), self.clip)
        self.optimizer.step()
        with torch.no_grad():
            for master, working in zip(self.master.parameters(), self.module.parameters()):
                working.copy_(master)


def master_of(engine):
    """The float32 masters, or what a frozen parameter has, as a list."""
    handle = engine._library
    return [torch.from_numpy(handle.read(identity, lowlevel.VALUE_MASTER if parameter.requires_grad else lowlevel.VALUE_PUBLISHED))
            for parameter, identity in engine.parameters_of.ids.items()]


def differences(model, engine):
    """Of a model's parameters and an engine's masters, one for each element."""
    return torch.cat([(a.detach() - b).abs().flatten() for a, b in zip(model.parameters(), master_of(engine))])


def furthest(model, engine):
    return differences(model, engine).max().item()
