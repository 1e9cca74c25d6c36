# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher: load_checkpoint takes a part of a checkpoint, or all of it under other names.

    outrigger run -n 2 -- python test_checkpoints_partial.py"""
import os
import unittest
import warnings
from pathlib import Path

import torch
import torch.distributed.checkpoint as distributed
from resuming import HOSTS, Case, config, differing, model, start, train, values
from test_checkpoints_tied import Tied
from torch.distributed.checkpoint.state_dict import get_state_dict

import outrigger
import outrigger.torch
from outrigger import foreign, lowlevel

DATA = Path(__file__).parent / "data"
MASTER = lowlevel.VALUE_MASTER
BF16 = {"bf16": {"enabled": True}}


class Wrapped(torch.nn.Module):
    """The same training under names that begin with "inner."."""

    def __init__(self, seed):
        super().__init__()
        self.inner = model(seed)

    def forward(self, x):
        return self.inner(x)


class Counts(torch.nn.Module):
    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def get_extra_state(self):
        return {"seen": self.seen}

    def set_extra_state(self, state):
        self.seen = state["seen"]


def wrapped(seed, make=None, **options):
    module, settings = Wrapped(seed), config(**options)
    if make is not None:
        del settings["optimizer"]
        settings["zero_allow_untested_optimizer"] = True
    return outrigger.torch.initialize(model=module, config=settings,
                                      optimizer=None if make is None else make(each for each in module.parameters() if each.requires_grad))[0]


def inner(found):
    """Of a wrapped one's values those by the names that it has without."""
    def shorter(key):
        return (key[0].removeprefix("inner."), *key[1:]) if isinstance(key, tuple) else key

    return {shorter(key): value for key, value in found.items() if key not in ("library", ("inner.scratch", "buffer"))}


