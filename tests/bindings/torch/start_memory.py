# SPDX-License-Identifier: Apache-2.0
"""What building a module, initialize and the first step take, by the kernel's count: the sum of Pss over the ranks, sampled.

    outrigger run -n 2 -- python start_memory.py                      12 M parameters, checked
    outrigger run -n 4 -- python start_memory.py --blocks 12 --width 2048    201 M

bfloat16 with bfloat16 master weights and states. Printed for each stage, under zero.Init and without it, in bytes a parameter:
the peak of building and initializing, the peak with the first step, the ledger's peak and what is resident after it, beside
the bytes of one module (of the largest layer under zero.Init; of the ranks' own models without it, which a program builds
whole)."""
import argparse
import ctypes
import gc
import sys
import threading
import time

import torch
import torch.distributed as dist
from test_gradients import engine_of

import outrigger.torch
from outrigger.torch import zero

BIN = 0.02  # seconds: samples of ranks in one of these add up
BINS = 20000


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


def pss():
    """Bytes of this process, shared pages divided among those that share them."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("Pss:"))


def summed(values):
    total = torch.tensor(values, dtype=torch.int64)
    dist.all_reduce(total)
    return total.tolist()


class Sampler(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        start = torch.tensor([time.time()], dtype=torch.float64)
        dist.broadcast(start, 0)
        self._start, self._over, self._bins = float(start), threading.Event(), [0] * BINS

    def run(self):
        while not self._over.wait(0.004):
            at = min(int((time.time() - self._start) / BIN), BINS - 1)
            self._bins[at] = max(self._bins[at], pss())

    def peak(self):
        """The most that all ranks had at one time. Ends it."""
        self._over.set()
        self.join()
        for at in range(1, BINS):
            self._bins[at] = self._bins[at] or self._bins[at - 1]
        return max(summed(self._bins))


def measured(stage, blocks, width, inside):
    """Bytes over all ranks beyond what was there before."""
    torch.manual_seed(0)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    dist.barrier()
    base, = summed([pss()])
    sampler = Sampler()
    sampler.start()
    with zero.Init(enabled=inside):
        model = torch.nn.Sequential(*(Block(width) for _ in range(blocks)))
    parameters = sum(each.numel() for each in model.parameters())
    layer = max(sum(each.numel() for each in module.parameters(recurse=False)) for module in model.modules())
    engine = engine_of(model, stage, 1, {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
                                         "zero_optimization": {"stage": stage, "offload_optimizer": {"device": "cpu"}},
                                         "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})
    start = sampler.peak() - base
    ledger_start, = summed([peak for purpose, _, peak in engine.memory() if purpose == "total"])
    sampler = Sampler()
    sampler.start()
    engine(torch.ones(1, width, dtype=torch.bfloat16)).sum().backward()
    engine.step()
    first = sampler.peak() - base
    resident, ledger = summed([list(each[1:]) for each in engine.memory() if each[0] == "total"][0])
    engine.destroy()
    module = 4 * layer * dist.get_world_size() if inside else 4 * parameters * dist.get_world_size()
    return {"start": start, "ledger's start": ledger_start, "with a step": max(start, first), "ledger": ledger, "resident": resident,
            "module": module}, parameters


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--width", type=int, default=512)
    options = parser.parse_args()
    torch.set_num_threads(1)
    outrigger.torch.init_distributed()
    measured(1, 2, 512, True)  # what is loaded at first use
    failures = 0
    for stage in (1, 2, 3):
        for inside in (True, False):
            found, parameters = measured(stage, options.blocks, options.width, inside)
            most = 1.15 * (found["resident"] + found["module"])
            good = found["with a step"] <= most
            failures += not good
            if dist.get_rank() == 0:
                text = ", ".join(f"{name} {value / parameters:.2f}" for name, value in found.items())
                print(f"{parameters / 1e6:.0f} M, {dist.get_world_size()} ranks, stage {stage}, zero.Init {inside}: {text}"
                      f"{'' if good else ' — TOO MUCH'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
