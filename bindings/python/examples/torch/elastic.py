# SPDX-License-Identifier: Apache-2.0
"""A training on as many ranks as there are: started again on fewer, or on more, it goes on from its last checkpoint.

    outrigger run -n 4 --max-restarts 3 --min-workers 1 -- python elastic.py DIR
    torchrun --nnodes 1:2 --nproc-per-node 2 --max-restarts 3 --rdzv-backend c10d --rdzv-endpoint HOST:29400 --rdzv-id JOB elastic.py DIR
"""
import sys

import torch

import outrigger.torch

STEPS, EVERY, BATCH, SAMPLES = 40, 10, 24, 240
config = {
    "train_batch_size": BATCH,  # over all ranks: 1, 2, 3, 4, 6 or 12 of them make the same steps
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.05}},
    "zero_optimization": {"stage": 2},
    "bf16": {"enabled": True},
}


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))


def data():
    x = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(1))
    return x.bfloat16(), x[:, :4] * x[:, 4:]


def micro_batches(engine):
    """This rank's samples of the next step. Where in which epoch that is follows from the number of steps, whoever made them."""
    epoch, step = divmod(engine.global_steps, SAMPLES // BATCH)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
    return order[BATCH * step:BATCH * (step + 1)].view(-1, engine.world_size, 2)[:, engine.global_rank]


def main(folder):
    engine, _, _, _ = outrigger.torch.initialize(model=model(), config=config)
    _, state = engine.load_checkpoint(folder)  # None where nothing is there yet
    losses = state["losses"] if state else []
    if engine.global_rank == 0:
        print(f"{engine.world_size} ranks go on from step {engine.global_steps}", flush=True)
    x, target = data()
    while engine.global_steps < STEPS:
        for numbers in micro_batches(engine):
            engine.backward(torch.nn.functional.mse_loss(engine(x[numbers]).float(), target[numbers]))
            engine.step()
        if engine.global_steps % EVERY == 0:
            with torch.no_grad():
                losses.append(torch.nn.functional.mse_loss(engine(x).float(), target).item())
            engine.save_checkpoint(folder, client_state={"losses": losses})
    assert losses[-1] < 0.7 * losses[0], "it does not learn"


main(sys.argv[1])
