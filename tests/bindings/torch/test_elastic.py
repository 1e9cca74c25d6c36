# SPDX-License-Identifier: Apache-2.0
"""A training that loses ranks goes on by itself from its last checkpoint, on those that are left, with the bits of one that was stopped
at that checkpoint and started again by hand on so many: under torchrun, whose agents on this machine stand for hosts, and under
outrigger run.

    test_elastic.py LAUNCHER
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from jobs import free_port, stored

HERE = pathlib.Path(__file__).resolve().parent
KILLED, SLOW = (str(HERE.parent / f"restarts/{name}.py") for name in ("killed", "slow"))
EXAMPLE = str(HERE.parents[2] / "bindings/python/examples/torch/elastic.py")
STEPS, LAST, LOST = 40, 20, 26  # of the example: all, the last checkpoint before the loss, and the one that is not ended
BATCH, MICRO = 24, 2
launcher = None


def values(folder):
    """All that the training is at its end."""
    found = stored(folder, f"global_step{STEPS}")
    assert len(found) == 12 + 2, found  # of four parameters; tag and progress
    return found


def at(ranks):
    """For killed.py: the middle of the step that is not ended, of so many ranks."""
    return {"KILLED_BEHIND_STEP": str(BATCH // (MICRO * ranks) * (LOST - 1) + 1)}


class Elastic(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="outrigger-elastic-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def agent(self, port, node, most, each, folder, wait, program, **environment):
        """torchrun of one host. wait: seconds for further hosts. The first one's store is everybody's."""
        conf = f"is_host={int(node == 0)},last_call_timeout={wait},keep_alive_interval=1,keep_alive_max_attempt=3"
        return subprocess.Popen([sys.executable, "-m", "torch.distributed.run", f"--nnodes=1:{most}", f"--nproc-per-node={each}", "--max-restarts=3", "--rdzv-backend=c10d",
                                 f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=elastic", f"--rdzv-conf={conf}", program, EXAMPLE, str(folder)],
                                env=dict(os.environ, OMP_NUM_THREADS="1", **environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end_of(self, agents, codes):
        """What they and their ranks print."""
        try:
            written = [each.communicate(timeout=240)[0] for each in agents]
        finally:
            for each in agents:
                each.kill()
        self.assertEqual([each.returncode for each in agents], codes, "\n".join(written))
        return "\n".join(written)

    def lose_a_host(self, hosts, each, folder):
        port = free_port()
        agents = [self.agent(port, node, hosts, each, folder, 15, KILLED, KILLED_HOST="1", **at(hosts * each)) for node in range(hosts)]
        return self.end_of(agents, [0] * (hosts - 1) + [-9])

    def goes_on(self, text, before, after, folder, each=None, step=LAST):
        """As by hand. each: ranks that find each other in memory, as on a host; default: all."""
        self.assertEqual(re.findall(r"(\d+) ranks go on from step (\d+)", text), [(str(before), "0"), (str(after), str(step))], text)
        by_hand = self.folder / "by hand"
        shutil.copytree(folder / f"global_step{step}", by_hand / f"global_step{step}")
        (by_hand / "latest").write_text(f"global_step{step}")
        pretend = f"LOCAL_RANK=$((RANK % {each})) LOCAL_WORLD_SIZE={each}; export LOCAL_RANK LOCAL_WORLD_SIZE; " if each else ""
        done = subprocess.run([launcher, "run", "-n", str(after), "--", "sh", "-c", f'{pretend}exec "$@"', "sh", sys.executable, "-W", "error", EXAMPLE, str(by_hand)],
                              env=dict(os.environ, OMP_NUM_THREADS="1"), capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, f"{after} ranks go on from step {step}\n"), done.stderr)
        self.assertEqual(values(folder), values(by_hand))

    def test_one_of_two_hosts_is_left(self):
        folder = self.folder / "training"
        self.goes_on(self.lose_a_host(2, 2, folder), 4, 2, folder)

    def test_two_of_three_hosts_are_left(self):
        folder = self.folder / "training"
        self.goes_on(self.lose_a_host(3, 1, folder), 3, 2, folder)

    def test_a_host_comes(self):
        """torchrun starts all ranks again, and counts no restart. With a shared store its agents would wait for each other."""
        folder, port, apart = self.folder / "training", free_port(), {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        first = self.agent(port, 0, 2, 2, folder, 1, SLOW, **apart)
        while not (folder / "latest").exists() and first.poll() is None:
            time.sleep(0.1)
        text = self.end_of([first, self.agent(port, 1, 2, 2, folder, 1, SLOW, **apart)], [0, 0])
        step = int(re.findall(r"4 ranks go on from step (\d+)", text)[0])
        self.assertGreater(step, 0)
        self.goes_on(text, 2, 4, folder, each=2, step=step)

    def test_three_of_four_workers_are_left(self):
        folder = self.folder / "training"
        done = subprocess.run([launcher, "run", "-n", "4", "--max-restarts", "1", "--min-workers", "3", "--restart-pause", "0", "--", sys.executable, "-W", "error",
                               KILLED, EXAMPLE, str(folder)], env=dict(os.environ, OMP_NUM_THREADS="1", **at(4)), capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("; restart 1 of 1 with 3 ranks now\n", done.stderr)
        self.goes_on(done.stdout, 4, 3, folder)


if __name__ == "__main__":
    launcher = sys.argv.pop(1)
    unittest.main()
