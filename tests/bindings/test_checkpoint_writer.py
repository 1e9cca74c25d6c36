# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that no engine saved: what is written comes back, an engine goes on from it, and others' weights come in."""
import json
import os
import pathlib
import struct
import tempfile
import unittest

import ml_dtypes
import numpy as np
import outrigger
from outrigger import CheckpointWriter, Comm, Context, Engine, OutriggerError, lowlevel

M, V, W = lowlevel.VALUE_EXP_AVG, lowlevel.VALUE_EXP_AVG_SQ, lowlevel.VALUE_MASTER
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
ADAM = {"optimizer": {"type": "AdamW", "params": {"lr": 0.1, "weight_decay": 0.01}}}
SHAPES = {"w": (30, 20), "b": (7,), "frozen": (5, 5)}


def values(seed, shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def engine_of(config=None, seed=9):
    engine = Engine(Comm.self_group(Context(workers=1)), config or ADAM)
    for index, (name, shape) in enumerate(SHAPES.items()):
        engine.add_parameter(name, values(seed + index, shape), trainable=int(name != "frozen"))
    engine.add_parameter("tied", np.zeros(SHAPES["w"], np.float32), alias_of=0)
    engine.commit()
    return engine


def step(engine, number):
    with engine.begin_pass() as a_pass:
        for id, name in enumerate(("w", "b")):
            a_pass.add_grad(id, values(100 + number + id, SHAPES[name]))
    engine.step()


def everything(engine):
    read = {("frozen", W): engine.read(2, lowlevel.VALUE_PUBLISHED)}
    for id, name in enumerate(("w", "b")):
        read.update({(name, value): engine.read(id, value) for value in (W, M, V)})
    return read


class Folder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def names(self, folder="."):
        return sorted(os.listdir(self.folder / folder))

    def fails(self, name, words, call, *arguments, **options):
        with self.assertRaises(OutriggerError) as caught:
            call(*arguments, **options)
        self.assertEqual(caught.exception.name, name, caught.exception)
        for word in words.split("|"):
            self.assertIn(word, str(caught.exception))


class Writer(Folder):
    def declare(self, writer):
        for name, shape in SHAPES.items():
            writer.add_parameter(name, shape, trainable=name != "frozen")
        writer.add_parameter("tied", SHAPES["w"], alias_of="w")

    def test_an_engine_goes_on_as_the_one_it_came_from(self):
        original = engine_of()
        for number in range(3):
            step(original, number)
        kept = everything(original)
        with CheckpointWriter(self.folder / "a", "x", exp_avg="float32", exp_avg_sq="float32", applied_steps=3) as writer:
            self.declare(writer)
            writer.add_part("place", b"3")
            for (name, value), array in kept.items():
                flat = array.ravel()
                for first in reversed(range(0, flat.size, 256)):  # from back to front
                    writer.write(name, flat[first:first + 256], value, first)
        for tag in ("x", None):
            copy = engine_of(seed=50)
            step(copy, 77)
            copy.load(self.folder / "a", tag)
            for key, array in everything(copy).items():
                np.testing.assert_array_equal(array, kept[key], str(key))
        with outrigger.Checkpoint(self.folder / "a") as checkpoint:
            checkpoint.verify()
            self.assertEqual(checkpoint.parts(), {"place": b"3"})
            np.testing.assert_array_equal(checkpoint.read("tied"), kept["w", W])
        for number in range(3, 6):
            step(original, number)
            step(copy, number)
        for key, array in everything(copy).items():
            np.testing.assert_array_equal(array, everything(original)[key], str(key))

    def test_counts_of_updates_of_single_parameters(self):
        def written(updates):
            with CheckpointWriter(self.folder, "x", exp_avg="float32", exp_avg_sq="float32", applied_steps=1000, replace=True) as writer:
                for name, shape in SHAPES.items():
                    writer.add_parameter(name, shape, trainable=name != "frozen", updates=updates.get(name))
                writer.add_parameter("tied", SHAPES["w"], alias_of="w")
                for index, (name, shape) in enumerate(SHAPES.items()):
                    writer.write(name, values(index, shape))
                    for value in (M, V) if name != "frozen" else ():
                        writer.write(name, np.abs(values(index + value, shape)), value)
            engine = engine_of()
            engine.load(self.folder)
            self.assertEqual(engine.get_progress()["steps"], {"micro": 1000, "applied": 1000, "skipped": 0})
            step(engine, 1)
            return engine.read(0), engine.read(1)

        same, other = written({}), written({"b": 1, "frozen": 7})
        np.testing.assert_array_equal(same[0], other[0])
        self.assertFalse(np.array_equal(same[1], other[1]), "the bias correction of another count")

    def test_formats(self):
        for kept, dtype in DTYPES.items():
            for given in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64):
                with self.subTest(kept=kept, given=given), tempfile.TemporaryDirectory() as folder:
                    arrays = {name: values(3, shape).astype(given) for name, shape in SHAPES.items()}
                    with CheckpointWriter(folder, "x", master=kept, exp_avg="bfloat16") as writer:
                        self.declare(writer)
                        for name, array in arrays.items():
                            writer.write(name, array.view(np.uint16) if given is ml_dtypes.bfloat16 else array)
                        for name in ("w", "b"):
                            writer.write(name, arrays[name].astype(np.float32).ravel()[:3], M)
                            writer.write(name, arrays[name].astype(np.float32).ravel()[3:], M, 3)
                    with outrigger.Checkpoint(folder) as checkpoint:
                        self.assertEqual(checkpoint.description["formats"]["master"], kept)
                        checkpoint.verify()
                        for name, array in arrays.items():
                            rounded = array.astype(dtype).astype(np.float32)
                            np.testing.assert_array_equal(checkpoint.read(name), rounded)
                            np.testing.assert_array_equal(checkpoint.read(name, lowlevel.VALUE_PUBLISHED), rounded)
                        np.testing.assert_array_equal(checkpoint.read("w", M), arrays["w"].astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32))

    def test_strides_and_what_is_empty(self):
        with CheckpointWriter(self.folder, "x") as writer:
            writer.add_parameter("turned", (20, 30))
            writer.add_parameter("empty", (0, 3))
            writer.add_parameter("scalar", ())
            writer.write("turned", values(1, (30, 20)).T)
            writer.write("empty", np.zeros((0, 3), np.float32))
            writer.write("scalar", np.float32(3).reshape(()))
        with outrigger.Checkpoint(self.folder) as checkpoint:
            np.testing.assert_array_equal(checkpoint.read("turned"), values(1, (30, 20)).T)
            self.assertEqual((checkpoint.read("scalar").shape, float(checkpoint.read("scalar"))), ((), 3.0))
            self.assertEqual(checkpoint.read("empty").shape, (0, 3))

    def test_a_large_file_takes_runs_in_any_order(self):
        count, run = 6_000_000, 70_001
        arrays = {"w": values(1, (count,)), "v": values(2, (9,)), "u": values(3, (count // 2,))}
        with CheckpointWriter(self.folder, "x", exp_avg="bfloat16") as writer:
            for name, array in arrays.items():
                writer.add_parameter(name, array.shape)
            runs = [(name, value, first) for name, array in arrays.items() for value in (W, M) for first in range(0, array.size, run)]
            for index in np.random.default_rng(4).permutation(len(runs)):
                name, value, first = runs[index]
                writer.write(name, arrays[name][first:first + run], value, first)
        with outrigger.Checkpoint(self.folder) as checkpoint:
            checkpoint.verify()
            for name, array in arrays.items():
                np.testing.assert_array_equal(checkpoint.read(name), array)
                np.testing.assert_array_equal(checkpoint.read(name, M), array.astype(ml_dtypes.bfloat16).astype(np.float32))

    def test_weights_only_and_missing_moments(self):
        def write(moments, steps, without=""):
            with CheckpointWriter(self.folder, "x", applied_steps=steps, replace=True, **dict.fromkeys(moments, "float32")) as writer:
                for name, shape in SHAPES.items():
                    writer.add_parameter(name, shape, trainable=name != "frozen", exp_avg_sq=name != without)
                writer.add_parameter("tied", SHAPES["w"], alias_of="w")
                for name, shape in SHAPES.items():
                    writer.write(name, values(1, shape))
                    for moment in moments if name != "frozen" else ():
                        if not (moment == "exp_avg_sq" and name == without):
                            writer.write(name, values(2, shape), {"exp_avg": M, "exp_avg_sq": V}[moment])

        for moments, steps, without, words in (((), None, "", "no exp_avg|weights only"), (("exp_avg",), 3, "", "no exp_avg_sq of \"w\""),
                                               (("exp_avg", "exp_avg_sq"), None, "", "how many updates|weights only"),
                                               (("exp_avg", "exp_avg_sq"), 3, "b", "no exp_avg_sq of \"b\"")):
            with self.subTest(words):
                write(moments, steps, without)
                engine = engine_of()
                before = everything(engine)
                self.fails("OTR_E_NOT_FOUND", words, engine.load, self.folder)
                np.testing.assert_equal(everything(engine), before)
                engine.load(self.folder, weights_only=True)
                np.testing.assert_array_equal(engine.read(0), values(1, SHAPES["w"]))
                np.testing.assert_array_equal(engine.read(2, lowlevel.VALUE_PUBLISHED), values(1, SHAPES["frozen"]))
                np.testing.assert_array_equal(engine.read(0, M), before["w", M])

    def test_what_only_an_engine_knows_stays(self):
        config = {"fp16": {"enabled": True, "initial_scale_power": 6}, "optimizer": {"type": "SGD"},
                  "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 1, "warmup_num_steps": 100, "warmup_type": "linear"}}}
        with CheckpointWriter(self.folder, "x", applied_steps=50) as writer:
            self.declare(writer)
            for name, shape in SHAPES.items():
                writer.write(name, values(1, shape))
        engine = engine_of(config)
        before = engine.get_progress()
        engine.load(self.folder)
        after = engine.get_progress()
        for member in ("loss_scaler", "groups", "boundary", "made_with"):
            self.assertEqual(after[member], before[member])

        def rate(engine):
            with engine.begin_pass() as a_pass:
                for id, name in enumerate(("w", "b")):
                    a_pass.add_grad(id, np.zeros(SHAPES[name], np.float32))
            return engine.step().lr

        original = engine_of(config)
        self.assertEqual(rate(engine), [rate(original) for _ in range(51)][-1], "the schedule goes on")
        engine.save(self.folder, "mine", keep_last=1)
        self.assertEqual(self.names(), [".lock", "latest", "mine", "x"], "an import neither counts nor goes")

    def test_without_a_finish_nothing_stays(self):
        with self.assertRaises(ZeroDivisionError), CheckpointWriter(self.folder, "x") as writer:
            self.declare(writer)
            writer.write("b", values(0, (7,)))
            raise ZeroDivisionError
        self.assertEqual(self.names(), [".lock"])
        writer = CheckpointWriter(self.folder, "x")
        self.fails("OTR_E_STATE", "writes in it", CheckpointWriter, self.folder, "y")
        self.declare(writer)
        writer.write("b", values(0, (7,)))
        self.fails("OTR_E_STATE", "'w/master'|was not written", writer.finish)
        writer.write("w", values(0, SHAPES["w"]))
        writer.write("frozen", values(0, SHAPES["frozen"]))
        writer.finish()
        self.fails("OTR_E_STATE", "finished", writer.finish)
        self.fails("OTR_E_STATE", "finished", writer.write, "b", values(0, (7,)))
        writer.close()
        self.assertEqual(self.names(), [".lock", "latest", "x"])
        self.fails("OTR_E_DUPLICATE", "x", CheckpointWriter, self.folder, "x")

    def test_what_is_wrong_is_said(self):
        for options, word in (({"master": "int8"}, "int8"), ({"exp_avg": "float64"}, "float64"), ({"applied_steps": -2}, "-2"), ({"tag": "latest"}, "latest"),
                              ({"tag": "a/b"}, "a/b"), ({"applied_steps": 2**60}, "2^53")):
            with self.subTest(options):
                self.fails("OTR_E_ARGUMENT", word, CheckpointWriter, self.folder, **{"tag": "x", **options})
        writer = CheckpointWriter(self.folder, "x", exp_avg="float32")
        self.declare(writer)
        writer.add_part("p", b"1")
        for name, words, call, arguments, options in (
                ("OTR_E_DUPLICATE", "\"w\"", writer.add_parameter, ("w", (3,)), {}), ("OTR_E_NOT_FOUND", "\"q\"", writer.add_parameter, ("r", (3,)), {"alias_of": "q"}),
                ("OTR_E_SHAPE", "600", writer.add_parameter, ("r", (3,)), {"alias_of": "w"}), ("OTR_E_SHAPE", "-3", writer.add_parameter, ("r", (-3,)), {}),
                ("OTR_E_ARGUMENT", "updates", writer.add_parameter, ("r", (3,)), {"updates": -5}), ("OTR_E_ARGUMENT", "not empty", writer.add_parameter, ("", (3,)), {}),
                ("OTR_E_DUPLICATE", "\"p\"", writer.add_part, ("p", b""), {}),
                ("OTR_E_NOT_FOUND", "\"q\"", writer.write, ("q", values(0, (3,))), {}), ("OTR_E_ARGUMENT", "alias|\"w\"", writer.write, ("tied", values(0, (30, 20))), {}),
                ("OTR_E_NOT_FOUND", "exp_avg_sq", writer.write, ("b", values(0, (7,)), V), {}), ("OTR_E_NOT_FOUND", "exp_avg", writer.write, ("frozen", values(0, (25,)), M), {}),
                ("OTR_E_ARGUMENT", "value = 1", writer.write, ("b", values(0, (7,)), lowlevel.VALUE_PUBLISHED), {}),
                ("OTR_E_ARGUMENT", "7 elements", writer.write, ("b", values(0, (8,))), {}), ("OTR_E_ARGUMENT", "element 5", writer.write, ("b", values(0, (3,))), {"first": 5}),
                ("OTR_E_ARGUMENT", "element -1", writer.write, ("b", values(0, (3,))), {"first": -1})):
            with self.subTest(words):
                self.fails(name, words, call, *arguments, **options)
        writer.write("b", values(0, (4,)))
        self.fails("OTR_E_STATE", "written before", writer.write, "b", values(0, (3,)), first=3)
        self.fails("OTR_E_STATE", "declare all", writer.add_parameter, "late", (3,))
        self.fails("OTR_E_STATE", "declare all", writer.add_part, "late", b"")
        writer.write("b", values(0, (3,)), first=4)
        for value, name in ((W, "w"), (W, "frozen"), (M, "w"), (M, "b")):
            writer.write(name, values(0, SHAPES[name]), value)
        writer.finish()
        with outrigger.Checkpoint(self.folder) as checkpoint:
            checkpoint.verify()


def safetensors_file(tensors, metadata=None):
    """{name: (dtype, shape, bytes)}"""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, own) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(own)]}
        data += own
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def raw(array):
    name = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.float64): "F64", np.dtype(np.int64): "I64",
            np.dtype(ml_dtypes.bfloat16): "BF16"}[array.dtype]
    return name, array.shape, array.tobytes()


