# SPDX-License-Identifier: Apache-2.0
"""Ranks of several hosts, as outrigger.torch.initialize finds them by itself: two levels, with the bits of two levels that are
made by hand. Under outrigger run, whose ranks are on one host, pairs of ranks pretend to be hosts; under torchrun's agents they are.

    outrigger run -n 4 -- python test_hosts.py
"""
import os
import unittest

import torch
import torch.distributed as dist
from models import PRECISIONS, config, engine_of, master_of, net

import outrigger
import outrigger.torch
from outrigger.torch.launched import launched_comm

EACH = 2
if os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]:
    os.environ["LOCAL_RANK"] = str(int(os.environ["RANK"]) % EACH)
    os.environ["LOCAL_WORLD_SIZE"] = str(EACH)


def by_hand():
    """Of groups of shared memory throughout, which the ranks of this machine can have."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    everyone = outrigger.Comm.shared_memory(outrigger.Context(workers=1), rank=rank, world_size=world,
                                            job=f"hosts {os.environ['MASTER_PORT']} {os.environ.get('OTR_JOB')}")
    return outrigger.Comm.hierarchical(everyone, everyone.split(rank // EACH, rank), everyone.split(rank % EACH, rank))


class Hosts(unittest.TestCase):
    def test_initialize_makes_two_levels(self):
        torch.set_num_threads(1)
        model = net()
        engine, *_ = outrigger.torch.initialize(model=model, config=config(stage=2))  # makes the group
        self.assertTrue(dist.is_initialized())
        self.assertEqual(engine.global_rank, dist.get_rank())
        engine.destroy()
        found, made = launched_comm(), by_hand()
        self.assertEqual((found.rank, found.size, found.shares_memory), (made.rank, made.size, False))
        for stage in range(4):
            for precision in PRECISIONS.values():
                with self.subTest(stage=stage, **precision):
                    zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
                    engines = [engine_of(net(), comm=comm, zero_optimization=zero, gas=2, clip=0.5, **precision) for comm in (found, made)]
                    for micro in range(4):
                        generator = torch.Generator().manual_seed(10 * micro + found.rank)
                        x, t = torch.randn(8, 6, generator=generator), torch.randn(8, 4, generator=generator)
                        for each in engines:
                            y = each(x.to(each.compute_dtype))
                            torch.nn.functional.mse_loss(y.float(), t).backward()
                            each.step()
                    for one, other in zip(*(master_of(each) for each in engines)):
                        self.assertTrue(torch.equal(one, other))
                    for each in engines:
                        each.destroy()


if __name__ == "__main__":
    unittest.main()
