# SPDX-License-Identifier: Apache-2.0
"""What building a module, initialize and the first step take, by the kernel's count: the sum of Pss over the ranks without that of files, sampled.

    outrigger run -n 2 -- python start_memory.py                      12 M parameters, checked
    outrigger run -n 4 -- python start_memory.py --blocks 12 --width 2048    201 M

bfloat16 with bfloat16 master weights and states. Printed for each stage, under zero.Init and without it, in bytes a parameter:
the peak of building and initializing, the peak with the first step, the ledger's peak and what is resident after it, beside
the bytes of one module (of the largest layer under zero.Init; of the ranks' own models without it, which a program builds
whole). Checked: the start is the ledger's within 3 %, and no peak is more than 15 % above what is resident and one module."""
import argparse
import ctypes
import gc
import os
import sys
import threading

import torch
import torch.distributed as dist
from test_gradients import engine_of

import outrigger.torch
from outrigger.torch import zero

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


def pss(process):
    """Bytes of a process, shared pages divided among those that share them. Not those of files: how many processes of this machine
    use PyTorch's libraries is no business of ours."""
    with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as file:
        return 1024 * sum(int(line.split()[1]) for line in file if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


def on_all_ranks(value):
    values = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    values[dist.get_rank()] = value
    dist.all_reduce(values)
    return values.tolist()


class Sampler(threading.Thread):
    """Rank 0 looks at all ranks, one right after the other, so that a rank that waits for a core is not counted as it was before."""

    def __init__(self):
        super().__init__(daemon=True)
        self._ranks, self._over, self._most = on_all_ranks(os.getpid()), threading.Event(), 0
        if dist.get_rank() == 0:
            self.start()

    def run(self):
        while not self._over.wait(0.004):
            self._most = max(self._most, sum(pss(each) for each in self._ranks))

    def peak(self):
        """The most that all ranks had at one time. Ends it."""
        self._over.set()
        if self.is_alive():
            self.join()
        return sum(on_all_ranks(self._most))


def total_of(engine):
    """Bytes now and at most, by the ledger."""
    return next(each[1:] for each in engine.memory() if each[0] == "total")


def measured(stage, blocks, width, inside):
    """Bytes over all ranks beyond what was there before."""
    torch.manual_seed(0)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    dist.barrier()
    base = sum(on_all_ranks(pss(os.getpid())))
    sampler = Sampler()
    with zero.Init(enabled=inside):
        model = torch.nn.Sequential(*(Block(width) for _ in range(blocks)))
    parameters = sum(each.numel() for each in model.parameters())
    layer = max(sum(each.numel() for each in module.parameters(recurse=False)) for module in model.modules())
    engine = engine_of(model, stage, 1, {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
                                         "zero_optimization": {"stage": stage, "offload_optimizer": {"device": "cpu"}},
                                         "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})
    start = sampler.peak() - base
    ledger_start = sum(on_all_ranks(total_of(engine)[1]))
    sampler = Sampler()
    engine(torch.ones(1, width, dtype=torch.bfloat16)).sum().backward()
    engine.step()
    first = sampler.peak() - base
    resident, ledger = (sum(on_all_ranks(each)) for each in total_of(engine))
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
            # A busy machine's sampler may miss the top, and never sees more than is there; a rank's heap has some MB of its own.
            own = found["ledger's start"] + (4 << 20) * dist.get_world_size()
            good = found["with a step"] <= most and 0.8 * found["ledger's start"] <= found["start"] <= 1.03 * own
            failures += not good
            if dist.get_rank() == 0:
                text = ", ".join(f"{name} {value / parameters:.2f}" for name, value in found.items())
                print(f"{parameters / 1e6:.0f} M, {dist.get_world_size()} ranks, stage {stage}, zero.Init {inside}: {text}"
                      f"{'' if good else ' — BEYOND THE BOUNDS'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
