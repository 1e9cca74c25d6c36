# SPDX-License-Identifier: Apache-2.0
"""Reduce-scatter of bfloat16 by torch.distributed over gloo.

gloo_reduce_scatter.py RANK WORLD PORT BYTES BUFFERS
"""

import os
import sys

import torch
import worker
from numbers_ import stream
from torch import distributed


class ReduceScatter(worker.Worker):
    def __init__(self, rank, world, port, size, buffers):
        self.rank, self.world, self.count, self.buffers = rank, world, size // 2, buffers
        self.calls = 0
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))

    def setup(self):
        torch.set_num_threads(1)
        distributed.init_process_group("gloo")
        self.inputs = [stream(10 * self.rank + b, self.count, 64, torch.bfloat16) for b in range(self.buffers)]
        self.outputs = [torch.zeros(self.count // self.world, dtype=torch.bfloat16) for _ in range(self.buffers)]
        return {"peer": f"gloo of torch {torch.__version__}", "threads": torch.get_num_threads()}

    def prepare(self):
        distributed.barrier()

    def work(self):
        turn = self.calls % self.buffers
        self.calls += 1
        distributed.reduce_scatter_tensor(self.outputs[turn], self.inputs[turn])

    def check(self, folder):
        for _ in range(self.buffers):
            self.work()
        sampled = torch.cat([output[::97] for output in self.outputs])
        worker.write_samples(folder, f"gloo.{self.rank}", sampled)
        return {}


if __name__ == "__main__":
    worker.serve(lambda: ReduceScatter(*map(int, sys.argv[1:])))
