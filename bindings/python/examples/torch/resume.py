# SPDX-License-Identifier: Apache-2.0
"""A training that may be killed at any time: started again it goes on from its last checkpoint, with the bits of one that was
never stopped.

    python resume.py FOLDER        outrigger run -n 2 -- python resume.py FOLDER
"""
import sys

import torch

import outrigger.torch

STEPS, EVERY = 60, 10
config = {
    "train_micro_batch_size_per_gpu": 16,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
    "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": STEPS, "warmup_num_steps": 5}},
    "zero_optimization": {"stage": 2},
    "bf16": {"enabled": True},
}


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 4))


def batch(number):
    """Its data follow from its number, so nothing about them has to be saved."""
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(16, 8, generator=generator)
    return x.bfloat16(), x[:, :4] * x[:, 4:]


def train(engine, step):
    for micro in range(engine.gradient_accumulation_steps()):
        x, target = batch((2 * step + micro) * engine.world_size + engine.global_rank)
        loss = torch.nn.functional.mse_loss(engine(x).float(), target)
        engine.backward(loss)
        engine.step()
    return loss.item()


def main(folder):
    engine, _, _, _ = outrigger.torch.initialize(model=model(), config=config)
    path, state = engine.load_checkpoint(folder)
    step = 0 if path is None else state["step"]
    while step < STEPS:
        loss = train(engine, step)
        if engine.global_rank == 0:
            print(f"loss {step} {loss!r}", flush=True)
        step += 1
        if step % EVERY == 0:
            engine.save_checkpoint(folder, client_state={"step": step})


main(sys.argv[1])
