# SPDX-License-Identifier: Apache-2.0
"""A script as it was written for DeepSpeed: nothing in it knows of Outrigger.

    python -m outrigger.torch.compat deepspeed_script.py        outrigger run -n 2 -- python -m outrigger.torch.compat …
"""
import argparse

import deepspeed
import torch

config = {
    "train_micro_batch_size_per_gpu": 16,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.02}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.02, "warmup_num_steps": 5}},
    "zero_optimization": {"stage": 2},
    "bf16": {"enabled": True},
}


class Quarters(torch.utils.data.Dataset):
    """Points, and the quarter of the plane that each is in."""

    def __init__(self):
        self.points = torch.randn(640, 2, generator=torch.Generator().manual_seed(2))

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        x, y = self.points[index]
        return self.points[index], int(x > 0) + 2 * int(y > 0)


def main(folder):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
    engine, optimizer, loader, scheduler = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config,
                                                                training_data=Quarters())
    _, state = engine.load_checkpoint(folder) if folder else (None, None)  # None, None: nothing is there yet
    losses, begin = (state["losses"], state["epochs"]) if state else ([], 0)
    for epoch in range(begin, 4):
        loader.sampler.set_epoch(epoch)
        for points, quarters in loader:
            loss = torch.nn.functional.cross_entropy(engine(points.to(engine.device).bfloat16()).float(), quarters)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        if folder:
            engine.save_checkpoint(folder, client_state={"losses": losses, "epochs": epoch + 1})
    deepspeed.comm.barrier()
    print(f"loss {losses[0]:.3f}, at the end {losses[-1]:.3f}; updates: {engine.global_steps}; made by {type(engine).__module__}")
    assert losses[-1] < 0.5 * losses[0], "it does not learn"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--checkpoints", metavar="DIR", help="save the training here, and go on from here")
main(parser.parse_args().checkpoints)
