# SPDX-License-Identifier: Apache-2.0
"""docs/report.md is what scripts/report makes of docs/report/results.json: no figure in it is written by hand."""
import contextlib
import copy
import io
import json
import sys
import tempfile
import types
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/report"))
import page  # noqa: E402
import results  # noqa: E402
from sections import SECTIONS, host_states, memory, multimodal_c  # noqa: E402

ORIGIN = {"date": "2026-01-02", "took": 3, "short": False, "revision": "abc", "load_before": 0.5, "versions": {"PyTorch": "2"},
          "machine": {"cpu": "a processor", "simd_of_cpu": ["avx2"], "cores": 2, "memory_gib": 8.0, "kernel": "6"}}


def run(configuration, seed, backend, late, **more):
    return {"configuration": configuration, "seed": seed, "backend": backend, "parameters": 1000, "steps": 50, "final": late + 0.125, "late": late, "mean": late + 1,
            "std": 0.5, "curve": [late + 1, late], "engine_bytes_per_parameter": 8.5, **more}


def states(form, side, size):
    return {"form": form, "side": side, "states": size, "grown": size + 2, "of_ledger": size, "ledger_total": size + 2, "ledger": {"total": 1}, "estimate": {"total": 1}}


def example():
    """Figures of every section that are nobody's."""
    purposes = {"published parameters": 2, "exp_avg": 4}
    layouts = {layout: {**{name: {"resident_bytes": size * 2**30, "peak_bytes": size * 2**30} for name, size in purposes.items()},
                        "total": {"resident_bytes": 6.5 * 2**30, "peak_bytes": 7.25 * 2**30}} for layout in memory.LAYOUTS}
    phases = {"group": "vision", "rank": 0, "phases": {"step": 0.0125}}
    return {"sections": {name: {**ORIGIN, **found} for name, found in {
        "bf16": {"options": ["--num_steps", "50"], "jobs": 2, "runs": [
            *(run(name, seed, library, 2 + seed / 100 + (name == "bf16_full") / 10) for name in ("baseline", "bf16_full") for seed in (1, 2, 3) for library in ("outrigger", "deepspeed")),
            {"configuration": "split", "seed": 1, "backend": "outrigger", "reason": "no time was left"}],
            "differences": [{"configuration": "baseline", "seed": 1, "steps": 50, "first": 1e-7, "mean": 2e-6, "largest": 3e-5}]},
        "step_times": {"options": [], "warm_up": 5, "peer_missing": "", "rows": [
            {"configuration": "baseline", "backend": "outrigger", "seconds": [0.1, 0.2, 0.3]}, {"configuration": "bf16_full", "backend": "outrigger", "seconds": [0.3]},
            {"configuration": "baseline", "backend": "deepspeed", "seconds": [], "reason": "it does not run"}]},
        "host_states": {"parameters": 1000, "available_bytes": 10**10, "threads": 2, "target": 25.2e9, "timed_parameters": 10, "rounds": 1, "peer_missing": "",
                        "memory": [states("bf16_float32", "outrigger", 10.0625), states("bf16_bf16", "outrigger", 6.0625), states("bf16_bf16", "deepspeed", 6.125),
                                   {"form": "bf16_float32", "side": "deepspeed", "reason": "no operator"}],
                        "update": [{"form": "bf16_bf16", "side": "outrigger", "steps": 8, "moved": 0.1, "furthest": 0.01, "bound": 0.02, "of_bound": 0.75, "without_factor_of_bound": 80.0}],
                        "seconds": [{"form": "bf16_bf16", "side": "outrigger", "nanoseconds": 4.0, "of_rounds": [4.0]},
                                    {"form": "bf16_bf16", "side": "deepspeed", "nanoseconds": 3.0, "of_rounds": [3.0]}]},
        "memory": {"world": 4, "configurations": {name: {"parameters": 2**30, "device": layouts} for name in memory.TITLES}},
        "multimodal": {"runs": {"overlapped": {
            "options": [], "settings": {"vision": {"ranks": 2, "precision": "bf16", "stage": 2}, "language": {"ranks": 1, "precision": "float32", "stage": 1}, "micro_batches": 2, "strips": 16},
            "seconds": 12.0, "steps": 50, "first_loss": 2.5, "last_loss": 0.5, "digits_right": 0.975, "strips_right": 0.9,
            "times": {"step": 0.05, "ranks": [phases], "colocated": {"step": 0.02, "phases": {"step": 0.001}}}}, "a rank killed": {"options": ["--kill"], "missing": "it was not found"}}},
        "multimodal_c": {"runs": {"overlapped": {"ranks": 3, "options": [], **multimodal_c.parsed(
            "step 1: loss 2\n20 steps in 0.15 s: 7.16 ms a step\n  vision rank 0, ms: forward 0.78, step 1.25\n  language rank 0, ms: forward 1.60, step 1.40\n"
            "of 1024 digits that were held out it reads 98.5 % right\n")}}},
    }.items()}}


