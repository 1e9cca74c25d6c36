# SPDX-License-Identifier: Apache-2.0
"""The trainings whose checkpoints DeepSpeed wrote (scripts/peers/deepspeed_checkpoints.py) and Outrigger goes on with."""
import copy

import torch

ROWS, SAVED, END = 12, 8, 13  # of all ranks together; steps before the checkpoint; steps in all
CLIENT = {"epoch": 3, "note": "first", "nested": {"seen": [1, 2.5, None, True]}, "order": torch.arange(5)}


class Net(torch.nn.Module):
    """Sizes that no number of ranks divides, a tied weight, a frozen layer, and buffers that follow from the number of calls."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(7, 13)
        self.b = torch.nn.Linear(13, 13)
        self.fixed = torch.nn.Linear(13, 13).requires_grad_(False)
        self.again = torch.nn.Linear(13, 13)
        self.again.weight = self.b.weight
        self.c = torch.nn.Linear(13, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("drift", torch.zeros(7))

    def forward(self, x):
        if self.training:
            self.calls += 1
            self.drift.mul_(0.5).add_(0.25)
        x = torch.tanh(self.a(x + self.drift.to(x.dtype)))
        x = torch.tanh(self.fixed(torch.tanh(self.b(x))))
        return self.c(torch.tanh(self.again(x)))


class Late(torch.nn.Module):
    """A layer that is used later on, and frozen ones."""

    used = False

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(7, 13)
        self.fixed = torch.nn.Linear(13, 13).requires_grad_(False)
        self.late = torch.nn.Linear(13, 13)
        self.c = torch.nn.Linear(13, 3)
        self.out = torch.nn.Parameter(torch.ones(13), requires_grad=False)

    def forward(self, x):
        x = self.fixed(torch.tanh(self.a(x))) * self.out
        return self.c(torch.tanh(self.late(x) if self.used else x))

    def inner(self):
        """What the optimizer has; a frozen layer is in it, one parameter is not."""
        return [each for each in self.parameters() if each is not self.out]


def net(seed=0):
    torch.manual_seed(seed)
    return Net()


def groups(model):
    """Matrices decay, biases do not."""
    learns = [each for each in model.parameters() if each.requires_grad]
    return [{"params": [each for each in learns if each.dim() > 1], "weight_decay": 0.1},
            {"params": [each for each in learns if each.dim() == 1], "weight_decay": 0.0}]


def batch(step, rank, world, dtype):
    generator = torch.Generator().manual_seed(step)
    x, t = torch.randn(ROWS, 7, generator=generator), torch.randn(ROWS, 3, generator=generator)
    part = slice(rank * (ROWS // world), (rank + 1) * (ROWS // world))
    return x[part].to(dtype), t[part]


def train(engine, begin, end, rank, world, dtype):
    """This rank's losses."""
    losses = []
    for step in range(begin, end):
        x, t = batch(step, rank, world, dtype)
        loss = torch.nn.functional.mse_loss(engine(x).float(), t)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


BF16 = {"bf16": {"enabled": True}}
FP16 = {"fp16": {"enabled": True, "initial_scale_power": 19, "loss_scale_window": 3, "hysteresis": 2}}  # the first steps overflow
SGD = {"optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}}}

# DeepSpeed: stage, and what else its configuration has.
CASES = {
    "zero0": (0, {}),
    "zero0_bf16": (0, BF16),
    "zero0_fp16": (0, {"fp16": {**FP16["fp16"], "initial_scale_power": 8}}),
    "zero1": (1, {}),
    "zero1_bf16": (1, {**BF16, "data_types": {"grad_accum_dtype": "fp32"}}),  # its BF16_Optimizer
    "zero2": (2, {"zero_optimization": {"round_robin_gradients": True}}),
    "zero2_bf16": (2, BF16),
    "zero2_fp16": (2, FP16),
    "zero2_sgd": (2, SGD),
    "zero3": (3, {}),
    "zero3_bf16": (3, {**BF16, "zero_optimization": {"sub_group_size": 200}}),  # its flat groups are several
    "zero3_fp16": (3, FP16),
}
UNIVERSAL = {"zero1_bf16": "universal1", "zero3": "universal3"}  # from which converted


def config(stage, more, world=2):
    own = {"train_micro_batch_size_per_gpu": ROWS // world, "gradient_accumulation_steps": 1, "gradient_clipping": 0.5,
           "zero_allow_untested_optimizer": True,
           "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "betas": [0.8, 0.95], "eps": 1e-7}},
           "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0.0, "warmup_max_lr": 1e-2, "warmup_num_steps": 4, "total_num_steps": 40}}}
    own.update(copy.deepcopy(more))
    own["zero_optimization"] = {"stage": stage, **own.get("zero_optimization", {})}
    return own


def dtype_of(more):
    return torch.bfloat16 if "bf16" in more else torch.float16 if "fp16" in more else torch.float32