class Partial(Case):
    def taken(self, engine, saved, stage, **arguments):
        """The names of what a load changed into what was saved; everything else must be as before."""
        before = values(engine)
        path, _ = engine.load_checkpoint(self.folder, "there", load_module_only=True, **arguments)
        self.assertTrue(os.path.isdir(path))
        after, names = values(engine), set()
        for key, value in after.items():
            is_weight = isinstance(key, tuple) and key[1] in (MASTER, "published", "buffer", "shown")
            if is_weight and torch.equal(value, saved[key]) and not torch.equal(value, before[key]):
                names.add(key[0])
            else:
                self.assertTrue(torch.equal(value, before[key]) if isinstance(value, torch.Tensor) else value == before[key], key)
        train(engine, 8, 10)
        return names

    def test_what_is_chosen(self):
        for stage in range(4):
            for section in ({}, BF16):
                saved = start(0, stage=stage, **section)
                train(saved, 0, 3)
                saved.save_checkpoint(self.folder, "there")
                there = values(saved)
                for arguments, expected in (
                        ({"include": ["a.*", "norm.running_*"], "exclude": "a.bias"}, {"a.weight", "norm.running_mean", "norm.running_var"}),
                        ({"include": "b.?ias"}, {"b.bias"}),
                        ({"include": ("norm.running_mean", "calls")}, {"norm.running_mean", "calls"}),  # buffers alone
                        ({"exclude": ["*.weight", "norm.*", "calls"]}, {"a.bias", "fixed.bias", "b.bias"})):
                    with self.subTest(stage=stage, **section, **arguments):
                        other = start(1, stage=stage, **section)
                        train(other, 0, 1)
                        self.assertEqual(self.taken(other, there, stage, **arguments), expected)
                        other.destroy()
                saved.destroy()

    def test_a_training_goes_on_under_other_names(self):
        for stage, make in ((0, None), (2, None), (3, None), (1, HOSTS["NAdam"])):
            for is_inner in (False, True):
                with self.subTest(stage=stage, make=make, is_inner=is_inner):
                    make_one, make_other = (wrapped, start) if is_inner else (start, wrapped)
                    saved = make_one(0, stage=stage, make=make)
                    train(saved, 0, 3)
                    saved.save_checkpoint(self.folder, "there")
                    expected = inner(values(saved))
                    losses = train(saved, 3, 5)
                    other = make_other(1, stage=stage, make=make)
                    train(other, 0, 1)
                    other.load_checkpoint(self.folder, "there", renamed={"*": "inner.*"} if is_inner else {"inner.*": "*"})
                    self.assertEqual(differing(expected, inner(values(other))), [])
                    self.assertEqual(train(other, 3, 5), losses)
                    saved.destroy()
                    other.destroy()

    def test_a_name_goes_before_a_beginning(self):
        saved = start(0)
        train(saved, 0, 2)
        saved.save_checkpoint(self.folder, "there")
        there = values(saved)
        engine = wrapped(1)
        engine.load_checkpoint(self.folder, "there", load_optimizer_states=False, include=["inner.a.bias", "inner.norm.running_*"],
                               renamed={"inner.*": "*", "inner.a.bias": "norm.weight", "inner.norm.running_mean": "norm.running_var"})
        found = values(engine)
        self.assertTrue(torch.equal(found["inner.a.bias", MASTER], there["norm.weight", MASTER]))
        self.assertTrue(torch.equal(found["inner.norm.running_mean", "buffer"], there["norm.running_var", "buffer"]))
        self.assertTrue(torch.equal(found["inner.norm.running_var", "buffer"], there["norm.running_var", "buffer"]))
        self.assertFalse(torch.equal(found["inner.a.weight", MASTER], there["a.weight", MASTER]))

    def test_resized(self):
        for stage in (1, 3):
            for rows in (2, 9):
                with self.subTest(stage=stage, rows=rows):
                    saved = start(0, stage=stage)
                    train(saved, 0, 2)
                    saved.save_checkpoint(self.folder, "there")
                    module = model(1)
                    module.b = torch.nn.Linear(24, rows)
                    engine = outrigger.torch.initialize(model=module, config=config(stage=stage))[0]
                    with self.assertRaisesRegex(outrigger.OutriggerError, r"E_SHAPE.*\"b.weight\""):
                        engine.load_checkpoint(self.folder, "there", load_module_only=True)
                    before = {name: engine.read(each, MASTER) for name, each in (("weight", module.b.weight), ("bias", module.b.bias))}
                    engine.load_checkpoint(self.folder, "there", load_module_only=True, resized="b.*")
                    for name, own in before.items():
                        expected, both = own.clone(), min(rows, 4)
                        expected[:both] = saved.read(getattr(saved.module.b, name), MASTER)[:both]
                        self.assertTrue(torch.equal(engine.read(getattr(module.b, name), MASTER), expected))
                    self.assertTrue(torch.equal(engine.read(module.a.weight, MASTER), saved.read(saved.module.a.weight, MASTER)))
                    saved.destroy()
                    engine.destroy()

    def test_of_tied_parameters_any_name(self):
        def tied(seed):
            torch.manual_seed(seed)
            return outrigger.torch.initialize(model=Tied(), config=config())[0]

        saved = tied(0)
        saved.save_checkpoint(self.folder, "there")
        there = saved.read(saved.module.head.weight, MASTER)
        for arguments, expected in (({"include": "head.*"}, (True, False)), ({"include": "embedding.weight"}, (True, False)),
                                    ({"exclude": "head.weight"}, (False, True)), ({"include": ["inner.*", "head.weight"]}, (True, True))):
            with self.subTest(**arguments):
                engine = tied(1)
                engine.load_checkpoint(self.folder, "there", load_module_only=True, **arguments)
                found = (torch.equal(engine.read(engine.module.embedding.weight, MASTER), there),
                         torch.equal(engine.read(engine.module.inner.weight, MASTER), saved.read(saved.module.inner.weight, MASTER)))
                self.assertEqual(found, expected)
                engine.destroy()

    def test_strict_is_about_what_is_chosen(self):
        less = start(0, network={"norm": False})
        less.save_checkpoint(self.folder, "there")
        engine = start(1)
        for include, words in (("norm.weight", "norm.weight"), (["a.*", "norm.running_mean"], "norm.running_mean")):
            before = values(engine)
            with self.assertRaisesRegex((ValueError, RuntimeError, outrigger.OutriggerError), words):
                engine.load_checkpoint(self.folder, "there", load_module_only=True, include=include)
            self.assertEqual(differing(before, values(engine)), [])
        engine.load_checkpoint(self.folder, "there", load_module_only=True, include=["a.*", "norm.*"], load_module_strict=False)
        self.assertTrue(torch.equal(engine.read(engine.module.a.weight, MASTER), less.read(less.module.a.weight, MASTER)))

    def test_what_the_script_wrote_stays(self):
        start(0).save_checkpoint(self.folder, "there")
        engine = start(1, **BF16)
        with torch.no_grad():
            engine.module.norm.weight.fill_(0.5)
        engine.load_checkpoint(self.folder, "there", load_module_only=True, include="a.*")
        self.assertEqual(set(engine.read(engine.module.norm.weight, MASTER).tolist()), {0.5})

    def test_extra_states(self):
        """By their names in a state_dict."""
        def counting(seen, name):
            module = model(seen)
            setattr(module, name, Counts(seen))
            return outrigger.torch.initialize(model=module, config=config())[0]

        counting(5, "counts").save_checkpoint(self.folder, "there")
        for name, arguments, expected in (("counts", {"include": "a.*"}, 1), ("counts", {}, 5), ("other", {}, 1),
                                          ("other", {"include": ["a.*", "other.*"], "renamed": {"other.*": "counts.*"}}, 5)):
            with self.subTest(name, **arguments):
                engine = counting(1, name)
                engine.load_checkpoint(self.folder, "there", load_module_only=True, **arguments)
                self.assertEqual(getattr(engine.module, name).seen, expected)

    def test_wrong_use(self):
        engine = start(0)
        engine.save_checkpoint(self.folder, "there")
        only = {"load_module_only": True}
        for kind, words, arguments in (
                (ValueError, "include and resized take a part of the weights.*add load_module_only=True", {"include": "a.*", "resized": "b.*"}),
                (ValueError, "exclude take a part", {"exclude": ["a.*"]}),
                (ValueError, "include has no pattern", {"include": [], **only}),
                (ValueError, "custom_load_fn chooses and renames by itself; leave out renamed", {"renamed": {"a": "b"}, "custom_load_fn": print, **only}),
                (outrigger.OutriggerError, r"include\[0\] = \"aa.\*\" means no parameter: did you mean \"a.\*\"", {"include": "aa.*", **only}),
                (outrigger.OutriggerError, r"renamed\[0\]: \"c\" means no parameter here", {"renamed": {"c": "a.bias"}, **only}),
                (outrigger.OutriggerError, "leave no parameter", {"exclude": "*", **only})):
            with self.subTest(words):
                before = values(engine)
                with self.assertRaisesRegex(kind, words):
                    engine.load_checkpoint(self.folder, "there", **arguments)
                self.assertEqual(differing(before, values(engine)), [])
        with self.assertRaisesRegex(NotImplementedError, "include is not supported for a checkpoint of another library; outrigger.foreign.convert"):
            engine.load_checkpoint(DATA / "zero2", include="a.*", **only)