class Import(Folder):
    def take(self, source, **options):
        outrigger.import_weights(self.folder / source, self.folder / "made", "x", **options)
        return outrigger.Checkpoint(self.folder / "made")

    def model(self, folder="model"):
        """Two files and an index."""
        (self.folder / folder).mkdir(exist_ok=True)
        a, b = values(1, (40, 30)), values(2, (7,))
        (self.folder / folder / "model-1.safetensors").write_bytes(safetensors_file({"a": raw(a)}))
        (self.folder / folder / "model-2.safetensors").write_bytes(safetensors_file({"b": raw(b)}))
        self.index({"a": "model-1.safetensors", "b": "model-2.safetensors"}, folder)
        return {"a": a, "b": b}

    def index(self, weight_map, folder="model", **more):
        (self.folder / folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1, "x": None}, "weight_map": weight_map, **more}))

    def expect(self, checkpoint, arrays):
        with checkpoint:
            checkpoint.verify()
            self.assertEqual(set(checkpoint.shapes), set(arrays))
            for name, array in arrays.items():
                np.testing.assert_array_equal(checkpoint.read(name), array.astype(np.float32))
                self.assertEqual(checkpoint.shapes[name], array.shape)

    def test_a_file_keeps_its_dtype_if_it_has_one(self):
        for dtypes, kept in (((np.float32, np.float32), "float32"), ((ml_dtypes.bfloat16,) * 2, "bfloat16"), ((np.float16,) * 2, "float16"),
                             ((np.float16, ml_dtypes.bfloat16), "float32"), ((np.float64,) * 2, "float32")):
            with self.subTest(kept=kept, dtypes=dtypes):
                arrays = {"a": values(1, (1000, 3)).astype(dtypes[0]), "b": values(2, ()).astype(dtypes[1]), "none": np.zeros((0, 2), dtypes[0])}
                (self.folder / "f").write_bytes(safetensors_file({name: raw(array) for name, array in arrays.items()}, {"format": "pt"}))
                checkpoint = self.take("f", replace=True)
                self.assertEqual(checkpoint.description["formats"]["master"], kept)
                self.expect(checkpoint, arrays)

    def test_folders_as_transformers_looks_for_them(self):
        arrays = self.model()
        self.expect(self.take("model"), arrays)
        self.expect(self.take("model/model.safetensors.index.json", replace=True), arrays)
        (self.folder / "model/model.safetensors").write_bytes(safetensors_file({"c": raw(arrays["a"])}))
        self.expect(self.take("model", replace=True), {"c": arrays["a"]})
        self.fails("OTR_E_DUPLICATE", "x", self.take, "model")

    def test_what_goes_out_comes_in(self):
        engine = engine_of()
        engine.save(self.folder / "saved", "a")
        for options in ({"path": self.folder / "one"}, {"path": self.folder / "many", "max_shard_bytes": 100}):
            with outrigger.Checkpoint(self.folder / "saved") as checkpoint:
                checkpoint.export(**options)
            self.take(options["path"].name, replace=True).close()
            copy = engine_of(seed=70)
            copy.load(self.folder / "made", weights_only=True)
            for id in range(2):
                np.testing.assert_array_equal(copy.read(id), engine.read(id))
            with outrigger.Checkpoint(self.folder / "made") as checkpoint:
                self.assertEqual(checkpoint.description["parameters"][-1]["root"], 0, "the alias")

    def test_tied_names_need_not_be_there(self):
        for name in ("w", "tied"):
            with self.subTest(name):
                with CheckpointWriter(self.folder, "x", replace=True) as writer:
                    shapes = {"b": (7,), "frozen": (5, 5), name: SHAPES["w"]}
                    for each, shape in shapes.items():
                        writer.add_parameter(each, shape)
                    for each, shape in shapes.items():
                        writer.write(each, values(4, shape))
                engine = engine_of()
                engine.load(self.folder, weights_only=True)
                np.testing.assert_array_equal(engine.read(0), values(4, SHAPES["w"]))

    def test_other_dtypes_are_named_or_left_out(self):
        (self.folder / "f").write_bytes(safetensors_file({"a": raw(values(1, (3,))), "ids": raw(np.arange(3))}))
        self.fails("OTR_E_UNSUPPORTED", "'ids'|I64|skip_other_dtypes", self.take, "f")
        self.expect(self.take("f", skip_other_dtypes=True), {"a": values(1, (3,))})

    def test_links_to_files_are_followed(self):
        """The cache of Hugging Face consists of them."""
        arrays = self.model("blobs")
        (self.folder / "snapshot").mkdir()
        for name in self.names("blobs"):
            (self.folder / "snapshot" / name).symlink_to(f"../blobs/{name}")
        self.expect(self.take("snapshot"), arrays)

    def test_hostile_sources(self):
        def fails(name, words, source="model"):
            with self.subTest(words):
                self.fails(name, words, self.take, source)
                self.assertLessEqual(set(self.names("made")), {".lock"})

        self.model()
        shard = self.folder / "model/model-2.safetensors"
        good = shard.read_bytes()
        for bad in ("../outside.safetensors", "/etc/passwd", "..", ".", "", "a/b", "a\0b"):
            self.index({"a": "model-1.safetensors", "b": bad})
            fails("OTR_E_CORRUPT", "tensor 'b'|no name of a file")
        (self.folder / "outside.safetensors").write_bytes(good)
        for mapped, words in (({"a": "model-1.safetensors", "b": "model-1.safetensors"}, "'b' is not in this file"),
                              ({"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}, "'c' is not in this file"),
                              ({"a": "model-1.safetensors", "x": "model-2.safetensors"}, "'b' is in this file, and the index does not say so"),
                              ({"a": "model-1.safetensors", "b": 3}, "weight_map"), ([], "weight_map")):
            self.index(mapped)
            fails("OTR_E_CORRUPT", words)
        self.index({"a": "model-1.safetensors", "b": "model-3.safetensors"})
        fails("OTR_E_NOT_FOUND", "model-3.safetensors")
        index = self.folder / "model/model.safetensors.index.json"
        for text in ("", "{", "[]", '{"weight_map": {}}', '{"weight_map": {"a": "m", "a": "m"}}', "[" * 100000):
            index.write_text(text)
            self.assertRaises(OutriggerError, self.take, "model")
        self.model()
        for end in (0, 7, 8, 30, len(good) - 1):
            shard.write_bytes(good[:end])
            fails("OTR_E_CORRUPT", "model-2.safetensors")
        shard.unlink()
        os.mkfifo(shard)
        fails("OTR_E_CORRUPT", "a pipe")
        shard.unlink()
        shard.mkdir()
        fails("OTR_E_CORRUPT", "model-2.safetensors")
        shard.rmdir()
        shard.symlink_to("model-2.safetensors")
        self.assertRaises(OutriggerError, self.take, "model")
        shard.unlink()
        shard.write_bytes(safetensors_file({"a": raw(values(1, (2,))), "b": raw(values(1, (2,)))}))
        self.index({"a": "model-1.safetensors", "b": "model-2.safetensors"})
        fails("OTR_E_CORRUPT", "'a' is in this file")
        fails("OTR_E_NOT_FOUND", "nothing", "nothing")
        (self.folder / "empty").mkdir()
        fails("OTR_E_NOT_FOUND", "model.safetensors", "empty")
        (self.folder / "none").write_bytes(safetensors_file({}))
        fails("OTR_E_NOT_FOUND", "no tensor", "none")


if __name__ == "__main__":
    unittest.main()
