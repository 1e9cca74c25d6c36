# SPDX-License-Identifier: Apache-2.0
"""Ranks of several hosts, as outrigger.torch.initialize finds them by itself: two levels, with the bits of two levels that are
made by hand. Under outrigger run and mpirun, whose ranks are on one host, pairs of ranks pretend to be hosts; under torchrun's agents
they are.

    outrigger run -n 4 -- python test_hosts.py
"""
import os
import unittest

import torch
import torch.distributed as dist
from models import PRECISIONS, config, engine_of, master_of, net, train_alike

import outrigger
import outrigger.torch
from outrigger.torch.launched import launched_comm

EACH = 2
for prefix, size in (("", "WORLD_SIZE"), ("OMPI_COMM_WORLD_", "SIZE")):
    local_rank, local_size = (f"{prefix}LOCAL_{name}" for name in ("RANK", size))
    if prefix + size in os.environ and os.environ[local_size] == os.environ[prefix + size]:
        os.environ[local_rank] = str(int(os.environ[f"{prefix}RANK"]) % EACH)
        os.environ[local_size] = str(EACH)


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
                    train_alike(engines, found.rank, 4)
                    for one, other in zip(*(master_of(each) for each in engines)):
                        self.assertTrue(torch.equal(one, other))
                    for each in engines:
                        each.destroy()


if __name__ == "__main__":
    unittest.main()
