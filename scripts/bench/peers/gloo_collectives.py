# SPDX-License-Identifier: Apache-2.0
"""tests/bench/collectives.c by torch.distributed over gloo.

gloo_collectives.py RANK WORLD PORT OPERATION BYTES
"""

import os
import sys

import torch
import worker
from numbers_ import stream
from torch import distributed


class Collectives(worker.Worker):
    def __init__(self, rank, world, port, operation, size):
        self.rank, self.world, self.operation, self.size = int(rank), int(world), operation, int(size)
        os.environ.update(RANK=rank, WORLD_SIZE=world, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)

    def setup(self):
        torch.set_num_threads(1)
        distributed.init_process_group("gloo")
        self.mine = stream(self.rank, max(1, self.size // 4), 64, torch.float32)
        self.all = torch.zeros(self.world * self.mine.numel())
        self.sums = torch.zeros(self.size // 8, dtype=torch.float64)
        return {"peer": f"gloo of torch {torch.__version__}"}

    def prepare(self):
        distributed.barrier()

    def work(self):
        if self.operation == "barrier":
            distributed.barrier()
        elif self.operation == "all_reduce":
            distributed.all_reduce(self.sums)
        else:
            distributed.all_gather_into_tensor(self.all, self.mine)

    def check(self, folder):
        self.sums.copy_(self.rank + torch.arange(len(self.sums)) % 7)
        self.work()
        shown = {"all_gather": self.all[::97], "all_reduce": self.sums}.get(self.operation, torch.zeros(0))
        worker.write_samples(folder, f"gloo.{self.operation}.{self.rank}", shown)
        self.sums.zero_()
        return {}


if __name__ == "__main__":
    worker.serve(lambda: Collectives(*sys.argv[1:]))
