# SPDX-License-Identifier: Apache-2.0
"""Programs that are killed and started again print what one prints that was never stopped, to the last digit.

    test_stopped.py LAUNCHER Example            LAUNCHER: the path of outrigger
    test_stopped.py LAUNCHER Libraries          or "torchrun"; needs accelerate and transformers, too
"""
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[2] / "bindings/python/examples/torch/resume.py"
COMPAT = ("-m", "outrigger.torch.compat")
launcher = None


def command(script, ranks, *arguments, options=()):
    if launcher == "torchrun":
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    else:
        start = [launcher, "run", "-n", str(ranks), "--", sys.executable]
    return [*start, *options, str(script), *map(str, arguments)]


def losses_in(text):
    return {int(step): loss for word, step, loss in (line.split() for line in text.splitlines() if line.startswith("loss "))}


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_to_its_end(self, *arguments, **options):
        done = subprocess.run(command(*arguments, **options), capture_output=True, text=True, timeout=300, check=False, env=environment())
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-4000:])
        return losses_in(done.stdout)


def environment():
    return dict(os.environ, OMP_NUM_THREADS="1")


class Example(Case):
    def killed(self, ranks, at):
        """Launcher and ranks, when the first rank has printed step `at`."""
        with subprocess.Popen(command(EXAMPLE, ranks, self.folder / "killed"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              start_new_session=True, env=environment()) as process:
            for line in process.stdout:
                if line.startswith(f"loss {at} "):
                    break
            os.killpg(process.pid, signal.SIGKILL)
            process.stdout.read()  # until the ranks are gone, too
        self.assertNotEqual(process.returncode, 0)

    def goes_on(self, ranks):
        expected = self.run_to_its_end(EXAMPLE, ranks, self.folder / "whole")
        self.assertEqual(list(expected), list(range(60)))
        self.killed(ranks, 13)
        self.killed(ranks, 34)
        found = self.run_to_its_end(EXAMPLE, ranks, self.folder / "killed")
        self.assertEqual(list(found)[-1], 59)
        self.assertIn(min(found), (20, 30, 40))
        self.assertEqual(found, {step: expected[step] for step in found})

    def test_one_rank_goes_on(self):
        self.goes_on(1)

    def test_two_ranks_go_on(self):
        self.goes_on(2)


class Libraries(Case):
    def goes_on(self, script, stage, ranks, dies, again):
        path = HERE / "stopped" / f"{script}.py"
        expected = self.run_to_its_end(path, ranks, self.folder / "whole", stage, 0, options=COMPAT)
        done = subprocess.run(command(path, ranks, self.folder / "killed", stage, dies, options=COMPAT), capture_output=True, text=True, timeout=300,
                              check=False, env=environment())
        self.assertNotEqual(done.returncode, 0, done.stdout)
        found = self.run_to_its_end(path, ranks, self.folder / "killed", stage, 0, options=COMPAT)
        self.assertEqual(min(found), again)
        self.assertGreater(len(found), 7)
        self.assertEqual(found, {step: expected[step] for step in found})

    def test_trainer_with_a_schedule_of_deepspeed(self):
        self.goes_on("trainer", 2, 2, 20, 17)

    def test_trainer_with_its_own_schedule_in_slices(self):
        self.goes_on("trainer", 3, 2, 12, 9)

    def test_accelerate(self):
        self.goes_on("accelerate_state", 2, 2, 11, 8)


if __name__ == "__main__":
    launcher = sys.argv.pop(1)
    unittest.main(verbosity=2)
