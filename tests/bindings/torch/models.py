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
SGD = {"type": "SGD", "params": {"lr": 0.5}}  # what it moves is as large as the gradient, so a lost or a wrong factor shows
PRECISIONS = {"float32": {}, "bf16": {"bf16": {"enabled": True}},
              "fp16": {"fp16": {"enabled": True, "initial_scale_power": 10}}}
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

# SGD: of how far the reference has moved a parameter, the norm of what ours differs. float32: sums in another order, and the
# ulps (3e-8) of parameters near 0.3 that move by 1e-3. 16 bits: ours rounds each rank's sum over micro-steps and the mean over
# ranks to the compute dtype, whose epsilon it is 2.5 times. A lost gradient makes 0.06 and more on 3 ranks, a lost element of
# the largest parameter about 0.06, a factor of 2 at least 0.5.
MOVED = {"float32": 1e-5, "bf16": 2.5 * 2**-7, "fp16": 2.5 * 2**-10}


def config(stage=2, gas=1, clip=0, **more):
    return {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": gas, "gradient_clipping": clip,
            "zero_optimization": {"stage": stage}, "optimizer": copy.deepcopy(ADAMW), **copy.deepcopy(more)}


def solo():
    return outrigger.Comm.self_group(outrigger.Context(workers=1))


def train_alike(engines, rank, micros):
    """Every engine gets the same micro-batches, of this rank's own data."""
    for micro in range(micros):
        generator = torch.Generator().manual_seed(10 * micro + rank)
        x, t = torch.randn(8, 6, generator=generator), torch.randn(8, 4, generator=generator)
        for engine in engines:
            y = engine(x.to(engine.compute_dtype))
            torch.nn.functional.mse_loss(y.float(), t).backward()
            engine.step()


def engine_of(model, comm=None, **options):
    """An engine over a copy of the model."""
    engine, *_ = outrigger.torch.initialize(model=copy.deepcopy(model), config=config(**options), comm=comm or solo())
    return engine


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=SGD["params"]["lr"])


class Rounded(torch.nn.Module):
    """Computes with the model's parameters rounded to a dtype. They and their gradients remain float32, so that sums of
    gradients over micro-steps and ranks, DistributedDataParallel's as well, are no less exact than the engine's."""

    def __init__(self, inner, dtype):
        super().__init__()
        self.inner, self.dtype = inner, dtype

    def forward(self, x):
        return torch.func.functional_call(self.inner, {name: each.to(self.dtype) for name, each in self.inner.named_parameters()}, (x,))


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


def moved_otherwise(start, expected, engine, precision):
    """Whether SGD has moved the engine's parameters as it has the model's from start. The text of how not, or None."""
    for (name, begin), end, ours in zip(start.named_parameters(), expected.parameters(), master_of(engine), strict=True):
        distance, moved = (end - ours).norm().item(), (end - begin).norm().item()
        if not distance <= MOVED[precision] * moved:
            return f"{name} differs by {distance:.3g} of {moved:.3g} moved, {distance / (moved or 1):.2g}"
    return None
