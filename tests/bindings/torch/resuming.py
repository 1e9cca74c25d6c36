# SPDX-License-Identifier: Apache-2.0
"""What the tests of checkpoints train: a model with all that a checkpoint has to keep, on data that follow from the step's number."""
import copy
import random
import tempfile
import unittest

import numpy
import torch
import torch.distributed as dist

import outrigger.torch
from outrigger import lowlevel
from outrigger.process import process_comm

BATCH = 8  # of all ranks together, in a micro-batch
STATES = (lowlevel.VALUE_MASTER, lowlevel.VALUE_EXP_AVG, lowlevel.VALUE_EXP_AVG_SQ)

DECAYS = {
    "DeepSpeed's": {"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 20, "warmup_num_steps": 4}}},
    "PyTorch's": {"schedule": lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)},
    "NumPy's": {"schedule": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: numpy.cos(step / 20))},
    "its own": {"schedule": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, 40)},
}
HOSTS = {
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, 1e-2, momentum=0.5, centered=True),
    "NAdam": lambda parameters: torch.optim.NAdam(parameters, 1e-2),
    "AMSGrad": lambda parameters: torch.optim.AdamW(parameters, 1e-2, amsgrad=True),
}


class Model(torch.nn.Module):
    """Dropout draws from random states, BatchNorm keeps buffers; one buffer is no part of the state, one layer is frozen."""

    def __init__(self, dropout=0.2, norm=True):
        super().__init__()
        self.a = torch.nn.Linear(6, 24)
        self.norm = torch.nn.BatchNorm1d(24) if norm else torch.nn.Identity()
        self.fixed = torch.nn.Linear(24, 24).requires_grad_(False)
        self.dropout = torch.nn.Dropout(dropout)
        self.b = torch.nn.Linear(24, 4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, x):
        if self.training:
            self.calls += 1
        return self.b(self.dropout(torch.tanh(self.fixed(self.norm(self.a(x))))))


def model(seed=0, **options):
    torch.manual_seed(seed)
    return Model(**options)


def lose_random_states(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


def folder(comm, own):
    """rank 0's text on all ranks."""
    return comm.all_gather(own.encode().ljust(256, b"\0"))[:256].rstrip(b"\0").decode()


def config(stage=2, gas=1, **more):
    own = {"zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 30}, "gradient_accumulation_steps": gas,
           "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}}, **copy.deepcopy(more)}
    own.setdefault("train_micro_batch_size_per_gpu", 4)
    return own


def start(seed=0, comm=None, make=None, schedule=None, network=None, **options):
    """An engine of new memory. make: an optimizer of PyTorch from parameters."""
    module = model(seed, **(network or {}))
    settings = config(**options)
    if make is not None:
        del settings["optimizer"]
        settings["zero_allow_untested_optimizer"] = True
    engine, *_ = outrigger.torch.initialize(
        model=module, config=settings, comm=comm or process_comm(), lr_scheduler=schedule,
        optimizer=None if make is None else make(each for each in module.parameters() if each.requires_grad))
    return engine


def batch(engine, micro, noise):
    """This rank's part. noise: of Python's and NumPy's random numbers, which a run that goes on has to draw on."""
    generator = torch.Generator().manual_seed(micro)
    x, t = torch.randn(BATCH, 6, generator=generator), torch.randn(BATCH, 4, generator=generator)
    each = BATCH // engine.world_size
    part = slice(engine.global_rank * each, (engine.global_rank + 1) * each)
    shift = 0.1 * (random.random() + numpy.random.standard_normal()) if noise else 0.0
    return (x[part] + shift).to(engine.compute_dtype), t[part]


def train(engine, begin, end, noise=True):
    """Steps begin to end, each of one window. Their losses, this rank's."""
    losses = []
    for step in range(begin, end):
        for micro in range(engine.gradient_accumulation_steps()):
            x, t = batch(engine, 10 * step + micro, noise)
            loss = torch.nn.functional.mse_loss(engine(x).float(), t)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
    return losses


def values(engine):
    """All that a training is, by name. Collective."""
    found = {}
    for parameter in engine.parameters_of.ids:
        name = engine.parameters_of.name_of(parameter)
        if not engine.parameters_of.learns(parameter):
            found[name, "published"] = engine.read(parameter, lowlevel.VALUE_PUBLISHED)
            continue
        for value in STATES if engine.optimizer_name() != "Host" else STATES[:1]:
            found[name, value] = engine.read(parameter, value)
    with engine.whole(engine.parameters_of.ids):
        found.update({(name, "shown"): each.detach().clone() for name, each in engine.module.named_parameters()})
    found.update({(name, "buffer"): each.clone() for name, each in engine.module.named_buffers() if name != "scratch"})
    found["counters"] = engine.global_steps, engine.skipped_steps, engine.micro_steps, engine.backwards
    found["rates"] = engine.get_lr(), engine.get_mom(), engine.optimizer.cur_scale
    found["library"] = engine._library.get_progress()
    if engine.lr_scheduler is not None:
        found["schedule"] = engine.lr_scheduler.state_dict()
    return found


def differing(one, other):
    """The names of what is not the same, bit by bit."""
    assert one.keys() == other.keys(), one.keys() ^ other.keys()
    return [key for key, value in one.items()
            if not (torch.equal(value, other[key]) if isinstance(value, torch.Tensor) else value == other[key])]


def everywhere(values):
    """Those of all ranks, in a list."""
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, values)
    return gathered


class Case(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        outrigger.torch.init_distributed()
        self.comm = process_comm()
        own = tempfile.TemporaryDirectory()
        self.addCleanup(own.cleanup)
        self.addCleanup(self.comm.barrier)  # before rank 0's folder goes
        self.folder = folder(self.comm, own.name)
        lose_random_states(100 + self.comm.rank)
