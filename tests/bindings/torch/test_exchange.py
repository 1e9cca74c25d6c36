# SPDX-License-Identifier: Apache-2.0
"""A model of transformers goes through import, engine, checkpoint and export, and comes back with the same tensors."""
import pathlib
import tempfile
import unittest

import numpy as np
import outrigger
import safetensors.torch
import torch
import transformers
from outrigger import Comm, Context, Engine, lowlevel

CONFIG = {"bf16": {"enabled": True}, "outrigger": {"states": {"master": {"format": "split"}}}, "zero_optimization": {"stage": 1}}


def tiny_model():
    torch.manual_seed(5)
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=16, vocab_size=50, bos_token_id=0, eos_token_id=1)
    return transformers.GPT2LMHeadModel(config)


def engine_of(model, first=None):
    """Tied parameters under all their names; `first` is declared first and so is their root."""
    engine = Engine(Comm.self_group(Context(workers=1)), CONFIG)
    named = dict(model.named_parameters(remove_duplicate=False))
    ids = {}
    for name in sorted(named, key=lambda name: name != first):
        tensor = named[name]
        engine_name = {} if id(tensor) not in ids else {"alias_of": ids[id(tensor)]}
        ids.setdefault(id(tensor), engine.add_parameter(name, np.zeros(tuple(tensor.shape), np.float32), **engine_name))
    engine.commit()
    return engine


class RoundTrip(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def through(self, first=None, **saving):
        model = tiny_model()
        model.save_pretrained(self.folder / "given", **saving)
        outrigger.import_weights(self.folder / "given", self.folder / "made", "given")
        engine = engine_of(model, first)
        engine.load(self.folder / "made", weights_only=True)
        engine.save(self.folder / "made", "saved")
        engine.finalize()
        return model, outrigger.Checkpoint(self.folder / "made", "saved")

    def expect_equal(self, folder, model, dtype=torch.float32):
        read = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=dtype)
        self.assertIs(read.lm_head.weight, read.transformer.wte.weight)
        expected = model.state_dict()
        self.assertEqual(set(read.state_dict()), set(expected))
        for name, tensor in read.state_dict().items():
            self.assertTrue(torch.equal(tensor, expected[name].to(dtype)), name)

    def test_comes_back_equal(self):
        model, checkpoint = self.through(max_shard_size="20KB")
        self.assertTrue((self.folder / "given/model.safetensors.index.json").exists())
        with checkpoint:
            for name, dtype, options in (("one", "float32", {}), ("many", "float32", {"max_shard_bytes": 20000}), ("half", "bfloat16", {"max_shard_bytes": 10**9})):
                with self.subTest(name):
                    folder = self.folder / name
                    folder.mkdir()
                    model.config.save_pretrained(folder)
                    checkpoint.export(folder if options else folder / "model.safetensors", dtype, **options)
                    self.assertEqual((folder / "model.safetensors").exists(), name != "many")
                    self.expect_equal(folder, model, getattr(torch, dtype))
            self.assertEqual(checkpoint.read("lm_head.weight", lowlevel.VALUE_MASTER).tolist(), model.lm_head.weight.tolist())
            checkpoint.export(self.folder / "w", replace=True)
        other = tiny_model()
        with torch.no_grad():
            other.lm_head.weight.zero_()
        self.assertEqual(safetensors.torch.load_model(other, self.folder / "w"), (set(), []))
        for name, tensor in other.state_dict().items():
            self.assertTrue(torch.equal(tensor, model.state_dict()[name]), name)

    def test_whichever_of_tied_names_is_the_root(self):
        model, checkpoint = self.through("lm_head.weight")
        folder = self.folder / "out"
        folder.mkdir()
        model.config.save_pretrained(folder)
        with checkpoint:
            checkpoint.export(folder / "model.safetensors")
        self.expect_equal(folder, model)


if __name__ == "__main__":
    unittest.main()
