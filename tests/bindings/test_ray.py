# SPDX-License-Identifier: Apache-2.0
"""outrigger.ray.group in actors on one node and on several (raylets of this machine), in workers of Ray Train, and where it is refused.

    test_ray.py OneNode        without PyTorch
    test_ray.py Nodes          needs PyTorch
    test_ray.py Train          needs PyTorch and what ray[train] needs
"""
import os
import secrets
import shutil
import sys
import tempfile
import time
import unittest
from pathlib import Path

os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_IGNORE_UNHANDLED_ERRORS="1", RAY_worker_register_timeout_seconds="600",
                  RAY_TRAIN_V2_ENABLED="1", RAY_AUTH_TOKEN=secrets.token_hex(32), OMP_NUM_THREADS="1",
                  PYTHONPATH=os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]]))

import numpy as np  # noqa: E402
import ray  # noqa: E402

import outrigger.numpy  # noqa: E402
import outrigger.ray  # noqa: E402
from outrigger import OutriggerError  # noqa: E402


class Rank:
    """What an actor does; each asks for the group itself."""

    def join(self, actors, timeout=60.0):
        self.comm = outrigger.ray.group(actors, timeout=timeout)
        return self.comm.rank, self.comm.size, self.comm.shares_memory

    def pid(self):
        return os.getpid()

    def use(self, levels=1):
        """Everything that an engine asks of a group, by value."""
        rank, size = self.comm.rank, self.comm.size
        sums, data, received = np.array([rank + 1.0, 10.0**rank]), np.array([rank == 0], np.uint8), bytearray(size)
        self.comm.all_reduce_sum(sums)
        self.comm.broadcast(data)
        if levels == 1:
            self.comm.all_to_all(bytes(16 * rank + to for to in range(size)), [1] * size, received, [1] * size)
        half = self.comm.split(rank % 2, rank)
        return [sums.tolist(), data.tolist(), list(received), list(self.comm.all_gather(bytes([rank]))), list(half.all_gather(bytes([rank])))]

    def train(self, steps=5):
        """Its weights at the end, the same on all ranks."""
        config = {"optimizer": {"type": "SGD", "params": {"lr": 0.125}}, "zero_optimization": {"stage": 2}, "gradient_clipping": 0.0}
        with outrigger.numpy.Engine({"w": np.ones((4, 3), np.float32)}, config, comm=self.comm) as engine:
            for step in range(steps):
                with engine.backward(np.float32(1)) as grads:
                    grads["w"] = np.full((4, 3), step + engine.rank, np.float32)
                engine.step()
            return engine.read("w")

    def wait_for_all(self):
        self.comm.barrier()


def used(rank, size, levels=1):
    """By use()."""
    received = [16 * each + rank if levels == 1 else 0 for each in range(size)]
    return [[size * (size + 1) / 2, sum(10.0**each for each in range(size))], [1], received, list(range(size)), list(range(rank % 2, size, 2))]


def trained(size, steps=5):
    """By train(): numbers without rounding where size is a power of two."""
    return 1 - 0.125 * sum(step + (size - 1) / 2 for step in range(steps))


class Case(unittest.TestCase):
    def setUp(self):
        self.actors = []

    def tearDown(self):
        for each in self.actors:
            ray.kill(each)

    def make(self, count, **options):
        made = [ray.remote(num_cpus=0)(Rank).options(**options).remote() for _ in range(count)]
        self.actors += made
        return made

    def join(self, actors, timeout=60.0):
        return ray.get([each.join.remote(actors, timeout) for each in actors], timeout=300)

    def is_a_group(self, actors, shares_memory, levels=1):
        size = len(actors)
        self.assertEqual(self.join(actors), [(rank, size, shares_memory) for rank in range(size)])
        self.assertEqual(ray.get([each.use.remote(levels) for each in actors], timeout=60), [used(rank, size, levels) for rank in range(size)])
        for weights in ray.get([each.train.remote() for each in actors], timeout=60):
            np.testing.assert_array_equal(weights, np.full((4, 3), trained(size), np.float32))


