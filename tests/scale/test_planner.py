# SPDX-License-Identifier: Apache-2.0
"""The program behind docs/scaling.md's planner, as one rank of up to 16,384:   test_planner.py PROGRAM"""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/scale"))
import planner  # noqa: E402
import transformers  # noqa: E402

PROGRAM = Path()  # from the command line
SMALL = transformers.Transformer("small", 2, 512, 1024, 1000, 512)


class Planner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = Path(folder.name)
        (self.work / "bench_scale_plan").symlink_to(PROGRAM)

    def ask(self, model, name, world, limit=0, last="commit"):
        return planner.ask(self.work, self.work, model, name, world, limit, last)

    def test_seven_billion_on_16384_ranks(self):
        found = self.ask(transformers.LLAMA_7B, "stage 3", 16384)
        self.assertEqual((found["tensors"], found["elements"]), (291, 6738415616))
        # A bucket is a sixteenth of the model, so 17 with what is left; a slice of it is 1/16,384, in whole leaves.
        self.assertEqual(found["layout"]["buckets"], 17)
        self.assertEqual(found["layout"]["largest_slice_elements"] % 256, 0)
        self.assertGreater(found["layout"]["largest_slice_elements"] * 16384, 6738415616 / 17)
        self.assertEqual(set(found["phases"]), {"communicator", "declare", "estimate", "layout"})  # the limit forbids a commit
        # The communicator's first call: 128 bytes from each other rank; then rank 0's 8 that tell it from other groups.
        self.assertEqual((found["phases"]["communicator"]["calls"], found["phases"]["communicator"]["received_bytes"]), (2, 128 * 16383 + 8))
        for phase in found["phases"].values():
            self.assertGreater(phase["seconds"], 0)
            self.assertLess(phase["most_bytes"], 64 << 20)  # of metadata

    def test_a_commit_is_run_and_its_ledger_is_the_estimate(self):
        for name in planner.RUN:
            found = self.ask(SMALL, name, 512, 1 << 30)
            self.assertEqual(found["ledger_bytes"], found["commit_would_take"], name)
            self.assertGreater(found["phases"]["commit"]["calls"], 0)
            self.assertNotIn("step", found["phases"])

    def test_a_step_moves_two_bytes_a_parameter(self):
        found = self.ask(SMALL, "stage 3", 64, 1 << 30, "step")
        moved = found["phases"]["step"]["received_bytes"]
        self.assertGreater(moved, 2 * found["elements"] * 63 / 64)
        self.assertLess(moved, 1.1 * 2 * found["elements"] * 63 / 64)  # with padding, and what ranks tell each other

    def test_memory_of_configurations(self):
        size = {name: planner.device_bytes({"runs": [{"model": "7 B", "configuration": name, "world": 64, **self.ask(transformers.LLAMA_7B, name, 64)}]}, "7 B", name, 64)
                for name in planner.CONFIGURATIONS}
        self.assertGreater(size["stage 1"], size["stage 2"])
        self.assertGreater(size["stage 2"], size["mesh"])
        self.assertGreater(size["mesh"], size["hpZ"])
        self.assertGreater(size["hpZ"], size["stage 3"])
        self.assertGreater(size["stage 3"], size["offload"])

    def test_a_mesh_has_few_owners(self):
        """Of a parameter of millions: the ranks of a group; where states go over all, all."""
        self.assertEqual(self.ask(transformers.LLAMA_7B, "mesh", 64)["layout"]["most_owners_of_a_parameter"], 8)
        self.assertEqual(self.ask(transformers.LLAMA_7B, "hpZ", 64)["layout"]["most_owners_of_a_parameter"], 64)

    def test_wrong_use(self):
        shapes, config = planner.question(self.work, SMALL, "stage 3")
        for words, text in ((["x", config, 8, 0, 0, "commit"], "x cannot be read"), ([shapes, "y", 8, 0, 0, "commit"], "y cannot be read"), ([shapes, config, 8, 9, 0, "commit"], "rank"),
                            ([shapes, config, 8, 0, 0, "train"], "usage")):
            done = subprocess.run([str(word) for word in (PROGRAM, *words)], capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(text, done.stderr)
        shapes.write_text("w 4 0\n", encoding="utf-8")
        done = subprocess.run([str(word) for word in (PROGRAM, shapes, config, 8, 0, 0, "commit")], capture_output=True, text=True, check=False)
        self.assertIn('"w 4 0" is not "name rows columns"', done.stderr)
        self.assertIn("mesh", self.ask(SMALL, "mesh", 12)["missing"])  # groups of 8 do not divide 12 ranks


if __name__ == "__main__":
    PROGRAM = Path(sys.argv.pop(1)).absolute()
    unittest.main()
