# SPDX-License-Identifier: Apache-2.0
"""The classic: arguments, a configuration file, a dataset, the engine's own loader."""
import argparse
import json
import os
import tempfile

import deepspeed
import torch
from common import mlp, tell


class Digits(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(256, 16, generator=generator)
        self.y = self.x[:, :8].argmax(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
        json.dump({"train_batch_size": 32, "steps_per_print": 100, "gradient_clipping": 0.5,
                   "optimizer": {"type": "AdamW", "params": {"lr": 0.005, "betas": [0.9, 0.95], "weight_decay": 0.01}},
                   "zero_optimization": {"stage": 1}}, file)
    args = parser.parse_args(["--deepspeed", "--deepspeed_config", file.name])
    deepspeed.init_distributed()
    model = mlp()
    engine, optimizer, loader, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters(),
                                                        training_data=Digits())
    os.unlink(file.name)
    assert engine.train_batch_size() == 32 and engine.train_micro_batch_size_per_gpu() == 16
    step = 0
    for epoch in range(2):
        loader.data_sampler.set_epoch(epoch) if hasattr(loader, "data_sampler") else loader.sampler.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(engine(x.to(engine.device)), y.to(engine.device))
            engine.backward(loss)
            engine.step()
            tell(step, loss)
            step += 1


main()
