# SPDX-License-Identifier: Apache-2.0
"""Training steps of a model of many modules with one small parameter each, so that what the host does for each shows.

torch_small.py SIDE CONFIG_FILE COUNT     SIDE: outrigger, plain
"""

import json
import pathlib
import sys

import torch
import worker
from torch import nn

STEPS = 3


class Times(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x):
        return x * self.weight


class Small(worker.Worker):
    def __init__(self, side, config, count):
        self.side, self.count = side, count
        self.config = json.loads(pathlib.Path(config).read_text())

    def setup(self):
        torch.set_num_threads(1)
        model = nn.Sequential(*(Times() for _ in range(self.count)))
        if self.side == "plain":
            self.model = model
            self.optimizer = torch.optim.AdamW(model.parameters(), fused=True, **self.config["optimizer"]["params"])
        else:
            import outrigger.torch
            self.model, *_ = outrigger.torch.initialize(model=model, config=self.config)
        self.x = torch.linspace(-1, 1, 8)
        return {"torch": torch.__version__, "parameters": self.count}

    def step(self):
        loss = self.model(self.x).square().sum()
        if self.side == "plain":
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        else:
            self.model.backward(loss)
            self.model.step()
        return loss.item()

    def work(self):
        for _ in range(STEPS):
            self.step()
        return {"steps": STEPS}

    def check(self, folder):
        return {"losses": [self.step() for _ in range(STEPS)]}


if __name__ == "__main__":
    worker.serve(lambda: Small(sys.argv[1], sys.argv[2], int(sys.argv[3])))
