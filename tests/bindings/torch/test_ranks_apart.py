# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher: an engine over a process group of torch.distributed has the bits of shared memory.

    outrigger run -n 2 -- python test_ranks_apart.py
"""
import unittest

import torch
import torch.distributed as dist
from models import PRECISIONS, engine_of, master_of, net, train_alike

import outrigger
import outrigger.torch
from outrigger.process import process_comm
from outrigger.torch.process_group import comm_of


class Apart(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        outrigger.torch.init_distributed()
        self.comm = comm_of(outrigger.Context(workers=1))

    def test_same_bits_as_shared_memory(self):
        rank = self.comm.rank
        # mics: ranks that share a training out among them; 1: each rank has all of it
        for stage, mics in [(0, -1), (1, -1), (2, -1), (3, -1), (1, 1), (3, 1)]:
            for precision in PRECISIONS.values():
                with self.subTest(stage=stage, mics=mics, **precision):
                    zero = {"stage": stage, "stage3_param_persistence_threshold": 0, "mics_shard_size": mics}
                    engines = [engine_of(net(), comm=comm, zero_optimization=zero, gas=2, clip=0.5, **precision)
                               for comm in (self.comm, process_comm())]
                    train_alike(engines, rank, 6)
                    for one, other in zip(*(master_of(engine) for engine in engines)):
                        self.assertTrue(torch.equal(one, other))
                    for engine in engines:
                        engine.destroy()

    def test_a_group_of_one(self):
        groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
        own = comm_of(outrigger.Context(workers=1), groups[dist.get_rank()])
        self.assertEqual((own.rank, own.size), (0, 1))
        engine = engine_of(net(), comm=own, stage=2)
        engine(torch.ones(8, 6)).sum().backward()
        engine.step()
        self.assertEqual(engine.global_steps, 1)

    def test_what_a_method_raises_is_the_calls_exception(self):
        class Broken:
            rank, world_size = 0, 2

            def all_gather(self, mine, all):
                raise ConnectionError("the cable is out")

            def duplicate(self):
                return Broken()

            def close(self):
                pass

            abort = broadcast = all_to_all = all_gather
        with self.assertRaisesRegex(ConnectionError, "the cable is out"):
            outrigger.Comm.custom(outrigger.Context(workers=1), Broken()).barrier()
        with self.assertRaises(AttributeError):
            outrigger.Comm.custom(outrigger.Context(workers=1), object())


if __name__ == "__main__":
    unittest.main()
