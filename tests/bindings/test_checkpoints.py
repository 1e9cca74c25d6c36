# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in Python: paths, bytes of the host, exceptions. (What comes back: tests/c_api/checkpoint_test.cpp.)"""
import math
import pathlib
import tempfile
import unittest

import numpy as np
import outrigger.numpy
from outrigger import Comm, Context, Engine, OutriggerError, lowlevel


def engine_with(array, config=None, name="w"):
    engine = Engine(Comm.self_group(Context(workers=1)), config or {})
    engine.add_parameter(name, array)
    engine.commit()
    return engine


class Shards(unittest.TestCase):
    def test_shards_go_on_from_files_and_from_memory(self):
        def named(context, name, count):
            return outrigger.Shard(context, np.cos(np.arange(count)).astype(np.float32), np.sin(np.arange(count)).astype(np.float32), name=name)

        def master(shard, count):
            out = np.empty(count, np.float32)
            shard.read(lowlevel.VALUE_MASTER, out)
            return out

        with outrigger.Context() as context, outrigger.Optimizer(context, {"params": {"lr": 0.01}}) as optimizer, tempfile.TemporaryDirectory() as folder:
            run, again = ([named(context, "a", 600), named(context, "b", 30)] for _ in range(2))
            optimizer.step(run)
            directory = pathlib.Path(folder) / "not there yet"
            optimizer.save(iter(run), directory, "one", parts={"place": b"seven"}, keep_last=1)
            with outrigger.Snapshot() as moment:
                optimizer.snapshot(run, moment, parts={"place": b"eight"})
                self.assertEqual(moment.part("place"), b"eight")
                optimizer.step(run)
                then = master(run[0], 600)
                optimizer.load(again, directory)
                self.assertEqual([shard.step for shard in again], [1, 1])
                optimizer.step(again)
                np.testing.assert_array_equal(master(again[0], 600), then)
                optimizer.restore(run, moment)
                self.assertEqual(run[1].step, 1)
                optimizer.step(run)
                np.testing.assert_array_equal(master(run[0], 600), then)
            with outrigger.Checkpoint(directory) as checkpoint:
                self.assertEqual(checkpoint.part("place"), b"seven")
            with self.assertRaisesRegex(outrigger.OutriggerError, '"b"'):
                optimizer.load(again[:1], directory)
            optimizer.load(again[:1], directory, weights_only=True, strict=False)
            with self.assertRaisesRegex(outrigger.OutriggerError, "OTR_E_DUPLICATE"):
                optimizer.save(run, directory, "one")
            optimizer.save(run, directory, "one", replace=True)


