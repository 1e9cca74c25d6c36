# SPDX-License-Identifier: Apache-2.0
"""Optimizers of PyTorch: one that the script makes, with its own schedule, and one that the configuration names."""
import deepspeed
import torch
from common import batch, mlp, tell


def config(stage, **more):
    return {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2, "gradient_clipping": 0.5, "steps_per_print": 1000,
            "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": stage}, **more}


def train(engine, first):
    for step in range(24):
        x, y = batch(step)
        loss = torch.nn.functional.cross_entropy(engine(x), y)
        engine.backward(loss)
        engine.step()
        tell(first + step, loss)


def main():
    deepspeed.init_distributed()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=1e-3)
    engine, wrapped, _, schedule = deepspeed.initialize(
        model=model, optimizer=optimizer, config=config(2), lr_scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5))
    train(engine, 0)
    assert abs(engine.get_lr()[0] - 0.2 * 0.5 ** 3) < 1e-12, engine.get_lr()
    assert engine.get_mom() == [0.9]
    engine.destroy()

    named = {"type": "RMSprop", "params": {"lr": 0.002, "momentum": 0.5}}
    model = mlp()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config(1, optimizer=named))
    train(engine, 100)


main()
