# SPDX-License-Identifier: Apache-2.0
"""The example bf16_master in its short form: a few steps of a tiny GPT.

    test_bf16_master.py LAUNCHER Example       what it promises by itself; LAUNCHER: the command outrigger
    test_bf16_master.py LAUNCHER DeepSpeed     losses beside DeepSpeed's; OTR_DEEPSPEED_PYTHON: a Python that has it, skipped otherwise
"""
import csv
import functools
import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "bindings/python/examples/bf16_master"
sys.path.insert(0, str(EXAMPLE))
import configurations  # noqa: E402
import losses  # noqa: E402

STEPS = 12
TINY = ("--num_layers", "2", "--hidden_dim", "64", "--num_heads", "2", "--seq_length", "16", "--num_steps", str(STEPS), "--threads", "1")
# Largest relative differences of a step's loss.
FULL_TO_BASELINE = 5e-3
RANKS = 5e-4  # rows in two products of half the size, gradients of 16 bits summed in another order
DEEPSPEED = 2e-3
launcher = None
folder = tempfile.TemporaryDirectory()
numbers = itertools.count()
TEXT = Path(folder.name) / "text"
TEXT.write_text("".join(f"{i} foxes jump over {i * 37 % 101} dogs.\n" for i in range(500)), encoding="ascii")
REAL = ("--use_real_data", "--text", str(TEXT))


def python(*words, interpreter=sys.executable, ranks=1, timeout=300):
    start = [interpreter] if ranks == 1 else [launcher, "run", "-n", str(ranks), "--", interpreter]
    return subprocess.run([*start, *map(str, words)], capture_output=True, text=True, timeout=timeout, check=False)