class Converted(Case):
    """Buffers of a checkpoint of another library, which its conversion has as parameters or as bytes."""

    def test_of_pytorch(self):
        module = model(0)
        optimizer = torch.optim.AdamW((each for each in module.parameters() if each.requires_grad), lr=1e-2)
        for step in range(3):
            module(torch.randn(8, 6, generator=torch.Generator().manual_seed(step))).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        own = os.path.join(self.folder, "own")
        if self.comm.rank == 0:
            state, states = get_state_dict(module, optimizer)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                distributed.save({"model": state, "optimizer": states}, storage_writer=distributed.FileSystemWriter(own), no_dist=True)
            foreign.convert(foreign.open(own), self.folder, "there")
        self.comm.barrier()
        for states in (True, False):
            with self.subTest(states=states):
                engine = start(1)
                train(engine, 0, 1)
                engine.load_checkpoint(self.folder, "there", load_optimizer_states=states)
                found = values(engine)
                for name, each in module.named_buffers():
                    if name != "scratch":
                        self.assertTrue(torch.equal(found[name, "buffer"], each) and each.dtype == found[name, "buffer"].dtype, name)
                for name, each in module.named_parameters():
                    self.assertTrue(torch.equal(found[name, MASTER if each.requires_grad else "published"], each), name)
                    if each.requires_grad and states:
                        self.assertTrue(torch.equal(found[name, lowlevel.VALUE_EXP_AVG_SQ], optimizer.state[each]["exp_avg_sq"]), name)
                if states:
                    self.assertEqual(found["library"]["parameters"]["updates"], 3)
                engine.destroy()
        engine = start(1, network={"norm": False})  # the buffers are too many, as are the weights beside them
        with self.assertRaisesRegex((ValueError, RuntimeError), "norm.num_batches_tracked"):
            engine.load_checkpoint(self.folder, "there", load_module_only=True)


if __name__ == "__main__":
    unittest.main()
