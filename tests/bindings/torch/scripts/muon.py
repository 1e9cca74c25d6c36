# SPDX-License-Identifier: Apache-2.0
"""Muon with AdamW for embeddings, head, biases and norms: stage 3 with a schedule and a look at the states, stage 1 with parameter
groups and rates that the script sets."""
import deepspeed
import torch
from common import tell
from deepspeed.utils import safe_get_full_optimizer_state
from torch import nn


class Model(nn.Module):
    def __init__(self, vocabulary=32, width=24, context=16):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocabulary, width), nn.LayerNorm(width)
        self.mix = nn.Linear(context, context)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width, bias=False)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        x = x + self.mix(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.down(torch.tanh(self.up(self.norm(x))))
        return nn.functional.cross_entropy(self.lm_head(x).flatten(0, 1), ((ids * 5 + 3) % 32).flatten())


def batch(step):
    generator = torch.Generator().manual_seed(1000 * torch.distributed.get_rank() + step)
    return torch.randint(0, 32, (4, 16), generator=generator)


def config(stage, **more):
    # DeepSpeed clips Muon's directions at stages 1 to 3, and sums no slices of gradients for it.
    return {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 0.0, "steps_per_print": 1000,
            "optimizer": {"type": "Muon", "params": {"lr": 0.02, "adam_lr": 0.01, "momentum": 0.9, "weight_decay": 0.05}},
            "zero_optimization": {"stage": stage, "reduce_scatter": False}, **more}


def made(stage, groups, **more):
    torch.manual_seed(11)
    model = Model()
    engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=groups(model), config=config(stage, **more))
    return engine, optimizer


def train(engine, first, steps):
    for step in range(first, first + steps):
        loss = engine(batch(step))
        engine.backward(loss)
        engine.step()
        tell(step, loss)


def decayed(model):
    """No weight decay for what has one dimension, as most recipes have it."""
    return [{"params": [p for p in model.parameters() if p.dim() > 1]},
            {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0, "lr": 0.005}]


def main():
    deepspeed.init_distributed()
    engine, _ = made(3, lambda model: model.parameters(), scheduler={
        "type": "WarmupCosineLR", "params": {"total_num_steps": 10, "warmup_num_steps": 3}})
    train(engine, 0, 20)
    for index, (parameter, state) in enumerate(((engine.module.up.weight, "momentum_buffer"), (engine.module.mix.weight, "momentum_buffer"),
                                                (engine.module.up.bias, "exp_avg_sq"))):
        tell(50 + index, safe_get_full_optimizer_state(parameter, state).abs().sum())
    engine.destroy()

    engine, optimizer = made(1, decayed)
    halves = [(group["name"], group["use_muon"], group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
    assert halves == [("group0-muon-params", True, 0.02, 0.05), ("group0-adam-params", False, 0.01, 0.05),
                      ("group1-adam-params", False, 0.005, 0.0)], halves
    train(engine, 100, 8)
    for group in optimizer.param_groups:
        group["lr"] *= 0.5 if group["use_muon"] else 2.0
    train(engine, 108, 8)


main()
