# SPDX-License-Identifier: Apache-2.0
"""docs/scaling.md is what the model makes of docs/scaling/results.json: no figure in its tables is written by hand."""
import copy
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/scale"))
import planner  # noqa: E402
import predictions  # noqa: E402
import same_host  # noqa: E402
import scaling_page  # noqa: E402
import stored  # noqa: E402

PAGE = (ROOT / "docs/scaling.md").read_text(encoding="utf-8")
KNOWN = stored.read(ROOT / "docs/scaling")


class Page(unittest.TestCase):
    def test_is_what_the_model_makes(self):
        self.assertEqual(PAGE, scaling_page.filled(PAGE, KNOWN), "run python scripts/scale/scale.py --again")

    def test_what_was_measured_is_complete(self):
        found = {(run["model"], run["configuration"], run["world"]): run for run in KNOWN["planner"]["runs"]}
        self.assertEqual(set(found), {(m.name, name, world) for m in predictions.MODELS for name in planner.CONFIGURATIONS for world in planner.WORLDS})
        for key, run in found.items():
            self.assertNotIn("missing", run, key)
        self.assertEqual({(p["ranks"], p["bytes"]) for p in KNOWN["same_host"]["points"]}, {(r, b) for r in same_host.RANKS for b in same_host.SIZES})
        self.assertIn("ledger_bytes", found["7 B", "stage 3", 16384], "no commit was run at 16,384 ranks")

    def test_every_figure_comes_from_the_results(self):
        """A number that changes there changes here."""
        made = scaling_page.blocks(KNOWN)
        changed = copy.deepcopy(KNOWN)
        changed["same_host"]["points"][-1]["seconds"] *= 1.5
        run = planner.find(changed["planner"], "2 T", "stage 3", 16384)
        run["phases"]["layout"]["seconds"] *= 2
        run["memory"]["device"]["peak_bytes"] *= 10
        planner.find(changed["planner"], "7 B", "stage 3", 16384)["memory"]["device"]["peak_bytes"] = 90e9
        changed["offloaded"]["rows"][0]["seconds"] *= 2
        changed["planner"]["step"]["phases"]["step"]["received_bytes"] *= 2
        anew = scaling_page.blocks(changed)
        self.assertEqual({name for name in made if made[name] != anew[name]}, {"shared_memory", "offload_law", "start_up", "memory", "grid_large", "grid_small"})
        self.assertRegex(" ".join(anew["start_up"]), r"the model has 13.5 GB \(-50\.\d %\)")  # of twice as much

    def test_simulated_figures_say_so(self):
        made = scaling_page.blocks(KNOWN)
        for name in ("grid_large", "grid_small"):
            self.assertEqual(sum("simulated" in line for line in made[name] if line.startswith("**")), len(predictions.MODELS))
        self.assertIn("simulated", made["network"][0])

    def test_memory_that_a_gpu_has_not_is_marked(self):
        rows = [line for line in scaling_page.blocks(KNOWN)["grid_small"] if line.startswith("| 8 |")]
        self.assertNotIn("*", rows[0].split("|")[2])  # 7 B at stage 1
        self.assertIn("*", rows[3].split("|")[2])     # 2 T

    def test_without_figures(self):
        made = scaling_page.blocks({})
        for name in ("shared_memory", "start_up", "memory"):
            self.assertEqual(made[name][0], "Not measured: make scale has not been run.")
        self.assertTrue(made["offload_law"][0].startswith("Not measured"))
        self.assertIn("?", made["grid_small"][4])
        missing = copy.deepcopy(KNOWN)
        planner.find(missing["planner"], "7 B", "stage 3", 16384).update(missing="it failed")
        self.assertIn("not measured: it failed", "\n".join(scaling_page.blocks(missing)["start_up"]))

    def test_a_page_without_a_place_is_refused(self):
        with self.assertRaisesRegex(ValueError, "no place for memory"):
            scaling_page.filled(PAGE.replace("memory, written", "other, written"), KNOWN)

    def test_numbers_as_they_are_said(self):
        for value, unit, expected in ((1.5e-6, "s", "1.5 µs"), (0.25, "s", "250 ms"), (999.7, "B", "1 kB"), (42, "B", "42 B"), (6.4e9, "B", "6.4 GB"), (0, "B", "0 B")):
            self.assertEqual(scaling_page.spoken(value, unit), expected)


if __name__ == "__main__":
    unittest.main()
