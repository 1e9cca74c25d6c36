# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher: checkpoints of other programs that have tied parameters under all their names.

    outrigger run -n 2 -- python test_checkpoints_tied.py"""
import unittest
from pathlib import Path

import foreign_cases
import numpy
import resuming
import torch

import outrigger
import outrigger.torch
from outrigger import Engine, foreign, lowlevel
from outrigger.torch import zero_to_fp32

DATA = Path(__file__).parent / "data"


class Tied(torch.nn.Module):
    """One weight under two names."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(7, 6)
        self.inner = torch.nn.Linear(6, 6)
        self.head = torch.nn.Linear(6, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(torch.tanh(self.inner(self.embedding(x))))


def tied(seed):
    torch.manual_seed(seed)
    return Tied()


class Read(resuming.Case):
    """Without an engine of PyTorch: each name has its root's values."""

    def save(self, **config):
        """From an engine of the library, which the names are declared to."""
        generator = numpy.random.default_rng(3)
        engine = Engine(self.comm, {"zero_optimization": {"stage": 1}, **config})
        declared = {}
        for name, alias in (("embedding.weight", None), ("inner.weight", None), ("inner.bias", None), ("head.weight", "embedding.weight"),
                            ("fixed", None), ("fixed too", "fixed")):
            shape = (7, 6) if name.endswith(("embedding.weight", "head.weight")) else (6, 6) if name == "inner.weight" else (6,)
            value = generator.standard_normal(shape, numpy.float32)
            options = {} if alias is None else {"alias_of": declared[alias]}
            declared[name] = engine.add_parameter(name, value, trainable=int(not name.startswith("fixed")), **options)
        engine.commit()
        engine.save(self.folder, "saved", replace=True)
        expected = {name: torch.from_numpy(engine.read(index, lowlevel.VALUE_PUBLISHED if name.startswith("fixed") else lowlevel.VALUE_MASTER))
                    for name, index in declared.items()}
        engine.finalize()
        return expected

    def test_a_state_dict(self):
        for config in ({}, {"bf16": {"enabled": True}, "outrigger": {"states": {"master": {"format": "split"}}}}):
            with self.subTest(**config):
                expected = self.save(**config)
                state = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(self.folder)
                self.assertEqual(list(state), list(expected))
                for name, value in expected.items():
                    self.assertGreater(value.abs().min(), 0)
                    self.assertTrue(torch.equal(state[name], value), name)
                self.assertEqual(state["head.weight"].data_ptr(), state["embedding.weight"].data_ptr())
                trained = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(self.folder, exclude_frozen_parameters=True)
                self.assertEqual(state.keys() - trained.keys(), {"fixed", "fixed too"})

    def test_a_model_takes_it(self):
        expected = self.save()
        model = zero_to_fp32.load_state_dict_from_zero_checkpoint(tied(0), self.folder)
        engine, *_ = outrigger.torch.initialize(model=tied(1), config=resuming.config(), comm=self.comm)
        engine.load_checkpoint(self.folder, load_module_only=True, custom_load_fn=lambda src, dst: dst.load_state_dict(src, strict=False))
        for name, parameter in engine.module.named_parameters():
            self.assertTrue(torch.equal(model.get_parameter(name), expected[name]), name)
            self.assertTrue(torch.equal(engine.read(parameter, lowlevel.VALUE_MASTER), expected[name]), name)

    def test_of_deepspeed_converted(self):
        for name in (*foreign_cases.CASES, *foreign_cases.UNIVERSAL.values()):
            with self.subTest(name):
                source = foreign.open(DATA / name, order=[["a.weight", "b.weight", "c.weight"], ["a.bias", "b.bias", "again.bias", "c.bias"]])
                self.assertEqual(source.aliases, {"again.weight": "b.weight"})
                if self.comm.rank == 0:
                    foreign.convert(source, self.folder, name)
                self.comm.barrier()
                state = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(self.folder, name)
                for each in ("b.weight", "again.weight"):
                    self.assertTrue(numpy.array_equal(state[each], source.read(each)), each)
                self.comm.barrier()


if __name__ == "__main__":
    unittest.main()
