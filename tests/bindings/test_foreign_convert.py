# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of DeepSpeed become Outrigger's: every value, the counts of updates, and an engine goes on from them."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy

import outrigger
from outrigger import CheckpointWriter, Comm, Context, Engine, foreign, lowlevel
from outrigger.foreign.conversion import buffers_in

DATA = Path(__file__).parent / "torch/data"
ORDER = [["a.weight", "b.weight", "c.weight"], ["a.bias", "b.bias", "again.bias", "c.bias"]]
VALUES = {"master": lowlevel.VALUE_MASTER, "exp_avg": lowlevel.VALUE_EXP_AVG, "exp_avg_sq": lowlevel.VALUE_EXP_AVG_SQ, "published": lowlevel.VALUE_PUBLISHED}


def run(*arguments):
    return subprocess.run([sys.executable, "-W", "error", "-m", "outrigger.foreign", *map(os.fspath, arguments)], capture_output=True, text=True, timeout=120)


class Convert(unittest.TestCase):
    def setUp(self):
        own = tempfile.TemporaryDirectory()
        self.addCleanup(own.cleanup)
        self.folder = own.name

    def test_every_value(self):
        for name in sorted(path.name for path in DATA.iterdir() if path.is_dir()):
            source = foreign.open(DATA / name, order=ORDER)
            foreign.convert(source, self.folder, name)
            with outrigger.Checkpoint(self.folder) as made:
                self.assertEqual(made.tag, name)
                made.verify()
                compared = 0
                for parameter in source.parameters:
                    for value in source.values(parameter):
                        with self.subTest(name=name, parameter=parameter, value=value):
                            self.assertTrue(numpy.array_equal(made.read(parameter, VALUES[value]), source.read(parameter, value)))
                            compared += 1
                self.assertGreater(compared, 10)
                facts = json.loads(made.part("foreign"))
                self.assertEqual((facts["kind"], facts["global_steps"]), (source.kind, source.progress.global_steps))
                buffers = buffers_in(made)
                self.assertEqual(buffers.keys(), {"calls", "drift"})
                for buffer, value in buffers.items():
                    self.assertEqual((value.dtype, value.shape, value.tobytes()), (source.buffers[buffer].dtype, value.shape, source.buffers[buffer].tobytes()))

    def test_an_engine_goes_on(self):
        source = foreign.open(DATA / "zero3_fp16")
        ran = run(DATA / "zero3_fp16", self.folder, "--as", "here")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertIn("deepspeed stage 3", ran.stdout)
        config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 1}}
        with Engine(Comm.self_group(Context(workers=1)), config) as engine:
            for name, shape in source.parameters.items():
                engine.add_parameter(name, numpy.zeros(shape, numpy.float32), trainable="master" in source.values(name))
            for alias, root in source.aliases.items():
                engine.add_parameter(alias, numpy.zeros(source.parameters[root], numpy.float32), alias_of=list(source.parameters).index(root))
            engine.commit()
            engine.load(self.folder, "here")
            for index, name in enumerate(source.parameters):
                for value in source.values(name):
                    self.assertTrue(numpy.array_equal(engine.read(index, VALUES[value]), source.read(name, value)), (name, value))
            self.assertEqual(engine.get_progress()["steps"]["applied"], source.progress.global_steps - source.progress.skipped_steps)

    def test_buffers_that_are_not_as_they_were_written(self):
        data = numpy.arange(6, dtype=numpy.int16).tobytes()
        for index, (what, part) in enumerate(((["int16", [2, 3]], data), (["int16", [2, 4]], data), (["object", [2, 3]], data), (["int16", [-2, -3]], data), (["int16", [2.0, 3]], data),
                           (["int16", [2**62, 2**62]], data), ("int16", data), ([["int16"], [6]], data), (["int16", [2, 3]], None))):
            with CheckpointWriter(self.folder, "a", replace=True) as writer:
                writer.add_part("foreign", json.dumps({"buffers": {"b": what}}).encode())
                if part is not None:
                    writer.add_part("foreign.buffer.b", part)
            with outrigger.Checkpoint(self.folder) as made, self.subTest(what):
                if index == 0:
                    self.assertEqual(buffers_in(made)["b"].tolist(), [[0, 1, 2], [3, 4, 5]])
                    continue
                with self.assertRaisesRegex(ValueError, "a: the part 'foreign' says that the buffer 'b' is .*convert the checkpoint again"):
                    buffers_in(made)

        for part in (b"", b"\xff", b"no JSON", b"[1]", b"{}", b'{"buffers": 3}'):  # another program's
            with CheckpointWriter(self.folder, "a", replace=True) as writer:
                writer.add_part("foreign", part)
            with outrigger.Checkpoint(self.folder) as made:
                self.assertEqual(buffers_in(made), {})

    def test_what_is_wrong_is_said(self):
        nothing = run(self.folder, self.folder)
        self.assertEqual((nothing.returncode, nothing.stdout), (1, ""))
        self.assertIn("is no checkpoint of DeepSpeed", nothing.stderr)
        self.assertEqual(run(DATA / "zero2", self.folder, "--as", "a").returncode, 0)
        taken = run(DATA / "zero2", self.folder, "--as", "a")
        self.assertEqual(taken.returncode, 1)
        self.assertIn("OTR_E_DUPLICATE", taken.stderr)
        self.assertEqual(run(DATA / "zero2", self.folder, "--as", "a", "--replace").returncode, 0)


if __name__ == "__main__":
    unittest.main()
