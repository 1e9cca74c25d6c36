# SPDX-License-Identifier: Apache-2.0
"""Records of steps in Python, the writers, and outrigger.follow; what they have written is read by libraries that are not ours.

    test_watch.py LAUNCHER
"""
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

import outrigger
from outrigger import watch

LAUNCHER = sys.argv.pop(1)
ROOT = Path(__file__).parents[2]
SAMPLE = re.compile(r"(outrigger_[a-zA-Z0-9_]+)(?:\{(.*)\})? (\S+)")


def engine_of(config=None):
    with outrigger.Comm.self_group(outrigger.Context(workers=1)) as comm:
        engine = outrigger.Engine(comm, config or {"optimizer": {"type": "SGD", "params": {"lr": 0.5}}})
    engine.add_parameter("w", np.ones(8, np.float32))
    engine.commit()
    return engine


def step(engine, gradient=1.0):
    with engine.begin_pass() as backward:
        backward.add_grad(0, np.full(8, gradient, np.float32))
    return engine.step()


def rows_of(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def metrics_of(path):
    """What a reader of Prometheus' text format makes of a file; every metric's samples follow its type."""
    found, metric = {}, None
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if line.startswith("# TYPE "):
            _, _, metric, kind = line.split()
            assert kind == "gauge" and metric not in {name for name, _ in found}
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()
        assert name == metric
        found[name, labels or ""] = float(value)
    return found


class Records(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_writers_get_each_record_once(self):
        records, again = [], []
        with engine_of({"optimizer": {"type": "SGD"}, "gradient_accumulation_steps": 2}) as engine:
            with self.assertRaisesRegex(outrigger.OutriggerError, "OTR_E_STATE"):
                _ = engine.record
            self.assertFalse(engine.is_watched)
            engine.watch(records.append)
            engine.watch(again.append)
            self.assertTrue(engine.is_watched)
            engine.note(loss=3, accuracy=0.25)
            for number in range(4):
                report = step(engine, number)
                self.assertEqual(len(records), (number + 1) // 2)
            self.assertEqual(records[1]["grad_norm"], report.grad_norm)
            self.assertEqual(engine.record, records[1])
            engine.note(loss=float("nan"))
            step(engine)
            step(engine)
        self.assertEqual(records, again)
        self.assertEqual([each["notes"] for each in records], [{"accuracy": 0.25, "loss": 3.0}, {}, {"loss": None}])
        self.assertEqual([watch.step_of(each) for each in records], [1, 2, 3])

    def test_a_step_beside_the_caller(self):
        records = []
        with engine_of() as engine:
            engine.watch(records.append)
            with engine.begin_pass() as backward:
                backward.add_grad(0, np.ones(8, np.float32))
            engine.step_begin()
            while engine.report(0.05).outcome == outrigger.lowlevel.STEP_PENDING:
                self.assertEqual(records, [])
            engine.report()
        self.assertEqual(len(records), 1)

    def test_a_joint_step(self):
        records = []
        first, second = engine_of(), engine_of()
        first.watch(lambda record: records.append(("first", record["grad_norm"])))
        second.watch(lambda record: records.append(("second", record["grad_norm"])))
        for engine in (first, second):
            with engine.begin_pass() as backward:
                backward.add_grad(0, np.full(8, 3, np.float32))
        outrigger.step_many([first, second])
        self.assertEqual([name for name, _ in records], ["first", "second"])
        for _, norm in records:
            self.assertAlmostEqual(norm, 12, 9)

    def test_the_last_overflow_is_told_too(self):
        records = []
        config = {"fp16": {"enabled": True, "initial_scale_power": 0, "hysteresis": 1}, "optimizer": {"type": "SGD"}}
        engine = engine_of(config)
        engine.watch(records.append)
        with self.assertRaisesRegex(outrigger.OutriggerError, "LOSS_SCALE"):
            step(engine, float("inf"))
        self.assertEqual([(each["outcome"], each["reason"], each["nonfinite"]["parameter"]) for each in records], [("skipped", "nonfinite", "w")])

    def test_wrong_use(self):
        with engine_of() as engine:
            (self.folder / "file").write_text("no folder")
            with self.assertRaisesRegex(outrigger.OutriggerError, "OTR_E_IO.*file"):
                engine.watch(records=self.folder / "file")
            with self.assertRaisesRegex(outrigger.OutriggerError, "OTR_E_ARGUMENT.*64"):
                engine.watch()
                engine.note(**{"x" * 65: 1})
            engine.watch(mock.Mock(side_effect=KeyError("of the writer")))
            with self.assertRaisesRegex(KeyError, "of the writer"):
                step(engine)
            self.assertEqual(engine.record["applied_steps"], 1, "the step was made")
            with self.assertRaisesRegex(TypeError, "run= is given"):
                watch.WandB(run=mock.Mock(), project="x")
            with self.assertRaisesRegex(ValueError, "no name of a Prometheus label"):
                watch.Prometheus(self.folder / "p", **{"a-b": "c"})
            with mock.patch.dict(sys.modules, {"torch.utils.tensorboard": None, "tensorboardX": None}), \
                    self.assertRaisesRegex(ImportError, "pip install tensorboard"):
                watch.TensorBoard(self.folder / "t")
            with mock.patch.dict(sys.modules, {"wandb": None}), self.assertRaisesRegex(ImportError, "pip install wandb"):
                watch.WandB(project="x")

    def test_tables_and_gauges(self):
        path, gauges = self.folder / "run.csv", self.folder / "run.prom"
        for start in (0, 2):  # the second run goes on in the same file
            with engine_of() as engine:
                engine.watch(watch.CSV(path))
                engine.watch(watch.Prometheus(gauges, job='a "b"\\\n', rank="0"))
                for number in range(2):
                    engine.note(loss=start + number + 0.5)
                    step(engine, number + 1)
        rows = rows_of(path)
        self.assertEqual([row["loss"] for row in rows], ["0.5", "1.5", "2.5", "3.5"])
        self.assertEqual([row["step"] for row in rows], ["1", "2", "1", "2"])
        self.assertEqual(float(rows[1]["grad_norm"]), np.sqrt(32))
        self.assertGreater(float(rows[0]["memory/process/resident"]), 1e6)
        labels = 'job="a \\"b\\"\\\\\\n",rank="0"'
        metrics = metrics_of(gauges)
        self.assertEqual(metrics["outrigger_loss", labels], 3.5)
        self.assertEqual(metrics["outrigger_applied_steps", labels], 2)
        self.assertEqual(metrics["outrigger_skipped", labels], 0)
        self.assertIn(("outrigger_memory_host_by_purpose_published_parameters", labels), metrics)
        self.assertIn(("outrigger_seconds_update", labels), metrics)
        self.assertEqual(sorted(os.listdir(self.folder)), ["run.csv", "run.prom"])

    def test_tensorboard_reads_it(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        writer = watch.TensorBoard(self.folder / "t")
        with engine_of() as engine:
            engine.watch(writer)
            for number in range(3):
                engine.note(loss=number / 2)
                step(engine, number)
        writer.close()
        events = EventAccumulator(str(self.folder / "t"))
        events.Reload()
        self.assertEqual([(each.step, each.value) for each in events.Scalars("loss")], [(1, 0.0), (2, 0.5), (3, 1.0)])
        self.assertAlmostEqual(events.Scalars("grad_norm")[1].value, np.sqrt(8), 5)

    def test_weights_and_biases_takes_it(self):
        options = {"mode": "offline", "project": "p", "dir": str(self.folder)}
        writer = watch.WandB(**options)
        with engine_of() as engine:
            engine.watch(writer)
            engine.note(loss=2.5)
            step(engine)
        self.assertEqual(writer.run.summary["loss"], 2.5)
        self.assertEqual(writer.run.summary["applied_steps"], 1)
        writer.close()
        self.assertTrue(list(self.folder.glob("wandb/offline-run-*/*.wandb")))


class Runs(unittest.TestCase):
    """A run of two processes, followed from outside."""

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        example = ROOT / "bindings/python/examples/numpy/watched.py"
        done = subprocess.run([LAUNCHER, "run", "-n", "2", "--", sys.executable, "-W", "error", example, cls.folder], capture_output=True,
                              text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        cls.printed = done.stdout

    def tool(self, *arguments):
        return subprocess.run([LAUNCHER, *arguments], capture_output=True, text=True, timeout=60, check=False)

    def follow(self, *arguments):
        return subprocess.run([sys.executable, "-W", "error", "-m", "outrigger.follow", *arguments], capture_output=True, text=True, timeout=120,
                              check=False)

    def test_the_example(self):
        self.assertRegex(self.printed, r"^loss \S+ after 100 steps, of which \d+ were slow\n$")
        rows = rows_of(self.folder / "run.csv")
        self.assertEqual(len(rows), 100)
        self.assertLess(float(rows[-1]["loss"]), float(rows[0]["loss"]) / 10)

    def test_top(self):
        done = self.tool("top", str(self.folder / "records"))
        self.assertEqual(done.returncode, 0, done.stderr)
        first, head, *ranks = done.stdout.splitlines()
        self.assertIn("2 ranks, 0 skipped steps", first)
        self.assertEqual([line.split()[1] for line in ranks], ["0", "1"])
        for line in ranks:
            self.assertEqual(dict(zip(head.split()[3:6], line.split()[3:6], strict=True))["step"], "100", line)
            self.assertIn("finalized", line)
        told = json.loads(self.tool("top", "--json", str(self.folder / "records")).stdout)
        self.assertEqual([each["start"]["rank"] for each in told], [0, 1])
        self.assertEqual([each["end"]["how"] for each in told], ["finalized", "finalized"])
        self.assertEqual(self.tool("top", str(self.folder / "nowhere")).returncode, 2)

    def test_top_tells_of_the_lost_and_the_silent(self):
        folder = self.folder / "made_up"
        folder.mkdir()
        lines = (self.folder / "records/rank-0.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        start = json.loads(lines[0])
        gone = subprocess.Popen(["true"])
        gone.wait()

        def write(name, end="", **facts):
            (folder / name).write_text(json.dumps({**start, **facts}) + "\n" + lines[1] + lines[2] + end, encoding="utf-8")

        write("rank-0.jsonl", process=os.getpid())
        write("rank-1.jsonl", rank=1, process=os.getpid(), end='{"record":"step","half of a li')
        write("rank-2.jsonl", rank=2, process=gone.pid)
        write("rank-3.jsonl", rank=3, end='{"record":"end","time":1,"how":"rank 2 is dead"}\n')
        write("rank-4.jsonl", rank=4, process=gone.pid, time=5)  # of an earlier run
        write("rank-4-2.jsonl", rank=4, process=os.getpid(), time=6)
        (folder / "rank-5.jsonl").write_text("")
        (folder / "rank-6.jsonl").write_text("no record\n")
        (folder / "rank-x.jsonl").write_text("of somebody else\n")
        os.utime(folder / "rank-1.jsonl", (1, 1))
        told = json.loads(self.tool("top", "--json", str(folder)).stdout)
        states = {each["start"]["rank"]: each["state"].split()[0] for each in told}
        self.assertEqual(states, {0: "runs", 1: "silent", 2: "gone", 3: "failed", 4: "runs"})
        self.assertEqual({each["step"]["applied_steps"] for each in told}, {2})
        self.assertIn("\nrank 3: rank 2 is dead\n", self.tool("top", "--once", str(folder)).stdout)
        # Who follows them waits for those that run, and for nobody else.
        for name in ("rank-0.jsonl", "rank-1.jsonl", "rank-4-2.jsonl"):
            (folder / name).unlink()
        table = str(self.folder / "gone.csv")
        self.assertEqual(self.follow(str(folder), "--all-ranks", "--prometheus", str(self.folder / "gone.prom"), "--csv", table).stdout,
                         "outrigger.follow: 6 records\n")

    def test_trace(self):
        path = self.folder / "trace.json"
        done = self.tool("trace", str(self.folder / "traces"), "--output", str(path))
        self.assertEqual(done.returncode, 0, done.stderr)
        events = json.loads(path.read_text(encoding="utf-8"))
        self.assertIn(f"{len(events)} events of 2 files", done.stdout)
        titles = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
        self.assertEqual([titles[number].split(",")[:2] for number in (1, 2)], [["line", " rank 0 of 2"], ["line", " rank 1 of 2"]])
        for rank in (1, 2):
            self.assertEqual(len([each for each in events if each["pid"] == rank and each["name"] == "update"]), 100)
        # One clock: a step ends on both ranks at about the same time, far nearer than two steps are apart on average.
        ends = [[each["ts"] + each["dur"] for each in events if each["pid"] == rank and each["name"] == "publish"] for rank in (1, 2)]
        apart = sorted(abs(a - b) for a, b in zip(*ends, strict=True))
        self.assertLess(apart[50], 1e6)
        again = self.tool("trace", str(self.folder / "traces"), "--output", str(path))
        self.assertEqual(again.returncode, 1)
        self.assertIn("--replace", again.stderr)
        self.assertEqual(self.tool("trace", "--replace", str(self.folder / "traces"), "-o", str(path)).returncode, 0)
        self.assertIn("has no traces", self.tool("trace", str(self.folder / "records"), "-o", str(self.folder / "x")).stderr)
        broken = self.folder / "broken"
        broken.mkdir()
        whole = (self.folder / "traces/rank-0.trace.json").read_text(encoding="utf-8")
        (broken / "rank-0.trace.json").write_text(whole[:-20], encoding="utf-8")  # killed while it wrote
        self.assertEqual(self.tool("trace", str(broken), "-o", str(self.folder / "y")).returncode, 0)
        (broken / "rank-0.trace.json").write_text("[\n{\"some\":1},\n", encoding="utf-8")
        refused = self.tool("trace", str(broken), "-o", str(self.folder / "z"))
        self.assertIn("OTR_E_CORRUPT", refused.stderr)
        self.assertEqual([each.name for each in self.folder.glob("z*")], [], "nothing is left")

    def test_follow(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        table, gauges, curves = (str(self.folder / name) for name in ("f.csv", "f.prom", "f.tb"))
        done = self.follow(str(self.folder / "records"), "--csv", table, "--prometheus", gauges, "--tensorboard", curves, "--all-ranks")
        self.assertEqual((done.returncode, done.stdout), (0, "outrigger.follow: 200 records\n"), done.stderr)
        rows = rows_of(table)
        own = rows_of(self.folder / "run.csv")
        self.assertEqual([row["loss"] for row in rows], [row["loss"] for row in own])
        metrics = metrics_of(gauges)
        self.assertEqual(metrics["outrigger_applied_steps", 'file="rank-1",rank="1"'], 100)
        events = EventAccumulator(os.path.join(curves, "rank-1"))
        events.Reload()
        self.assertEqual(len(events.Scalars("loss")), 100)
        self.assertIn("name where the numbers shall go", self.follow(str(self.folder)).stderr)
        self.assertIn("is no folder", self.follow(str(self.folder / "nowhere"), "--csv", table).stderr)


if __name__ == "__main__":
    # wandb's hook takes no exit code that is a bool.
    sys.exit(int(not unittest.main(exit=False).result.wasSuccessful()))