class Checkpoints(unittest.TestCase):
    CONFIG = {"bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}}

    def train(self, engine, steps):
        for step in steps:
            with engine.begin_pass() as a_pass:
                a_pass.add_grad(0, np.full(300, step, np.float32))
            engine.step()

    def values(self, engine):
        return [engine.read(0, value).tolist() for value in (lowlevel.VALUE_MASTER, lowlevel.VALUE_EXP_AVG, lowlevel.VALUE_EXP_AVG_SQ)]

    def test_all_comes_back_and_bytes_ride_along(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name) / "made"
            engine = engine_with(np.full(300, 0.5, np.float32), config=self.CONFIG)
            self.train(engine, (1, 2))
            engine.save(folder, "a", parts={"place": b"2", "empty": b"", "array": memoryview(np.arange(3))})
            saved = self.values(engine)
            self.train(engine, (3, 4))
            again = engine_with(np.zeros(300, np.float32), config=self.CONFIG)
            again.load(folder)
            self.assertEqual(self.values(again), saved)
            self.train(again, (3, 4))
            self.assertEqual(self.values(again), self.values(engine))
            with outrigger.Checkpoint(folder) as checkpoint:
                self.assertEqual((checkpoint.tag, checkpoint.ranks, checkpoint.progress["steps"]["applied"]), ("a", 1, 2))
                self.assertEqual(checkpoint.parts(), {"place": b"2", "empty": b"", "array": np.arange(3).tobytes()})
                self.assertEqual(checkpoint.parts(5), checkpoint.parts(), "of a rank that did not save")
                self.assertEqual(checkpoint.description["parameters"][0]["shape"], [300])
                checkpoint.verify()
            again.save(folder, "a", replace=True, keep_last=1)
            engine.load(folder, "a", weights_only=True)
            self.assertEqual(engine.read(0).tolist(), again.read(0).tolist())

    def test_beside_the_training(self):
        with tempfile.TemporaryDirectory() as folder:
            engine = engine_with(np.full(300, 0.5, np.float32), config={**self.CONFIG, "outrigger": {"checkpoint": {"asynchronous": True}}})
            self.assertEqual(engine.wait_save(0).state, lowlevel.SAVE_NONE)
            self.train(engine, (1, 2))
            saved = self.values(engine)
            engine.save(folder, "a", asynchronous=True)
            self.train(engine, (3, 4))
            status = engine.wait_save()
            self.assertEqual((status.state, status.bytes_written), (lowlevel.SAVE_DONE, status.bytes))
            self.assertRegex(repr(status), r"^SaveStatus\(state=SAVE_DONE, bytes=\d+, .*seconds=")
            self.assertNotEqual(self.values(engine), saved)
            engine.load(folder, "a")
            self.assertEqual(self.values(engine), saved)
            with self.assertRaisesRegex(ValueError, "when_busy = 'now'; legal is 'wait' or 'refuse'"):
                engine.save(folder, "b", when_busy="now")

    def test_resume_begins_or_goes_on(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name) / "made"
            engine = engine_with(np.full(300, 0.5, np.float32), config=self.CONFIG)
            begun = self.values(engine)
            self.assertEqual(engine.resume(folder), {}, "no directory")
            folder.mkdir()
            self.assertEqual(engine.resume(folder), {}, "nothing in it")
            self.assertEqual(self.values(engine), begun)
            self.train(engine, (1, 2))
            engine.save(folder, "a", parts={"step": b"2"})
            saved = self.values(engine)
            again = engine_with(np.zeros(300, np.float32), config=self.CONFIG)
            self.assertEqual(again.resume(folder), {"step": b"2"})
            self.assertEqual(self.values(again), saved)
            self.assertEqual(outrigger.numpy.Engine({"w": np.zeros(300)}, self.CONFIG, Comm.self_group(Context(workers=1))).resume(folder),
                             {"step": b"2"})
            other = engine_with(np.zeros(300, np.float32), config=self.CONFIG, name="v")
            (folder / "b").mkdir()
            for latest, status in (("a", "NOT_FOUND"), ("b", "CORRUPT"), ("gone", "CORRUPT")):  # with other parameters, and an empty folder: a training that was there is not begun anew
                (folder / "latest").write_text(latest + "\n")
                with self.assertRaises(OutriggerError) as caught:
                    other.resume(folder)
                self.assertEqual(caught.exception.name, "OTR_E_" + status)

    def test_values_are_read_without_an_engine(self):
        engine = engine_with(np.arange(300, dtype=np.float32).reshape(30, 10), config=self.CONFIG)
        with engine.begin_pass() as a_pass:
            a_pass.add_grad(0, np.ones((30, 10), np.float32))
        engine.step()
        with tempfile.TemporaryDirectory() as folder:
            engine.save(folder, "a")
            with outrigger.Checkpoint(folder) as checkpoint:
                for value in (lowlevel.VALUE_MASTER, lowlevel.VALUE_PUBLISHED, lowlevel.VALUE_EXP_AVG, lowlevel.VALUE_EXP_AVG_SQ):
                    read = checkpoint.read("w", value)
                    self.assertEqual((read.dtype, read.shape), (np.float32, (30, 10)))
                    np.testing.assert_array_equal(read, engine.read(0, value))
                flat = engine.read(0).ravel()
                np.testing.assert_array_equal(checkpoint.read("w", first=17), flat[17:])
                np.testing.assert_array_equal(checkpoint.read("w", first=17, count=2), flat[17:19])
                for arguments in ({"name": "v"}, {"name": "w", "first": 299, "count": 2}, {"name": "w", "first": 301}, {"name": "w", "value": 4}):
                    with self.subTest(arguments), self.assertRaises(OutriggerError):
                        checkpoint.read(**arguments)
                with self.assertRaises(TypeError):
                    lowlevel.checkpoint_read(checkpoint.handle, "w", 0, 0, np.zeros(3, np.float64))

    def test_a_part_is_loaded(self):
        """Other names there, and more rows here; what is not chosen stays."""
        def made(names, rows, factor):
            shapes = {"enc.w": (5, 7), "enc.b": (7,), "head.w": (rows, 7)}
            arrays = {name: factor * (np.arange(math.prod(shape), dtype=np.float32) + 3 * i).reshape(shape)
                      for i, (name, shape) in enumerate(shapes.items())}
            engine = Engine(Comm.self_group(Context(workers=1)), self.CONFIG)
            for name, array in arrays.items():
                engine.add_parameter(names + name, array)
            engine.commit()
            return engine, arrays

        saved, there = made("model.", 4, 0.5)
        with tempfile.TemporaryDirectory() as folder:
            saved.save(folder, "a")
            engine, here = made("", 6, -0.25)
            before = engine.get_progress()

            def expect(taken, **options):
                for i, array in enumerate(here.values()):  # as it was
                    engine.write(i, array)
                engine.load(folder, weights_only=True, renamed={"*": "model.*"}, **options)
                for i, (name, array) in enumerate(here.items()):
                    expected = array.copy()
                    expected[:taken.get(name, 0)] = there[name][:taken.get(name, 0)]
                    np.testing.assert_array_equal(engine.read(i), expected, err_msg=f"{name} {options}")
                self.assertEqual(engine.get_progress(), before)

            expect({"enc.w": 5, "enc.b": 7}, include="enc.*")
            expect({"enc.w": 5, "enc.b": 7}, exclude=["head.?"])
            expect({"enc.b": 7}, include=("enc.*", "head.w"), exclude="*.w")
            expect({"enc.w": 5, "enc.b": 7, "head.w": 4}, resized=("head.w", "enc.?"))
            expect({"enc.w": 5, "head.w": 4}, include=iter(["*.w"]), resized="*.w")
            for error, text, options in (
                    (ValueError, "include has no pattern", {"include": []}), (OutriggerError, "needs weights_only", {"include": "*", "weights_only": False}),
                    (OutriggerError, r'did you mean "enc\.\*"', {"include": "enk.*"}), (OutriggerError, "only the first|resized", {"renamed": {"*": "model.*"}}),
                    (OutriggerError, "no parameter here", {"renamed": {"x": "y"}}), (TypeError, "", {"include": [3]})):
                with self.subTest(text), self.assertRaisesRegex(error, text):
                    engine.load(folder, **{"weights_only": True, **options})
            # A whole training under other names, in outrigger.numpy.
            tree = outrigger.numpy.Engine({"enc": {"w": here["enc.w"], "b": here["enc.b"]}, "head": {"w": there["head.w"]}}, self.CONFIG,
                                          Comm.self_group(Context(workers=1)))
            tree.load(folder, renamed={"*": "model.*"})
            np.testing.assert_array_equal(tree.read("head.w"), there["head.w"])
            np.testing.assert_array_equal(tree.read("enc.b"), there["enc.b"])

    def test_strict_is_about_what_is_chosen(self):
        """As docs/checkpoints.md has it: the checkpoint may have more parameters only where include or exclude choose."""
        def made(**values):
            engine = Engine(Comm.self_group(Context(workers=1)), self.CONFIG)
            for name, value in values.items():
                engine.add_parameter(name, np.full((2, 3), value, np.float32))
            engine.commit()
            return engine

        with tempfile.TemporaryDirectory() as folder:
            made(a=1, b=2, more=3).save(folder, "a")
            for options, taken in (({"include": "*"}, [1, 2]), ({"exclude": "b"}, [1, 9]), ({"strict": False}, [1, 2]),
                                   ({"include": "*", "renamed": {"a": "more"}}, [3, 2]), ({"include": "*", "resized": "a"}, [1, 2])):
                with self.subTest(**options):
                    engine = made(a=9, b=9)
                    engine.load(folder, weights_only=True, **options)
                    self.assertEqual([engine.read(index).max() for index in range(2)], taken)
            for options in ({}, {"resized": "a"}, {"renamed": {"a": "b", "b": "a"}}, {"weights_only": False}):
                with self.subTest(**options), self.assertRaisesRegex(OutriggerError, 'E_NOT_FOUND: .*here are no "more"'):
                    made(a=9, b=9).load(folder, **{"weights_only": True, **options})

    def test_what_is_wrong_is_said(self):
        engine = engine_with(np.zeros(4, np.float32))
        with tempfile.TemporaryDirectory() as folder:
            for name, call in (("OTR_E_NOT_FOUND", lambda: engine.load(folder)), ("OTR_E_NOT_FOUND", lambda: outrigger.Checkpoint(folder)),
                               ("OTR_E_ARGUMENT", lambda: engine.save(folder, "latest")), ("OTR_E_ARGUMENT", lambda: engine.load(folder, "a", strict=False)),
                               ("OTR_E_ARGUMENT", lambda: engine.save(folder, "a", keep_last=-1))):
                with self.subTest(name=name), self.assertRaises(OutriggerError) as caught:
                    call()
                self.assertEqual(caught.exception.name, name)
            with self.assertRaises(TypeError):
                engine.save(folder, "a", parts={"text": "no bytes"})
            # The text is this call's, and no earlier one's.
            for options, call, arguments, what in ((lowlevel.SaveOptions, "add_part", (None, b""), "the part's name"),
                                                   (lowlevel.SnapshotOptions, "add_part", (None, b""), "the part's name"),
                                                   (lowlevel.LoadOptions, "add_include", (None,), "the pattern"),
                                                   (lowlevel.LoadOptions, "add_exclude", (None,), "the pattern"),
                                                   (lowlevel.LoadOptions, "add_resized", (None,), "the pattern"),
                                                   (lowlevel.LoadOptions, "add_renamed", (None, "there"), "the name here"),
                                                   (lowlevel.LoadOptions, "add_renamed", ("here", None), "the name there"),
                                                   (lowlevel.MessageOptions, "add_attribute", (None, "text"), "the attribute's name"),
                                                   (lowlevel.MessageOptions, "add_attribute", ("name", None), "the attribute's text")):
                with self.subTest(call=call, arguments=arguments), self.assertRaisesRegex(OutriggerError, what) as caught:
                    getattr(options(), call)(*arguments)
                self.assertEqual(caught.exception.name, "OTR_E_ARGUMENT")
            engine.save(folder, "a")
            path = pathlib.Path(folder) / "a" / "rank-00000.safetensors"
            damaged = bytearray(path.read_bytes())
            damaged[-1] ^= 1
            path.write_bytes(damaged)
            with self.assertRaises(OutriggerError) as caught:
                engine.load(folder)
            self.assertEqual(caught.exception.name, "OTR_E_CORRUPT")
            engine.check()


if __name__ == "__main__":
    unittest.main()
