# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's engine over gloo: forward, backward and step of a model that computes next to nothing.

deepspeed_engine.py RANK WORLD PORT CONFIG_FILE MATRICES SIDE
"""

import json
import os
import pathlib
import sys
import tempfile

import torch
import worker
from numbers_ import stream

CHECK_FACTORS = (1.0, -0.5, 1.0)  # clipping undoes the half; a missing clip shows in the weights


class Touch(torch.autograd.Function):
    """Adds the sum of the weight's first column (one element a 4 KiB page); the weight's gradient is given."""

    @staticmethod
    def forward(ctx, total, weight, grad):
        ctx.grad = grad
        return total + weight[:, 0].sum(dtype=torch.float32)

    @staticmethod
    def backward(ctx, grad_total):
        return grad_total, ctx.grad, None


class Matrix(torch.nn.Module):
    def __init__(self, values, grad):
        super().__init__()
        self.weight = torch.nn.Parameter(values)
        self.grad = grad

    def forward(self, total):
        return Touch.apply(total, self.weight, self.grad)


class Engine(worker.Worker):
    def __init__(self, rank, world, port, config, matrices, side):
        self.rank, self.matrices, self.side = rank, matrices, side
        self.config = json.loads(pathlib.Path(config).read_text())
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(world),
            LOCAL_SIZE=str(world),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )

    def setup(self):
        import deepspeed

        torch.set_num_threads(1)
        deepspeed.init_distributed(dist_backend="gloo", verbose=False)
        count, shape = self.side * self.side, (self.side, self.side)
        self.grads = [
            stream(1000 + 100 * self.rank + m, count, 4096, torch.bfloat16).view(shape) for m in range(self.matrices)
        ]
        model = torch.nn.Sequential(
            *(Matrix(stream(m, count, 512, torch.bfloat16).view(shape), self.grads[m]) for m in range(self.matrices))
        )
        self.engine, *_ = deepspeed.initialize(model=model, config=self.config, model_parameters=model.parameters())
        self.zero = torch.zeros((), dtype=torch.float32, requires_grad=True)
        return {
            "peer": f"DeepSpeed {deepspeed.__version__}",
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "optimizer": type(self.engine.basic_optimizer).__name__,
        }

    def prepare(self):
        torch.distributed.barrier()

    def work(self):
        total = self.engine(self.zero)
        self.engine.backward(total)
        self.engine.step()
        return {"total": total.item()}

    def check(self, folder):
        import deepspeed

        norms = []
        for factor in CHECK_FACTORS:
            for grad in self.grads:
                grad.mul_(factor)
            self.work()
            norms.append(float(self.engine.get_global_grad_norm()))
            for grad in self.grads:
                grad.mul_(1 / factor)
        stage3 = self.config["zero_optimization"]["stage"] == 3
        with tempfile.TemporaryDirectory() as parts:
            for m, module in enumerate(self.engine.module):
                with deepspeed.zero.GatheredParameters([module.weight], enabled=stage3):
                    worker.write_samples(parts, f"{m}", module.weight.detach().flatten()[::97])
            weights = b"".join(pathlib.Path(parts, f"{m}").read_bytes() for m in range(self.matrices))
        pathlib.Path(folder, f"weights.{self.rank}").write_bytes(weights)
        return {"norms": norms}


if __name__ == "__main__":
    rank, world, port = map(int, sys.argv[1:4])
    worker.serve(lambda: Engine(rank, world, port, sys.argv[4], int(sys.argv[5]), int(sys.argv[6])))