@functools.cache
def train(configuration, *options, data=REAL, ranks=1, batch=4, backend="outrigger", interpreter=sys.executable):
    """The losses and the summary of one run."""
    name = f"run{next(numbers)}"
    table, summary = Path(folder.name) / f"{name}.csv", Path(folder.name) / f"{name}.json"
    strict = ["-W", "error"] if backend == "outrigger" else []
    done = python(*strict, EXAMPLE / "train.py", "--deepspeed_config", configuration, *TINY, "--batch_size", batch, "--backend", backend,
                  "--loss_log_file", table, "--summary_file", summary, *data, *options, ranks=ranks, interpreter=interpreter,
                  timeout=300 if backend == "outrigger" else 600)  # DeepSpeed compiles its operators at the first use
    if done.returncode:
        raise AssertionError(f"{configuration} {options}, {backend}, {ranks} rank(s), ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return table, json.loads(summary.read_text(encoding="utf-8"))


def distance(one, other):
    pairs = zip(losses.read(one), losses.read(other), strict=True)
    return max(abs(a - b) / abs(b) for a, b in pairs)


class Example(unittest.TestCase):
    def test_the_files_are_the_configurations(self):
        files = {path.stem: path.read_text(encoding="utf-8") for path in (EXAMPLE / "configs").glob("*.json")}
        self.assertEqual(files, {name: configurations.text(name) for name in configurations.FILES})

    def test_every_configuration_is_legal(self):
        import outrigger
        from outrigger.torch.config import Settings
        for name in configurations.NAMES:
            with self.subTest(name=name):
                effective = outrigger.config_check(Settings(configurations.configuration(name)).library)
                low = effective["bf16"]["bf16_master_weights_and_grads"]["value"]
                self.assertEqual(low, name.startswith("bf16") and name != "bf16_8bit" or name == "stochastic")

    def test_losses_and_memory(self):
        baseline, facts = train(str(EXAMPLE / "configs/baseline.json"))
        full, full_facts = train(str(EXAMPLE / "configs/bf16_full.json"))
        self.assertLess(losses.read(baseline)[-1], losses.read(baseline)[0] - 0.1)
        print(f"bf16_full: furthest from the baseline by {distance(full, baseline):.2g}", flush=True)
        self.assertNotEqual(losses.read(full), losses.read(baseline))
        self.assertLess(distance(full, baseline), FULL_TO_BASELINE)
        saved = facts["engine_bytes_per_parameter"] - full_facts["engine_bytes_per_parameter"]
        self.assertAlmostEqual(saved, 8, delta=0.5)  # bytes: no master of its own, and two states of two bytes less
        for name in ("stochastic", "bf16_8bit"):
            self.assertLess(distance(train(name)[0], baseline), FULL_TO_BASELINE, name)

    def test_two_ranks_make_the_same_steps(self):
        one, two = train("bf16_full")[0], train("bf16_full", ranks=2, batch=2)[0]
        print(f"two ranks: furthest from one by {distance(two, one):.2g}", flush=True)
        self.assertLess(distance(two, one), RANKS)

    def test_activation_checkpointing_changes_nothing(self):
        self.assertEqual(losses.read(train("bf16_full", "--activation_checkpointing")[0]), losses.read(train("bf16_full")[0]))

    def test_data(self):
        found = losses.read(train("bf16_full", data=())[0])  # the invented language
        self.assertNotEqual(found, losses.read(train("bf16_full")[0]))
        short = Path(folder.name) / "short"
        short.write_text("short", encoding="ascii")
        self._refuses("too few for rows of 17", "--deepspeed_config", "baseline", *TINY, "--use_real_data", "--text", short)

    def test_the_file_of_losses(self):
        table, facts = train("bf16_full")
        with table.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(tuple(rows[0]), losses.COLUMNS)
        self.assertEqual([int(row["step"]) for row in rows], list(range(STEPS)))
        for row in rows:
            self.assertGreater(float(row["seconds"]), 0)
            self.assertLessEqual(int(row["resident_bytes"]), int(row["peak_bytes"]))
        self.assertAlmostEqual(facts["final"], float(rows[-1]["loss"]), places=6)
        self.assertEqual((facts["steps"], facts["world"], facts["configuration"]), (STEPS, 1, "bf16_full"))

    def _refuses(self, words, *options, program="train.py"):
        done = python(EXAMPLE / program, *options)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(words, done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_wrong_use(self):
        empty, unknown = Path(folder.name) / "empty.json", Path(folder.name) / "unknown.json"
        empty.write_text("", encoding="ascii")
        unknown.write_text('{"gradient_cliping": 1.0}', encoding="ascii")
        self._refuses("'bf16' is neither a file nor one of baseline", "--deepspeed_config", "bf16")
        self._refuses("configs/none.json' is neither a file", "--deepspeed_config", "configs/none.json")
        self._refuses("no configuration can be read", "--deepspeed_config", empty)
        self._refuses('the nearest known key is "gradient_clipping"', "--deepspeed_config", unknown)
        self._refuses("--hidden_dim 30 is not divisible by --num_heads 4", "--deepspeed_config", "baseline", "--hidden_dim", "30")
        self._refuses("0 is not a positive number", "--deepspeed_config", "baseline", "--num_steps", "0")
        self._refuses("there is no such file", "--deepspeed_config", "baseline", "--use_real_data", "--text", "no/text")
        self._refuses("which DeepSpeed would ignore", "--deepspeed_config", "stochastic", "--backend", "deepspeed")
        self._refuses("cannot be read", "--baseline", "none.csv", "--bf16", "none.csv", program="plot_loss.py")
        self._refuses("no configuration 'bf16'", "--output", folder.name, "--configurations", "bf16", program="experiment.py")

    def test_the_picture(self):
        output = Path(folder.name) / "loss.png"
        done = python(EXAMPLE / "plot_loss.py", "--baseline", train("baseline")[0], "--bf16", train("bf16_full")[0], "--more",
                      f"stochastic={train('stochastic')[0]}", "--output", output)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(output.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        rows = [line.split(" | ") for line in done.stdout.splitlines()]
        self.assertEqual([row[0] for row in rows if len(row) == 6][1:], ["| baseline", "| bf16", "| stochastic"])

    def test_the_experiment(self):
        output = Path(folder.name) / "experiment"
        words = (EXAMPLE / "experiment.py", "--output", output, "--configurations", "bf16_full", "--seeds", 3, "--deepspeed_python",
                 "/bin/false", "--", *TINY)
        first = python(*words)
        self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
        self.assertIn("bf16_full-3-outrigger …", first.stdout)
        results = json.loads((output / "results.json").read_text(encoding="utf-8"))
        self.assertEqual([(run["configuration"], run["backend"], "reason" in run) for run in results["runs"]],
                         [("bf16_full", library, library == "deepspeed") for library in ("outrigger", "deepspeed")])
        self.assertEqual((output / "results.md").read_text(encoding="utf-8").count("not measured: false has no deepspeed"), 1)
        again = python(*words)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertNotIn("…", again.stdout)
        self._refuses("has runs with other options", "--output", output, "--", "--num_steps", "1", program="experiment.py")


class DeepSpeed(unittest.TestCase):
    def test_losses_are_deepspeeds(self):
        interpreter = os.environ.get("OTR_DEEPSPEED_PYTHON")
        if not interpreter:
            self.skipTest("OTR_DEEPSPEED_PYTHON names no Python that has DeepSpeed")
        ours = train("fp32_stage3")
        theirs = train("fp32_stage3", backend="deepspeed", interpreter=interpreter)
        self.assertEqual(theirs[1]["library"], "DeepSpeed 0.19.8")
        print(f"furthest from DeepSpeed by {distance(ours[0], theirs[0]):.2g}", flush=True)
        self.assertLess(distance(ours[0], theirs[0]), DEEPSPEED)


if __name__ == "__main__":
    launcher = sys.argv.pop(1)
    unittest.main(verbosity=2)