class OneNode(Case):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="ray-")
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        ray.init(address="local", num_cpus=2, object_store_memory=100 * 2**20, include_dashboard=False, log_to_driver=False, logging_level="error", _temp_dir=folder)
        cls.addClassCleanup(ray.shutdown)

    def test_actors(self):
        actors = self.make(4)
        self.is_a_group(actors, True)
        self.is_a_group(actors, True)  # the same list again: another group
        self.is_a_group([actors[2], actors[0]], True)
        lost = actors[1]
        pid = ray.get(lost.pid.remote())
        waiting = [each.wait_for_all.remote() for each in (actors[0], actors[2])]  # whoever dies leaves the list, not the number of the rank
        self.assertEqual(ray.get(waiting, timeout=60), [None, None])
        os.kill(pid, 9)
        begin = time.monotonic()
        calls = [each.join.remote(actors) for each in actors if each is not lost]
        for call in calls:
            with self.assertRaisesRegex(OutriggerError, rf"E_PEER_DEAD.*rank 1 is Actor\(Rank, {lost._actor_id.hex()}\), which is dead: .*another actor in its place"):
                ray.get(call, timeout=60)
        self.assertLess(time.monotonic() - begin, 30)
        self.is_a_group([actors[0], *self.make(1), *actors[2:]], True)

    def test_who_does_not_come_is_named(self):
        actors = self.make(3)
        ray.get([each.pid.remote() for each in actors])
        for call in [each.join.remote(actors, 3.0) for each in actors[::2]]:
            with self.assertRaisesRegex(OutriggerError, r"E_TIMEOUT.*rank 1 of 3 did not come within 3 s"):
                ray.get(call, timeout=60)

    def test_wrong_use(self):
        actors = self.make(2)
        for text, error, given in (("the list of actors is empty; a group has one rank or more", ValueError, []),
                                   (r"actors\[1\] is a str; give handles of actors", TypeError, [actors[0], "actor"]),
                                   (r"Actor\(Rank, \w+\) is rank 0 and rank 2; an actor is one rank", ValueError, [actors[0], actors[1], actors[0]]),
                                   (rf"this actor \({actors[0]._actor_id.hex()}\) is not among the 1 of the list", ValueError, [actors[1]]),
                                   ("called in the training function of Ray Train, and this is none; give the list", RuntimeError, None)):
            with self.subTest(text=text), self.assertRaisesRegex(error, text):
                ray.get(actors[0].join.remote(given), timeout=60)
        with self.assertRaisesRegex(RuntimeError, "this process is no actor; call it in a method of each"):
            outrigger.ray.group(actors)


class NotInitialised(unittest.TestCase):
    def test_is_refused(self):
        for given in ([], None):
            with self.assertRaisesRegex(RuntimeError, "Ray is not initialised in this process; call it in Ray's actors"):
                outrigger.ray.group(given)


class Nodes(Case):
    @classmethod
    def setUpClass(cls):
        from ray.cluster_utils import Cluster
        folder = tempfile.mkdtemp(prefix="ray-")
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        os.environ["RAY_TMPDIR"] = folder
        os.mkdir(os.path.join(folder, "ray"))
        cluster = Cluster()
        cls.addClassCleanup(cluster.shutdown)
        for node in range(2):
            cluster.add_node(num_cpus=4, resources={f"node{node}": 100}, object_store_memory=100 * 2**20, include_dashboard=False)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        cls.addClassCleanup(ray.shutdown)

    def test_two_levels(self):
        actors = [*self.make(2, resources={"node0": 1}), *self.make(2, resources={"node1": 1})]
        self.is_a_group(actors, False, levels=2)
        os.kill(ray.get(actors[3].pid.remote()), 9)
        for waiting in [each.wait_for_all.remote() for each in actors[:3]]:
            with self.assertRaisesRegex(OutriggerError, rf"rank 3 is Actor\(Rank, {actors[3]._actor_id.hex()}\), which is dead"):
                ray.get(waiting, timeout=60)

    def test_one_level(self):
        first, second = self.make(2, resources={"node0": 1}), self.make(2, resources={"node1": 1})
        self.is_a_group([first[0], second[0], first[1], second[1]], False)  # of a node not side by side
        self.is_a_group([first[1], second[1]], False)
        pid = ray.get(second[1].pid.remote())
        waiting = first[1].wait_for_all.remote()
        os.kill(pid, 9)
        with self.assertRaisesRegex(OutriggerError, rf"E_PEER_DEAD.*rank 1 is Actor\(Rank, {second[1]._actor_id.hex()}\), which is dead"):
            ray.get(waiting, timeout=60)


class Train(unittest.TestCase):
    def test_workers(self):
        from ray.train import RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer
        folder = tempfile.mkdtemp(prefix="ray-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        ray.init(address="local", num_cpus=3, object_store_memory=100 * 2**20, include_dashboard=False, log_to_driver=False, logging_level="error", _temp_dir=folder)
        self.addCleanup(ray.shutdown)

        def train(config):
            worker = Rank()
            worker.comm = outrigger.ray.group(timeout=60.0)
            here = ray.train.get_context()
            assert (worker.comm.rank, worker.comm.size, worker.comm.shares_memory) == (here.get_world_rank(), 2, True)
            assert worker.use() == used(worker.comm.rank, 2)
            np.save(os.path.join(folder, f"{config['number']} {worker.comm.rank}"), worker.train())

        for number in range(2):  # the same name again, beside what the first has left
            TorchTrainer(train, train_loop_config={"number": number}, scaling_config=ScalingConfig(num_workers=2),
                         run_config=RunConfig(name="ours", storage_path=folder)).fit()
            for rank in range(2):
                np.testing.assert_array_equal(np.load(os.path.join(folder, f"{number} {rank}.npy")), np.full((4, 3), trained(2), np.float32))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
