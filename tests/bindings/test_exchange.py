# SPDX-License-Identifier: Apache-2.0
"""Weights that go out: bit by bit what NumPy makes of the engine's, as the official safetensors package reads them."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import ml_dtypes
import numpy as np
import outrigger
import safetensors
from outrigger import Comm, Context, Engine, OutriggerError, lowlevel

SHAPES = {"embedding": (70, 40), "layer.weight": (40, 30), "layer.bias": (7,), "scalar": (), "empty": (0, 3), "frozen": (300,)}
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
BF16 = {"bf16": {"enabled": True}}
STATES = {"exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}}
FORMATS = {"float32": {}, "bfloat16, float32 master": BF16, "split, block8": {**BF16, "outrigger": {"states": {"master": {"format": "split"}, **STATES}}},
           "bfloat16": {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
                        "outrigger": {"states": {name: {"rounding": "stochastic"} for name in ("master", "exp_avg", "exp_avg_sq")}}},
           "float16": {"fp16": {"enabled": True, "fp16_master_weights_and_grads": True, "loss_scale": 1}}}


def on_ranks(world, body):
    """body(comm) of each of `world` ranks; what that of rank 0 returns."""
    results, failures = {}, []

    def run(comm):
        try:
            results[comm.rank] = body(comm)
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)
            comm.abort(str(error))

    threads = [threading.Thread(target=run, args=(comm,)) for comm in Comm.threads(Context(workers=1), world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results[0]


def train(comm, config, folder=None, shapes=SHAPES):
    """Two steps of a model with an alias and a frozen parameter, saved; its weights as float32."""
    engine = Engine(comm, {"zero_optimization": {"stage": 1 if comm.size > 1 else 0}, "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, **config})
    rng = np.random.default_rng(3)
    for name, shape in shapes.items():
        engine.add_parameter(name, rng.standard_normal(shape, np.float32), trainable=int(name != "frozen"))
    engine.add_parameter("head", np.zeros(shapes["embedding"], np.float32), alias_of=0)
    engine.commit()
    for _ in range(2):
        with engine.begin_pass() as a_pass:
            for id, shape in enumerate(shapes.values()):
                if id != len(shapes) - 1:
                    a_pass.add_grad(id, np.ones(shape, np.float32))
        engine.step()
    if folder is not None:
        engine.save(folder, "a")
    weights = {name: engine.read(id, lowlevel.VALUE_PUBLISHED if name == "frozen" else lowlevel.VALUE_MASTER) for id, name in enumerate(shapes)}
    engine.finalize()
    return weights


def official(path):
    """All tensors of a file as (dtype, shape, bytes), and its metadata."""
    data = pathlib.Path(path).read_bytes()
    with safetensors.safe_open(path, framework="np") as file:
        return {name: (tensor["dtype"], tuple(tensor["shape"]), bytes(tensor["data"])) for name, tensor in safetensors.deserialize(data)}, file.metadata()


def expected(weights, dtype):
    name = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}[dtype]
    return {key: (name, value.shape, value.astype(DTYPES[dtype]).tobytes()) for key, value in weights.items()}


class Export(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def names(self, folder="."):
        return sorted(os.listdir(self.folder / folder))

    def saved(self, config=None, world=1):
        weights = on_ranks(world, lambda comm: train(comm, config or {}, self.folder / "made"))
        checkpoint = outrigger.Checkpoint(self.folder / "made")
        self.addCleanup(checkpoint.close)
        return weights, checkpoint

    def test_every_format_of_one_and_two_ranks(self):
        for name, config in FORMATS.items():
            for world in (1, 2):
                if world == 1 and name in ("bfloat16", "float16", "split, block8"):
                    config = {**config, "zero_optimization": {"stage": 1}}
                with self.subTest(format=name, world=world), tempfile.TemporaryDirectory() as folder:
                    self.folder = pathlib.Path(folder)
                    weights, checkpoint = self.saved(config, world)
                    self.assertEqual(checkpoint.ranks, world)
                    for dtype in DTYPES:
                        path = self.folder / f"{dtype}.safetensors"
                        checkpoint.export(path, dtype)
                        tensors, metadata = official(path)
                        self.assertEqual(tensors, expected(weights, dtype), dtype)
                        self.assertEqual(metadata, {"format": "pt", "head": "embedding"})

    def test_shards(self):
        weights, checkpoint = self.saved()
        for most, count in ((1, 6), (5000, 3), (11200, 2), (10**9, 1)):
            folder = self.folder / f"shards-{most}"
            checkpoint.export(folder, max_shard_bytes=most)
            files = self.names(folder.name)
            if count == 1:
                self.assertEqual(files, ["model.safetensors"])
                self.assertEqual(official(folder / files[0])[0], expected(weights, "float32"))
                continue
            shards = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
            self.assertEqual(files, [*shards, "model.safetensors.index.json"])
            index = json.loads((folder / "model.safetensors.index.json").read_text())
            together, metadata = {}, {}
            for shard in shards:
                tensors, own = official(folder / shard)
                self.assertEqual({index["weight_map"][name] for name in tensors}, {shard})
                size = sum(len(data) for _, _, data in tensors.values())
                self.assertTrue(size <= most or len(tensors) == 1, (shard, size))
                together.update(tensors)
                metadata.update(own)
            self.assertEqual(together, expected(weights, "float32"))
            self.assertEqual(list(index["weight_map"]), list(SHAPES))
            self.assertEqual(index["metadata"], {"total_size": sum(value.nbytes for value in weights.values())})
            self.assertEqual(metadata, {"format": "pt", "head": "embedding"})

    def test_a_target_is_replaced_only_if_asked(self):
        weights, checkpoint = self.saved()
        folder = self.folder / "model"
        checkpoint.export(folder, max_shard_bytes=5000)
        (folder / "config.json").write_text("{}")
        before = self.names("model")
        for arguments in ({"path": folder, "max_shard_bytes": 5000}, {"path": folder, "max_shard_bytes": 1}, {"path": folder, "max_shard_bytes": 10**9},
                          {"path": folder / before[1]}, {"path": folder}):
            with self.subTest(arguments), self.assertRaises(OutriggerError) as caught:
                checkpoint.export(**arguments)
            self.assertEqual(caught.exception.name, "OTR_E_DUPLICATE")
            self.assertEqual(self.names("model"), before)
        checkpoint.export(folder, max_shard_bytes=11200, replace=True)
        shards = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
        self.assertEqual(self.names("model"), ["config.json", *shards, "model.safetensors.index.json"])
        checkpoint.export(folder, max_shard_bytes=10**9, replace=True)
        self.assertEqual(self.names("model"), ["config.json", "model.safetensors"])
        checkpoint.export(folder / "model.safetensors", "float16", replace=True)
        self.assertEqual(official(folder / "model.safetensors")[0], expected(weights, "float16"))
        target = self.folder / "elsewhere"
        target.write_text("kept")
        (folder / "link").symlink_to(target)
        with self.assertRaises(OutriggerError):
            checkpoint.export(folder / "link")
        checkpoint.export(folder / "link", replace=True)
        self.assertEqual((target.read_text(), (folder / "link").is_symlink()), ("kept", False))

    def test_memory_does_not_grow_with_the_checkpoint(self):
        """The peak of a process that exports and imports, beside one that does so with next to nothing."""
        code = ("import sys, outrigger; outrigger.Checkpoint(sys.argv[1]).export(sys.argv[1] + '/w'); "
                "outrigger.import_weights(sys.argv[1] + '/w', sys.argv[1], 'y'); "
                "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0])")
        mib, peaks = 2**20, {}
        for size in (1, 6):
            folder = self.folder / str(size)
            array = np.ones(size * mib, np.float32)
            with outrigger.CheckpointWriter(folder, "x") as writer:
                for index in range(size * 2):
                    writer.add_parameter(str(index), array.shape)
                for index in range(size * 2):
                    writer.write(str(index), array)
            peaks[size] = int(subprocess.run([sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True).stdout) / 1024
        self.assertLess(peaks[6] - peaks[1], 120, "MiB, of 12 × 24 MiB")

    def test_what_is_wrong_is_said(self):
        _, checkpoint = self.saved()
        for name, arguments in (("OTR_E_ARGUMENT", {"path": self.folder / "w", "dtype": "int8"}), ("OTR_E_ARGUMENT", {"path": ""}),
                                ("OTR_E_NOT_FOUND", {"path": self.folder / "no/such/w"}), ("OTR_E_ARGUMENT", {"path": f"{self.folder}/made/.."})):
            with self.subTest(arguments), self.assertRaises(OutriggerError) as caught:
                checkpoint.export(**arguments)
            self.assertEqual(caught.exception.name, name)
        with self.assertRaises(ValueError):
            checkpoint.export(self.folder / "w", max_shard_bytes=0)
        options = lowlevel.ExportOptions()
        options.max_shard_bytes = -1
        with self.assertRaises(OutriggerError):
            lowlevel.checkpoint_export(checkpoint.handle, str(self.folder), options)
        path = self.folder / "made/a/rank-00000.safetensors"
        damaged = bytearray(path.read_bytes())
        damaged[-9] ^= 1
        path.write_bytes(damaged)
        with self.assertRaises(OutriggerError) as caught:
            checkpoint.export(self.folder / "w")
        self.assertEqual(caught.exception.name, "OTR_E_CORRUPT")
        self.assertEqual(self.names(), ["made"])


if __name__ == "__main__":
    unittest.main()
