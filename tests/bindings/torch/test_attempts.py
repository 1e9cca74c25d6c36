# SPDX-License-Identifier: Apache-2.0
"""Ranks of a new attempt find each other in a store that is full of what former attempts left.

    test_attempts.py Meeting | Processes
"""
import concurrent.futures
import datetime
import os
import subprocess
import sys
import threading
import time
import unittest

from torch.distributed import TCPStore

from outrigger import OutriggerError, meeting
from outrigger.torch.attempts import StoreBoard


class Case(unittest.TestCase):
    def setUp(self):
        self.server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


class Meeting(Case):
    def agree(self, world, seconds=30.0, ranks=None):
        """What each of the ranks gets, each with a connection of its own. ranks: in the order in which they come."""
        def one(rank):
            store = TCPStore("127.0.0.1", self.server.port, is_master=False, timeout=datetime.timedelta(seconds=seconds))
            return meeting.agree(StoreBoard(store), rank, world, seconds)

        with concurrent.futures.ThreadPoolExecutor(world) as pool:
            return [each.result() for each in [pool.submit(one, rank) for rank in (range(world) if ranks is None else ranks)]]

    def test_each_attempt_has_a_name(self):
        seen = set()
        for world in (4, 2, 2, 3, 1):  # each finds what all before it left
            name, *others = self.agree(world)
            self.assertEqual(others, [name] * (world - 1))
            self.assertNotIn(name, seen)
            seen.add(name)

    def test_a_dead_rank_that_asked_is_not_taken_for_the_new_one(self):
        self.server.set("outrigger/asks/1", "of a rank that died before it was answered")
        new = threading.Timer(0.5, lambda: self.late.append(self.agree(2, ranks=[1])))
        self.late = []
        new.start()
        first = self.agree(2, ranks=[0])
        new.join()
        self.assertEqual(self.late, [first])

    def test_who_did_not_come_is_named(self):
        with self.assertRaisesRegex(OutriggerError, r"E_TIMEOUT.*ranks 1, 2, 3 of 4 did not come within 0.2 s"):
            self.agree(4, 0.2, ranks=[0])
        with self.assertRaisesRegex(OutriggerError, r"E_TIMEOUT.*rank 3 waited 0.2 s for rank 0, which did not come"):
            self.agree(4, 0.2, ranks=[3])

    def test_all_who_came_hear_who_did_not(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for each in [pool.submit(self.agree, 3, seconds, [rank]) for rank, seconds in ((0, 0.5), (2, 30.0))]:
                with self.assertRaisesRegex(OutriggerError, r"E_TIMEOUT.*rank 1 of 3 did not come within 0.5 s"):
                    each.result()


class Processes(Case):
    def test_init_distributed_leaves_the_store_of_former_attempts_alone(self):
        """A rank whose address a former attempt left: PyTorch alone reads it there."""
        self.server.set("default_pg/0//cpu//0/0", "not an address")
        script = ("import torch, torch.distributed as dist, outrigger.torch as o; o.init_distributed(); x = torch.ones(1); dist.all_reduce(x); "
                  "print(dist.get_rank(), dist.get_world_size(), x.item())")

        def start(rank):
            return subprocess.Popen([sys.executable, "-W", "error", "-c", script], stdout=subprocess.PIPE, text=True,
                                    env=dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(self.server.port),
                                             TORCHELASTIC_USE_AGENT_STORE="True", OMP_NUM_THREADS="1"))

        ranks = [start(1)]
        while ranks[0].poll() is None and not any(self.server.check([key]) for key in ("outrigger/asks/1", "default_pg/0//cpu//0/1")):
            time.sleep(0.1)
        ranks.insert(0, start(0))
        self.assertEqual([each.communicate(timeout=120)[0] for each in ranks], ["0 2 2.0\n", "1 2 2.0\n"])
        self.assertEqual([each.returncode for each in ranks], [0, 0])


if __name__ == "__main__":
    unittest.main()
