# SPDX-License-Identifier: Apache-2.0
"""A training under `outrigger run --max-restarts` whose rank 1 is killed ends with the bits of one that was not, and leaves nothing.

    test_restarts.py LAUNCHER Restarts
    test_restarts.py LAUNCHER Examples.test_jax_blocks    or another example's, whose framework must be there
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np

HERE = pathlib.Path(__file__).parent
TRAINING = HERE / "restarts/training.py"
EXAMPLES = HERE.parents[1] / "bindings/python/examples"
launcher = None


def processes(mark):
    """Of this test: those that have its folder among their words."""
    found = []
    for each in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in each.read_bytes() and int(each.parent.name) != os.getpid():
                found.append(each.parent.name)
        except OSError:
            pass  # it has just gone
    return found


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="outrigger-restarts-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Restarts(Case):
    def train(self, name, seed, attempts, most, ranks=2, options=()):
        """rank 1 dies in so many attempts; the weights of the end, and the process that ran."""
        command = [launcher, "run", "-n", str(ranks), "--max-restarts", str(most), "--restart-pause", "0", *options, "--", sys.executable, str(TRAINING),
                   str(self.folder / name), str(self.folder / f"{name}.npz"), str(seed), str(attempts)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(processes(str(self.folder / name)), [])
        return done

    def values(self, name):
        with np.load(self.folder / f"{name}.npz") as file:
            return {each: file[each].tobytes() for each in file.files}

    def test_it_ends_with_the_same_bits(self):
        for seed in (1, 2, 3):
            with self.subTest(seed=seed):
                whole = self.train(f"whole{seed}", seed, 0, 0)
                self.assertEqual((whole.returncode, whole.stdout), (0, "begins at 0\n"), whole.stderr)
                killed = self.train(f"killed{seed}", seed, 2, 2)
                self.assertEqual(killed.returncode, 0, killed.stderr)
                begins = [int(each) for each in re.findall(r"begins at (\d+)", killed.stdout)]
                self.assertEqual((len(begins), begins[0]), (3, 0))
                self.assertTrue(0 < begins[1] <= begins[2], begins)
                self.assertEqual(len(re.findall(r"rank 1 \(process \d+\) was killed by signal 9 \(Killed\) after [\d.]+ s; restart [12] of 2 now\n",
                                                killed.stderr)), 2, killed.stderr)
                expected = self.values(f"whole{seed}")
                self.assertEqual(len(expected), 4)
                self.assertEqual(self.values(f"killed{seed}"), expected)
                self.assertEqual({path.name for path in (self.folder / f"killed{seed}").iterdir()}, {".lock", "latest", "step30", "step36"})

    def test_it_goes_on_with_fewer_as_by_hand(self):
        """Rank 1 dies at the same moment in both."""
        by_itself = self.train("itself", 2, 1, 1, 4, ["--min-workers", "3"])
        self.assertEqual(by_itself.returncode, 0, by_itself.stderr)
        self.assertEqual(by_itself.stderr.count("; restart 1 of 1 with 3 ranks now\n"), 1, by_itself.stderr)
        stopped = self.train("hand", 2, 1, 0, 4)
        self.assertEqual(stopped.returncode, 128 + 9, stopped.stderr)
        by_hand = self.train("hand", 2, 0, 0, 3)
        self.assertEqual(by_hand.returncode, 0, by_hand.stderr)
        self.assertEqual(stopped.stdout + by_hand.stdout, by_itself.stdout)
        self.assertNotIn("begins at 0", by_hand.stdout)
        self.assertEqual(self.values("itself"), self.values("hand"))

    def test_restarts_are_used_up(self):
        done = self.train("up", 1, 9, 1)
        self.assertEqual(done.returncode, 128 + 9, done.stderr)
        self.assertEqual(done.stdout.count("begins at"), 2)
        self.assertFalse((self.folder / "up.npz").exists())
        # Nobody holds the folder: another day goes on there.
        again = self.train("up", 1, 0, 0)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertGreater(int(again.stdout.split()[-1]), 0)
        self.train("whole", 1, 0, 0)
        self.assertEqual(self.values("up"), self.values("whole"))


class Examples(Case):
    """What an example prints at its end follows from all of its losses."""

    def run_example(self, name, ranks, restarts, *arguments, killed=True, save=1):
        command = [launcher, "run", "-n", str(ranks), "--max-restarts", str(restarts), "--restart-pause", "0", "--", sys.executable, "-W", "error",
                   *([str(HERE / "restarts/killed.py")] if killed else []), str(EXAMPLES / name), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=dict(os.environ, OMP_NUM_THREADS="1", KILLED_BEHIND_SAVE=str(save)))

    def goes_on(self, name, ranks=2, save=1):
        folder = self.folder / name.replace("/", "_")
        whole = self.run_example(name, ranks, 0)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertTrue(whole.stdout)
        stopped = self.run_example(name, ranks, 1, "--checkpoints", str(folder), save=save)
        self.assertEqual(stopped.returncode, 0, stopped.stderr)
        self.assertEqual(stopped.stderr.count("; restart 1 of 1 now"), 1, stopped.stderr)
        self.assertEqual(stopped.stdout, whole.stdout)
        again = self.run_example(name, ranks, 0, "--checkpoints", str(folder))  # nothing is left to do
        self.assertEqual((again.returncode, again.stdout), (0, whole.stdout), again.stderr)

    def test_numpy(self):
        self.goes_on("numpy/regression.py")
        self.goes_on("numpy/managed.py", save=2)

    def test_jax_classifier(self):
        self.goes_on("jax/classifier.py")

    def test_jax_blocks(self):
        self.goes_on("jax/blocks.py")

    def test_jax_transformation(self):
        self.goes_on("jax/transformation.py", ranks=1)

    def test_frozen_base(self):
        self.goes_on("torch/frozen_base.py")

    def test_deepspeed_script(self):
        self.goes_on("torch/deepspeed_script.py")

    # Killed between the saves of one moment: the second engine has an older one, to which the first goes back.
    def test_chain(self):
        self.goes_on("torch/chain.py", save=3)

    def test_gan(self):
        self.goes_on("torch/gan.py", save=3)

    def test_transformers(self):
        self.goes_on("torch/gpt2.py")

    def test_accelerate(self):
        self.goes_on("torch/accelerate_gpt2.py")  # in the middle of an epoch

    def test_transformers_on_other_ranks(self):
        def losses(done):
            self.assertEqual(done.returncode, 0, done.stderr)
            return np.array([float(each) for each in re.search("held-out losses: (.*)", done.stdout)[1].split()])

        name = "torch/gpt2.py"
        whole = losses(self.run_example(name, 2, 0, killed=False))
        self.assertEqual(len(whole), 4)
        folder = self.folder / "killed"
        killed = self.run_example(name, 2, 0, "--checkpoints", str(folder))
        self.assertEqual(killed.returncode, 128 + 9, killed.stderr)
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                copy = shutil.copytree(folder, self.folder / str(ranks), symlinks=True)
                on = losses(self.run_example(name, ranks, 0, "--checkpoints", str(copy), killed=False))
                self.assertEqual(on[0], whole[0])  # of the run that was killed
                np.testing.assert_allclose(on, whole, rtol=0.01)  # other orders of addition, rounded to bfloat16


if __name__ == "__main__":
    launcher = sys.argv.pop(1)
    unittest.main()
