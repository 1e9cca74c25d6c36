# SPDX-License-Identifier: Apache-2.0
"""The numerics report in a form of seconds, and what it has to show of each format:   test_numerics.py BUILD_FOLDER"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts" / "numerics"
sys.path.insert(0, str(SCRIPTS))
from compare import Comparison, compare, vanished  # noqa: E402
from page import page  # noqa: E402
from variants import FLOAT32, NEAREST, VARIANTS, WAYS  # noqa: E402

BUILD = ""  # from the command line
LOW = [name for name in VARIANTS if name.startswith("bf16")]  # bfloat16 masters
EXACT = [name for name in VARIANTS if name not in LOW]  # float32 and split masters
FOLLOW = [name for name in VARIANTS if name != NEAREST]


class TinyReport(unittest.TestCase):
    results: ClassVar[dict[str, Any]]
    folder: ClassVar[tempfile.TemporaryDirectory[str]]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        docs = Path(cls.folder.name)
        done = subprocess.run([sys.executable, str(SCRIPTS / "numerics.py"), "--tiny", "--build", BUILD, "--docs", str(docs),
                               "--work", str(docs / "work")], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{done.stdout}\n{done.stderr}")
        cls.results = json.loads((docs / "numerics" / "results.json").read_text(encoding="utf-8"))

    def play(self, name: str) -> dict[str, list[dict[str, Any]]]:
        play: dict[str, list[dict[str, Any]]] = self.results["plays"][name]
        return play

    def gain(self, runs: list[dict[str, Any]]) -> float:
        start = float(self.results["pretrained"]["gpt"]["held_out_next"])
        return start - fmean(run["held_out"] for run in runs)

    def test_it_writes_page_and_pictures(self) -> None:
        docs = Path(self.folder.name)
        text = (docs / "numerics.md").read_text(encoding="utf-8")
        self.assertEqual(text, page(self.results))
        for variant in VARIANTS.values():
            self.assertIn(variant.title, text)
        for name in ("gpt-scratch", "gpt-tuned", "regression", "probes"):
            self.assertIn(f"(numerics/{name}.png)", text)
            self.assertGreater((docs / "numerics" / f"{name}.png").stat().st_size, 10_000)

    def test_what_is_sent_in_8_bits_is_other_and_teaches_the_same(self) -> None:
        play = self.results["sending"]
        self.assertEqual(list(play), list(WAYS))
        curves = [run["curve"] for runs in play.values() for run in runs]
        self.assertEqual(len({tuple(curve) for curve in curves}), len(curves), "nothing was rounded")
        for way in WAYS:
            for run, plain in zip(play[way], play[FLOAT32]):
                self.assertLess(run["final"], 0.7 * run["curve"][0], way)
                self.assertAlmostEqual(run["final"] / plain["final"], 1, delta=0.05, msg=way)

    def test_bytes_a_parameter(self) -> None:
        expected = {FLOAT32: 16, NEAREST: 8, "bf16-stochastic": 8, "split": 10, "bf16-block8": 6.03, "split-block8": 8.03}
        for name, value in expected.items():
            self.assertAlmostEqual(self.results["memory"]["bytes"][name], value, delta=0.005, msg=name)

    def test_only_bfloat16_masters_lose_updates(self) -> None:
        for name, play in self.results["plays"].items():
            for variant in EXACT:
                self.assertLess(vanished(play, variant), 0.001, f"{name}, {variant}")
            for variant in LOW:
                self.assertGreater(vanished(play, variant), 0.05, f"{name}, {variant}")

    def test_fine_tuning_stalls_with_nearest_and_with_nothing_else(self) -> None:
        play = self.play("gpt-tuned-2e-05")
        reference = self.gain(play[FLOAT32])
        self.assertGreater(reference, 0.05, "fine-tuning gains nothing, so nothing could be lost")
        self.assertGreater(vanished(play, NEAREST), 0.9)
        for run in play[NEAREST]:
            self.assertLess(run["way"], 0.3)
            self.assertGreater(run["unmoved"], 0.5)
        self.assertLess(self.gain(play[NEAREST]), 0.6 * reference)
        for name in FOLLOW:
            for run in play[name]:
                self.assertAlmostEqual(run["way"], 1, delta=0.1, msg=name)
                self.assertLess(run["unmoved"], 0.5, name)
            self.assertAlmostEqual(self.gain(play[name]), reference, delta=0.05 * reference, msg=name)

    def test_the_regression_follows_too(self) -> None:
        play = self.play("regression-tuned-2e-05")
        self.assertGreater(compare(play, NEAREST, "held_out").difference, 0.05 * fmean(r["held_out"] for r in play[FLOAT32]))
        for name in FOLLOW:
            c = compare(play, name, "held_out")
            self.assertLess(abs(c.difference), 0.01 * c.value, name)

    def test_from_scratch_all_learn(self) -> None:
        for name in ("gpt-scratch", "regression-scratch"):
            for variant, runs in self.play(name).items():
                for run in runs:
                    self.assertLess(run["curve"][-1], 0.7 * run["curve"][0], f"{name}, {variant}")

    def test_a_second_moment_shrinks_unless_it_is_rounded_to_nearest(self) -> None:
        settings = self.results["settings"]["second_moment"]
        faded = 0.999 ** settings["after"]
        for name in FOLLOW:
            # Above it: the small gradients add their own, a ten-thousandth.
            self.assertAlmostEqual(self.results["second_moment"][name]["left"], faded, delta=0.02, msg=name)
        self.assertEqual(self.results["second_moment"][NEAREST]["left"], 1)

    def test_a_small_update_is_lost_for_ever_by_nearest_alone(self) -> None:
        found = self.results["constant_gradient"]
        self.assertEqual(found[NEAREST]["vanished"], found[NEAREST]["updates"])
        self.assertEqual(set(found[NEAREST]["means"]), {1.0})
        for name in FOLLOW:
            self.assertAlmostEqual(found[name]["way"], 1, delta=0.1, msg=name)
        for name in EXACT:
            self.assertEqual(found[name]["vanished"], 0, name)


class Statistics(unittest.TestCase):
    def test_a_difference_is_taken_seed_by_seed(self) -> None:
        play = {FLOAT32: [{"final": x} for x in (1.0, 2.0, 3.0)], "split": [{"final": x} for x in (1.1, 2.1, 3.4)]}
        c = compare(play, "split", "final")
        self.assertAlmostEqual(c.difference, 0.2)
        self.assertAlmostEqual(c.error, 0.1)  # differences 0.1, 0.1, 0.4: deviation √0.03, over √3
        self.assertAlmostEqual(c.noise, 1)
        self.assertTrue(c.matches)
        self.assertFalse(c.distinct, "0.2 is two standard errors, and three seeds want 4.3")

    def test_verdicts(self) -> None:
        self.assertFalse(Comparison(2, 1, 1.01, 0.5, 1, 6).matches)
        self.assertFalse(Comparison(2, 1, -1.01, 0.5, 1, 6).matches)
        self.assertTrue(Comparison(2, 1, -0.9, 0.35, 1, 6).distinct)
        self.assertFalse(Comparison(2, 1, -0.9, 0.36, 1, 6).distinct)


class CommittedPage(unittest.TestCase):
    def test_it_is_what_its_numbers_give(self) -> None:
        docs = ROOT / "docs"
        results = json.loads((docs / "numerics" / "results.json").read_text(encoding="utf-8"))
        self.assertEqual((docs / "numerics.md").read_text(encoding="utf-8"), page(results),
                         "run scripts/numerics/numerics.py --again")
        self.assertGreaterEqual(len(results["settings"]["seeds"]), 5)


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