class Page(unittest.TestCase):
    def test_is_what_its_figures_give(self):
        self.assertEqual((ROOT / "docs/report.md").read_text(encoding="utf-8"), page.text(results.read(ROOT / "docs/report")), "run scripts/report/report.py --again")

    def test_its_figures_are_measured_in_full(self):
        for name, found in results.read(ROOT / "docs/report")["sections"].items():
            self.assertFalse(found.get("short"), f"{name} is a short form")

    def test_every_section_says_its_figures(self):
        text = " ".join(page.text(example()).split())
        for expected in ("| `bf16_full` | Outrigger | 3 | 2.2450 ± 0.0100 | 2.1200 ± 0.0100 |", "+0.1000 ± 0.0000", "10.00 of σ = 0.0100, the standard deviation of Outrigger's baseline over seeds, more than chance",
                         "| `split` | Outrigger | 0 | not measured: no time was left", "| `bf16_full` | Outrigger | 300.0 | 300.0 to 300.0 | 1.500 |", "not measured: it does not run",
                         "| bfloat16 master and moments | 6.062 | 6.062 | 6.125 | 6 | 153 | 154 | 151 |", "not measured: no operator", "| 4.00 | 3.00 | 0.75 |", "1 of 1 forms with a bound are within it",
                         "| float32 master and states | peak | 7.25 | 7.25 | 31.38 | +24.13 |", "| overlapped | none | 50 | 12 | 2.500, 0.500 | 97.5% | 90.0% |", "not measured: it was not found",
                         "2.5 times as long", "Here: +0.1000 and +0.1000 over 3 seed(s)", "| `baseline` | 1 | 50 | 1.0e-07 | 2.0e-06 | 3.0e-05 |", "| overlapped | 3 | none | 20 | 7.16 | 98.5 % |", "vision 0.8; language 1.6", "2026-01-02, Outrigger at abc, PyTorch 2; a processor (avx2)",
                         "| step time, bfloat16 over float32 | 1.068 | post | 1.500 |", "Outrigger needs 0.00 GiB less at rest"):
            self.assertIn(expected, text)

    def test_a_section_that_is_missing_says_why(self):
        for name, section in SECTIONS.items():
            known = example()
            del known["sections"][name]
            self.assertIn(f"## {section.TITLE}\n\nNot measured: this section has not been run; make report SECTIONS={name}.\n", page.text(known))
            known["sections"][name] = {"missing": "there was no such thing"}
            self.assertIn(f"## {section.TITLE}\n\nNot measured: there was no such thing.\n", page.text(known))
        bare = page.text({"sections": {}})
        self.assertEqual(bare.count("\nNot measured: "), len(SECTIONS))
        self.assertGreater(bare.count("| — | not measured yet |"), 10)

    def test_every_figure_comes_from_the_results(self):
        """A number that changes there changes here, in every section."""
        text = page.text(example())
        for path in (("bf16", "runs", 2, "late"), ("step_times", "rows", 1, "seconds", 0), ("host_states", "memory", 1, "states"), ("host_states", "update", 0, "of_bound"),
                     ("host_states", "seconds", 1, "nanoseconds"), ("memory", "configurations", "bf16_full", "device", "outrigger", "total", "peak_bytes"),
                     ("multimodal", "runs", "overlapped", "digits_right"), ("multimodal_c", "runs", "overlapped", "right")):
            known = copy.deepcopy(example())
            node = known["sections"]
            for key in path[:-1]:
                node = node[key]
            node[path[-1]] *= 1.25
            self.assertNotEqual(page.text(known), text, path)

    def test_published_numbers(self):
        """Every number of the sources has its row."""
        rows = [line.split(" | ")[1] for line in page.text(example()).split("\n## ")[1].splitlines() if line.startswith("| ")]
        for number in ("3.09", "2.78", "1.56", "3.12", "2.90", "2.37", "1,000", "0.6016 s", "0.6427 s", "6.86 billion", "25.74 GB", "31.38 GB", "16.17 GB", "18.93 GB", "9.57 GB (37 %)",
                       "12.45 GB (39.7 %)", "20", "12", "about 40 %", "about 10", "about 6", "about 302 GB", "about 151 GB", "9"):
            self.assertIn(number, rows)
        self.assertIn("DeepSpeed’s layout", page.text(example()))

    def test_results(self):
        with tempfile.TemporaryDirectory() as folder:
            results.write(Path(folder), example())
            self.assertEqual(results.read(Path(folder)), json.loads(json.dumps(results.rounded(example()))))
            self.assertEqual(page.text(results.read(Path(folder))), page.text(example()))
            known, context = results.read(Path(folder)), types.SimpleNamespace(load=0.5, peer_missing="none")
            with contextlib.redirect_stdout(io.StringIO()) as said:
                results.add(known, "bf16", {"missing": "stopped"}, 1.0, context, False)  # what was measured stays
            self.assertIn("keeps its earlier figures", said.getvalue())
            self.assertEqual(page.text(known), page.text(example()))
        self.assertEqual(results.read(Path("nowhere")), {"sections": {}})
        self.assertEqual(host_states.number({"reason": "x"}, "states"), "not measured: x")


if __name__ == "__main__":
    unittest.main()
