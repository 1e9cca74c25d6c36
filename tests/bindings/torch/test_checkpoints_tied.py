# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher: checkpoints of other programs that have tied parameters under all their names.

    outrigger run -n 2 -- python test_checkpoints_tied.py"""
import os
import unittest
import warnings
from pathlib import Path

import foreign_cases
import numpy
import resuming
import torch
import torch.distributed.checkpoint as distributed
from torch.distributed.checkpoint.state_dict import get_state_dict

import outrigger
import outrigger.torch
from outrigger import CheckpointWriter, Engine, foreign, lowlevel
from outrigger.torch import zero_to_fp32

DATA = Path(__file__).parent / "data"
MOMENTS = (lowlevel.VALUE_EXP_AVG, lowlevel.VALUE_EXP_AVG_SQ)
ADAMW = {"lr": 1e-2, "betas": (0.8, 0.95), "weight_decay": 0.1}


class Tied(torch.nn.Module):
    """One weight under two names, of which head_first says the first."""

    def __init__(self, head_first=False):
        super().__init__()
        parts = {"embedding": torch.nn.Embedding(7, 6), "inner": torch.nn.Linear(6, 6), "head": torch.nn.Linear(6, 7, bias=False)}
        parts["head"].weight = parts["embedding"].weight
        for name in sorted(parts, reverse=head_first):
            setattr(self, name, parts[name])

    def forward(self, x):
        return self.head(torch.tanh(self.inner(self.embedding(x))))


def tied(seed, **options):
    torch.manual_seed(seed)
    return Tied(**options)


def loss_of(model, step, rank=0, world=1):
    """Of a rank's part of 12 rows."""
    x = torch.randint(0, 7, (12,), generator=torch.Generator().manual_seed(step))
    part = slice(rank * 12 // world, (rank + 1) * 12 // world)
    return torch.nn.functional.cross_entropy(model(x[part]), (x[part] + 1) % 7)


def by_pytorch(model, optimizer, begin, end):
    losses = []
    for step in range(begin, end):
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


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


class Continued(resuming.Case):
    """By an engine of PyTorch, which declares the first name."""

    def start(self, **more):
        engine, *_ = outrigger.torch.initialize(model=tied(1), comm=self.comm, config=resuming.config(**{
            "gradient_clipping": 0.0, "train_micro_batch_size_per_gpu": 12 // self.comm.size, "optimizer": {"type": "AdamW", "params": ADAMW}, **more}))
        self.addCleanup(engine.destroy)
        return engine

    def trained(self, engine, begin, end):
        losses = []
        for step in range(begin, end):
            loss = loss_of(engine, step, self.comm.rank, self.comm.size)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        return numpy.frombuffer(self.comm.all_gather(numpy.array(losses))).reshape(self.comm.size, -1).mean(0)

    def state(self, engine):
        parameters = list(engine.module.parameters())
        return [engine.read(each, value).tolist() for each in parameters for value in (lowlevel.VALUE_MASTER, *MOMENTS)], engine._library.get_progress()

    def saved(self, head_first=False, changed=0.0):
        """By PyTorch after three steps, as it is and converted: folders; what each value should be, by name; and the losses of the next steps."""
        model = tied(0, head_first=head_first)
        optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
        by_pytorch(model, optimizer, 0, 3)
        own, converted = (os.path.join(self.folder, f"{name} {head_first} {changed}") for name in ("own", "converted"))
        if self.comm.rank == 0:
            state, states = get_state_dict(model, optimizer)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                distributed.save({"model": {**state, "head.weight": state["head.weight"] + changed}, "optimizer": states},
                                 storage_writer=distributed.FileSystemWriter(own), no_dist=True)
            foreign.convert(foreign.open(own), converted, "made")
        self.comm.barrier()
        values = {name: [each.tolist(), *(optimizer.state[each][key].tolist() for key in ("exp_avg", "exp_avg_sq"))]
                  for name, each in model.named_parameters(remove_duplicate=False)}
        return (own, converted), values, by_pytorch(model, optimizer, 3, 8)

    def test_both_names(self):
        """Of which the states may be under the one that is not the first here."""
        for head_first in (False, True):
            folders, expected, losses = self.saved(head_first)
            for folder in folders:
                for options in ({}, {"load_module_strict": False}):
                    with self.subTest(folder, **options):
                        engine = self.start()
                        engine.load_checkpoint(folder, **options)
                        for name, parameter in engine.module.named_parameters():
                            self.assertEqual([engine.read(parameter, value).tolist() for value in (lowlevel.VALUE_MASTER, *MOMENTS)], expected[name], name)
                        counts = engine._library.get_progress()
                        self.assertEqual((counts["steps"]["applied"], counts["parameters"]["updates"], counts["parameters"]["other_updates"]), (3, 3, []))
                        for ours, its in zip(self.trained(engine, 3, 8), losses, strict=True):
                            self.assertLess(abs(ours - its), 2e-6 * its)
                for options in ({"load_module_only": True}, {"load_module_only": True, "load_module_strict": False}, {"load_optimizer_states": False}):
                    with self.subTest(folder, **options):
                        engine = self.start()
                        engine.load_checkpoint(folder, **options)
                        for name, parameter in engine.module.named_parameters():
                            self.assertEqual(engine.read(parameter, lowlevel.VALUE_MASTER).tolist(), expected[name][0], name)
                            self.assertEqual(engine.read(parameter, lowlevel.VALUE_EXP_AVG).abs().max(), 0)

    def test_names_with_different_values(self):
        folders, _, _ = self.saved(changed=1e-6)
        engine = self.start()
        before = self.state(engine)
        for folder in folders:
            for options in ({}, {"load_module_only": True}):
                with self.subTest(folder, **options), self.assertRaisesRegex((ValueError, RuntimeError),
                                                                             "'embedding.weight' and 'head.weight' are one parameter here, and two"):
                    engine.load_checkpoint(folder, **options)
        self.assertEqual(self.state(engine), before)

    def write(self, *names, steps=5, moments=MOMENTS):
        """A checkpoint of these names, and all others of a module."""
        shapes = {"inner.weight": (6, 6), "inner.bias": (6,), **dict.fromkeys(names, (7, 6))}
        if self.comm.rank == 0:
            kept = {"exp_avg": "float32", **({"exp_avg_sq": "float32"} if len(moments) > 1 else {})}
            with CheckpointWriter(self.folder, "made", applied_steps=steps, replace=True, **kept) as writer:
                for name, shape in shapes.items():
                    writer.add_parameter(name, shape, updates=None if steps is None or not name.endswith(".bias") else 2)
                for name, shape in shapes.items():
                    for index, value in enumerate((lowlevel.VALUE_MASTER, *moments)):
                        writer.write(name, numpy.full(shape, len(shape) + 10 * index, numpy.float32), value)
        self.comm.barrier()

    def test_the_other_name_only(self):
        for names in (("head.weight",), ("embedding.weight", "head.weight")):
            with self.subTest(names):
                self.write(*names)
                engine = self.start()
                engine.load_checkpoint(self.folder)
                found, progress = self.state(engine)
                self.assertEqual([numpy.unique(each).tolist() for each in found], [[2], [12], [22], [2], [12], [22], [1], [11], [21]])
                self.assertEqual((progress["parameters"]["updates"], progress["parameters"]["other_updates"]), (5, [["inner.bias", 2]]))

    def test_what_does_not_fit(self):
        engine = self.start()
        before = self.state(engine)
        both = ("embedding.weight", "head.weight")
        for names, options, expected in (((*both, "more"), {}, "here are no .*more"), ((*both, "more"), {"load_module_only": True}, "here are no .*more"),
                                         ((*both, "more"), {"load_module_strict": False}, "are not: more;"), (("inner.gain",), {}, 'lacks "embedding.weight"'),
                                         (both, {"steps": None}, "does not say how many updates"),
                                         (both, {"moments": MOMENTS[:1]}, "has no exp_avg_sq of 'embedding.weight'")):
            own = {key: options[key] for key in ("steps", "moments") if key in options}
            self.write(*names, **own)
            with self.subTest(expected, **options), self.assertRaisesRegex((ValueError, RuntimeError, outrigger.OutriggerError), expected):
                engine.load_checkpoint(self.folder, **{key: value for key, value in options.items() if key not in own})
            self.comm.barrier()
        self.write(*both)
        if self.comm.rank == 0:
            with open(os.path.join(self.folder, "made", "rank-00000.safetensors"), "r+b") as file:
                file.seek(-1, os.SEEK_END)  # of a moment
                file.write(b"?")
        self.comm.barrier()
        with self.assertRaisesRegex((RuntimeError, outrigger.OutriggerError), "E_CORRUPT"):
            engine.load_checkpoint(self.folder)
        self.assertEqual(self.state(engine), before)

    def test_an_alias(self):
        """Of the library's own engine, and of DeepSpeed's converted."""
        engine = Engine(self.comm, {"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, "zero_optimization": {"stage": 2}})
        ids = [engine.add_parameter(name, numpy.ones(shape, numpy.float32))
               for name, shape in (("embedding.weight", (7, 6)), ("inner.weight", (6, 6)), ("inner.bias", (6,)))]
        engine.add_parameter("head.weight", shape=(7, 6), alias_of=0)
        engine.commit()
        for step in range(3):
            with engine.begin_pass() as a_pass:
                for index in ids:
                    a_pass.add_grad(index, numpy.full(engine.parameter_shape(index), index + step + 1, numpy.float32))
            engine.step()
        engine.save(self.folder, "saved")
        other = self.start()
        other.load_checkpoint(self.folder)
        self.assertEqual(self.state(other)[0], [engine.read(index, value).tolist() for index in ids for value in (lowlevel.VALUE_MASTER, *MOMENTS)])
        self.assertEqual(other._library.get_progress()["steps"], engine.get_progress()["steps"])
        engine.finalize()

        source = foreign.open(DATA / "zero2")
        if self.comm.rank == 0:
            foreign.convert(source, self.folder, "zero2")
        self.comm.barrier()
        model = foreign_cases.net(1)
        engine, *_ = outrigger.torch.initialize(model=model, model_parameters=foreign_cases.groups(model), comm=self.comm,
                                                config=foreign_cases.config(2, {"scheduler": None}, self.comm.size))
        engine.load_checkpoint(self.folder, "zero2")
        self.assertEqual(model.calls.item(), foreign_cases.SAVED)
        self.assertTrue(numpy.array_equal(model.drift, source.buffers["drift"]))
        self.assertGreater(model.drift.min(), 0)
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                for key, value in (("master", lowlevel.VALUE_MASTER), ("exp_avg", MOMENTS[0]), ("exp_avg_sq", MOMENTS[1])):
                    self.assertTrue(numpy.array_equal(engine.read(parameter, value), source.read(name, key)), (name, key))
        engine.destroy()


if __name__ == "__main__":
    unittest.main()
