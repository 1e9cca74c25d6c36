# SPDX-License-Identifier: Apache-2.0
"""The three ways of writing a backward that an engine's own backward(loss) does not cover, as plain PyTorch writes them.

    python patterns.py        outrigger run -n 2 -- python patterns.py
"""
import torch

import outrigger.torch

config = {
    "train_micro_batch_size_per_gpu": 16,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
    "zero_optimization": {"stage": 2},
    "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
    "torch_autocast": {"enabled": True, "dtype": "bfloat16"},
    "outrigger": {"states": {"master": {"rounding": "stochastic"}, "exp_avg_sq": {"rounding": "stochastic"}}},
}


def model(outputs):
    return torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, outputs))


def make(outputs):
    engine, optimizer, _, _ = outrigger.torch.initialize(model=model(outputs), config=config)
    return engine


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(16, 8, generator=generator)
    return x, x[:, :4] * x[:, 4:]


def combined(first, second, x, target):
    """Two models under one loss."""
    prediction = first(x) * second(x)
    loss = torch.nn.functional.mse_loss(prediction.float(), target)
    loss.backward()
    first.step()
    second.step()
    return loss


def outside(engine, x, target):
    """A loss that the model does not know of."""
    prediction = engine(x)
    loss = torch.nn.functional.smooth_l1_loss(prediction.float(), target)
    loss.backward()
    engine.step()
    return loss


def non_scalar(engine, x, target):
    """No loss at all: the gradient of the output comes from somewhere else, here from a formula."""
    prediction = engine(x)
    gradient = 2 * (prediction.detach() - target) / target.numel()
    prediction.backward(gradient.to(prediction.dtype))
    engine.step()
    return torch.nn.functional.mse_loss(prediction.detach().float(), target)


def main():
    torch.manual_seed(0)
    for step, engines in ((combined, (make(4), make(4))), (outside, (make(4),)), (non_scalar, (make(4),))):
        world, rank = engines[0].world_size, engines[0].global_rank  # each rank has batches of its own
        losses = [step(*engines, *batch(number * world + rank)).item() for number in range(200)]
        first, last = sum(losses[:20]) / 20, sum(losses[-20:]) / 20
        print(f"{step.__name__}: mean loss of the first 20 steps {first:.3f}, of the last 20 {last:.3f}")
        assert last < 0.7 * first, "it does not learn"


main()
