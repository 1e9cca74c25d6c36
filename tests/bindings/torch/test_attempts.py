# SPDX-License-Identifier: Apache-2.0
"""Ranks of a new attempt find each other in torchrun's store, which is full of what former attempts left."""
import datetime
import os
import pathlib
import subprocess
import sys
import time
import unittest

from torch.distributed import TCPStore

from outrigger.torch.attempts import StoreBoard

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import test_meeting  # noqa: E402 - found by the line above


def server():
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


class Store(test_meeting.Meeting):
    def setUp(self):
        self.server = server()

    def board(self):
        return StoreBoard(TCPStore("127.0.0.1", self.server.port, is_master=False, timeout=datetime.timedelta(seconds=30)))


class Processes(unittest.TestCase):
    def test_init_distributed_leaves_the_store_of_former_attempts_alone(self):
        """A rank whose address a former attempt left: PyTorch alone reads it there."""
        self.server = server()
        self.server.set("default_pg/0//cpu//0/0", "not an address")
        script = ("import torch, torch.distributed as dist, outrigger.torch as o; o.init_distributed(); x = torch.ones(1); dist.all_reduce(x); "
                  "print(dist.get_rank(), dist.get_world_size(), x.item())")

        def start(rank):
            process = subprocess.Popen([sys.executable, "-W", "error", "-c", script], stdout=subprocess.PIPE, text=True,
                                       env=dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(self.server.port),
                                                TORCHELASTIC_USE_AGENT_STORE="True", OMP_NUM_THREADS="1"))
            self.addCleanup(process.kill)
            return process

        ranks = [start(1)]
        while ranks[0].poll() is None and not any(self.server.check([key]) for key in ("outrigger/asks/1", "default_pg/0//cpu//0/1")):
            time.sleep(0.1)
        ranks.insert(0, start(0))
        self.assertEqual([each.communicate(timeout=120)[0] for each in ranks], ["0 2 2.0\n", "1 2 2.0\n"])
        self.assertEqual([each.returncode for each in ranks], [0, 0])


if __name__ == "__main__":
    unittest.main()
