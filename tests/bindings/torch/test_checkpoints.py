# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher: a training that is saved, forgotten and loaded goes on as if nothing had been, bit by bit.

    outrigger run -n 2 -- python test_checkpoints.py"""
import collections
import itertools
import os
import unittest
from unittest import mock

import numpy
import resuming
import torch
from resuming import DECAYS, HOSTS, Case, differing, lose_random_states, start, train, values

import outrigger
import outrigger.torch
from outrigger.torch import riders, zero_to_fp32

PRECISIONS = {
    "float32": {}, "bf16": {"bf16": {"enabled": True}},
    # Begins too high, so that steps are skipped on either side of the save, and grows again soon.
    "fp16": {"fp16": {"enabled": True, "initial_scale_power": 24, "loss_scale_window": 3, "hysteresis": 1}},
}
APART = {"outrigger": {"share_parameters": False}}


class Resumed(Case):
    def resumed(self, steps=4, more=4, noise=True, **options):
        """What differs between a training that goes on and one that is loaded into an engine of other weights."""
        engine = start(0, **options)
        train(engine, 0, steps, noise)
        self.assertIs(engine.save_checkpoint(self.folder, client_state={"at": steps}), True)
        expected = [train(engine, steps, steps + more, noise)]
        expected.append(values(engine))
        self.assertEqual((engine.skipped_steps > 1), "fp16" in options)
        engine.destroy()
        lose_random_states(7)
        other = start(1, **options)
        train(other, 0, 1, noise)  # has states of its own, too
        path, state = other.load_checkpoint(self.folder)
        self.assertEqual((path, state), (os.path.join(self.folder, f"global_step{steps}"), {"at": steps}))
        losses = train(other, steps, steps + more, noise)
        found = differing(expected[1], values(other)) + (["losses"] if losses != expected[0] else [])
        other.destroy()
        return found

    def test_every_stage_and_precision(self):
        for stage, (precision, section) in itertools.product(range(4), PRECISIONS.items()):
            for apart in ({}, APART) if stage == 3 else ({},):
                for gas in (1, 2):
                    with self.subTest(stage=stage, precision=precision, gas=gas, **apart):
                        self.assertEqual(self.resumed(stage=stage, gas=gas, **DECAYS["PyTorch's"], **section, **apart), [])

    def test_schedules(self):
        for name, decay in DECAYS.items():
            with self.subTest(name):
                self.assertEqual(self.resumed(**decay), [])

    def test_optimizers_of_pytorch(self):
        for (name, make), stage in itertools.product(HOSTS.items(), range(4)):
            with self.subTest(name, stage=stage):
                self.assertEqual(self.resumed(stage=stage, make=make, **DECAYS["PyTorch's"]), [])

    def test_rules_of_the_library(self):
        for rule in ({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}, {"type": "Lion", "params": {"lr": 1e-3}},
                     {"type": "Muon", "params": {"lr": 1e-2}}):
            with self.subTest(**rule), mock.patch.object(resuming, "STATES", resuming.STATES[:1]):
                self.assertEqual(self.resumed(optimizer=rule, **DECAYS["PyTorch's"]), [])

    def test_without_any_of_them_it_would_not_go_on(self):
        """Each part of what rides along is seen by these tests."""
        needed = {"restore_module": ("calls", "buffer"), "restore_random": "losses", "restore_scheduler": "schedule",
                  "restore_optimizer": "rates", "restore_counters": "counters"}
        for name, sign in needed.items():
            with self.subTest(name), mock.patch.object(riders, name, lambda *_: None):
                self.assertIn(sign, self.resumed(**DECAYS["PyTorch's"]))

    def test_every_random_state_is_needed(self):
        for name in ("torch", "python", "numpy"):
            original = riders.restore_random

            def without(engine, state, name=name, original=original):
                original(engine, {"random": {key: each for key, each in state["random"].items() if key != name}})

            with self.subTest(name), mock.patch.object(riders, "restore_random", without):
                self.assertIn("losses", self.resumed())

    def test_an_optimizer_of_pytorch_needs_its_states(self):
        with mock.patch("outrigger.torch.host_optimizer.HostOptimizer.load_state_dict"):
            self.assertIn("losses", self.resumed(make=HOSTS["RMSprop"]))

    def test_in_the_engine_that_saved(self):
        for stage, options in ((2, {}), (3, {}), (3, APART)):
            with self.subTest(stage=stage, **options):
                engine = start(stage=stage, **options)
                train(engine, 0, 3)
                engine.save_checkpoint(self.folder, "here")
                expected = train(engine, 3, 6), values(engine)
                engine.load_checkpoint(self.folder, "here")
                self.assertEqual(train(engine, 3, 6), expected[0])
                self.assertEqual(differing(expected[1], values(engine)), [])

    def test_beside_the_training(self):
        for options in ({}, {"make": HOSTS["RMSprop"]}):  # the library's states, and PyTorch's
            with self.subTest(**options):
                engine = start(**options)
                train(engine, 0, 3)
                self.assertIs(engine.save_checkpoint(self.folder, "beside", asynchronous=True), True)
                expected = train(engine, 3, 6), values(engine)
                self.assertEqual(engine.wait_save().state, outrigger.lowlevel.SAVE_DONE)
                engine.load_checkpoint(self.folder, "beside")
                self.assertEqual(train(engine, 3, 6), expected[0])
                self.assertEqual(differing(expected[1], values(engine)), [])

    def test_what_was_written_into_parameters_is_saved(self):
        engine, other = (start(seed, stage=1, **PRECISIONS["bf16"]) for seed in (0, 1))
        with torch.no_grad():
            engine.module.b.weight.fill_(0.5)
        engine.save_checkpoint(self.folder)
        other.load_checkpoint(self.folder)
        self.assertEqual(set(other.read(other.module.b.weight, outrigger.lowlevel.VALUE_MASTER).flatten().tolist()), {0.5})

    def test_a_graph_from_before_a_load_is_stale(self):
        engine = start(network={"norm": False})
        engine.save_checkpoint(self.folder)
        loss = engine(torch.ones(4, 6)).sum()
        engine.load_checkpoint(self.folder)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_who_ends_windows_is_not_loaded(self):
        engine, other = start(gas=2), start(gas=2)
        engine.set_gradient_accumulation_boundary(True)
        engine.save_checkpoint(self.folder)
        other.load_checkpoint(self.folder)
        self.assertFalse(other.is_gradient_accumulation_boundary())


class Parts(Case):
    """What a load takes, by its arguments."""

    def setUp(self):
        super().setUp()
        self.engine = start(**DECAYS["PyTorch's"])
        train(self.engine, 0, 4)
        self.engine.save_checkpoint(self.folder, client_state={"epoch": 3, "best": torch.ones(2), "names": ["a", None]})
        self.saved = values(self.engine)

    def load(self, **options):
        other = start(1, **DECAYS["PyTorch's"])
        fresh = values(other)
        path, state = other.load_checkpoint(self.folder, **options)
        self.assertEqual((path, state["epoch"], state["best"].tolist(), state["names"]),
                         (os.path.join(self.folder, "global_step4"), 3, [1, 1], ["a", None]))
        found = values(other)
        weights = {key for key in found if key[1] in (outrigger.lowlevel.VALUE_MASTER, "shown", "buffer", "published")}
        self.assertEqual([key for key in weights if differing({key: self.saved[key]}, {key: found[key]})], [])
        return {key for key in found.keys() - weights if not differing({key: fresh[key]}, {key: found[key]})}, found

    def test_the_module_only(self):
        as_new, found = self.load(load_module_only=True)
        moments = {key for key in found if key[1] in resuming.STATES[1:]}
        self.assertEqual(as_new, moments | {"counters", "rates", "schedule", "library"})

    def test_without_states_of_the_optimizer(self):
        as_new, found = self.load(load_optimizer_states=False)
        self.assertEqual(found["counters"], self.saved["counters"])
        self.assertEqual(found["schedule"], self.saved["schedule"])
        self.assertIn("rates", as_new)

    def test_without_the_schedule(self):
        as_new, found = self.load(load_lr_scheduler_states=False)
        self.assertIn("schedule", as_new)
        self.assertEqual(found["rates"], self.saved["rates"])

    def test_tags(self):
        checkpoint = outrigger.Checkpoint(self.folder)
        self.assertEqual(checkpoint.tag, "global_step4")
        self.assertEqual(checkpoint.progress["groups"]["default"]["lr"], self.engine.get_lr()[0])  # for who reads no parts
        self.engine.save_checkpoint(self.folder, 12)
        train(self.engine, 4, 5)
        self.engine.save_checkpoint(self.folder, 12)  # replaces it
        path, state = start(1).load_checkpoint(self.folder, 12, load_lr_scheduler_states=False)
        self.assertEqual((path, state), (os.path.join(self.folder, "12"), {}))
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(["12", "global_step4", "latest", *hidden(self.folder)]))

    def test_nothing_is_there(self):
        with self.assertLogs("outrigger.torch", "WARNING"):
            self.assertEqual(self.engine.load_checkpoint(os.path.join(self.folder, "empty")), (None, None))
        with self.assertRaisesRegex(outrigger.OutriggerError, "E_NOT_FOUND"):
            self.engine.load_checkpoint(self.folder, "unheard_of")

    def test_another_programs_checkpoint(self):
        self.engine._library.set_group_value("lr", 0.5)
        self.engine._library.save(self.folder, "bare")
        other = start(1)
        train(other, 0, 1)
        with self.assertRaisesRegex(ValueError, r"buffers are not the checkpoint's: it has no \['calls', 'norm.num_batches_tracked'"):
            other.load_checkpoint(self.folder, "bare")
        with self.assertLogs("outrigger.torch", "WARNING"):
            path, state = other.load_checkpoint(self.folder, "bare", load_module_strict=False)
        self.assertEqual(state, {})
        self.assertEqual((other.get_lr(), other._library.get_group_value("lr")), ([1e-2], 1e-2))  # the script's

    def test_extra_states(self):
        class Counts(torch.nn.Module):
            seen = 0

            def get_extra_state(self):
                return {"seen": self.seen}

            def set_extra_state(self, state):
                self.seen = state["seen"]

            def forward(self, x):
                return x

        engines = [start(network={"norm": False}) for _ in range(2)]
        for engine in engines:
            engine.module.norm = Counts()
        engines[0].module.norm.seen = 5
        engines[0].save_checkpoint(self.folder)
        engines[1].load_checkpoint(self.folder)
        self.assertEqual(engines[1].module.norm.seen, 5)


def hidden(folder):
    return [name for name in os.listdir(folder) if name.startswith(".")]


class Whole(Case):
    """A state_dict without an engine."""

    def test_is_the_modules(self):
        masters = ({"outrigger": {"states": {"master": {"format": each}}}} for each in ("split", "bfloat16"))
        for stage, section in itertools.product(range(4), [*PRECISIONS.values(), *({**PRECISIONS["bf16"], **each} for each in masters)]):
            if stage == 0 and "outrigger" in section:
                continue  # no smaller masters there
            with self.subTest(stage=stage, **section):
                engine = start(stage=stage, **section)
                train(engine, 0, 2)
                engine.save_checkpoint(self.folder)
                state = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(self.folder)
                for parameter in engine.parameters_of.ids:
                    name = engine.parameters_of.name_of(parameter)
                    self.assertTrue(torch.equal(state[name], engine.read(parameter, outrigger.lowlevel.VALUE_MASTER)), name)
                if self.comm.rank == 0:
                    self.assertTrue(torch.equal(state["norm.running_var"], engine.module.norm.running_var.float()))
                self.assertEqual({each.dtype for each in state.values()}, {torch.float32, torch.int64})
                resuming.model().load_state_dict(state)  # strict
                exact = zero_to_fp32.load_state_dict_from_zero_checkpoint(resuming.model(3), self.folder, engine_tag(engine))
                self.assertTrue(torch.equal(exact.b.weight, state["b.weight"]))
                trained = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(self.folder, exclude_frozen_parameters=True)
                self.assertEqual(state.keys() - trained.keys(), {"fixed.weight", "fixed.bias"})
                engine.destroy()

    def test_large_and_tied(self):
        module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 33))
        module[1].weight = module[0].weight
        engine, *_ = outrigger.torch.initialize(model=module, config=resuming.config(3, bf16={"enabled": True}), comm=self.comm)
        engine.save_checkpoint(self.folder)
        state = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(self.folder)
        self.assertIs(state["1.weight"], state["0.weight"])
        for name, parameter in engine.module.named_parameters():
            self.assertTrue(torch.equal(state[name], engine.read(parameter, outrigger.lowlevel.VALUE_MASTER)), name)

    def test_wrong_uses(self):
        engine = start()
        engine.save_checkpoint(self.folder)
        with self.assertRaisesRegex(NotImplementedError, "lazy_mode=True is not supported"):
            zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(self.folder, lazy_mode=True)
        with self.assertRaisesRegex(outrigger.OutriggerError, "E_NOT_FOUND"):
            zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(self.folder, "unheard_of")
        self.comm.barrier()
        if self.comm.rank == 0:
            with open(os.path.join(self.folder, "global_step0", "rank-00000.safetensors"), "r+b") as file:
                file.seek(-1, os.SEEK_END)
                file.write(b"?")
            with self.assertRaisesRegex(outrigger.OutriggerError, "E_CORRUPT"):
                zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(self.folder)


class ByAFunction(Case):
    """custom_load_fn: a part of a checkpoint, as the script likes it."""

    def test_what_it_writes_becomes_the_weights(self):
        def some(src, dst):
            dst.load_state_dict({name: each for name, each in src.items() if name.startswith(("a.", "norm."))}, strict=False)
            with outrigger.torch.zero.GatheredParameters([dst.b.weight], modifier_rank=0), torch.no_grad():
                dst.b.weight[:2].copy_(src["b.weight"][:2])

        for stage, (precision, section) in itertools.product(range(4), PRECISIONS.items()):
            if precision == "fp16":
                continue
            with self.subTest(stage=stage, precision=precision):
                saved = start(0, stage=stage, **section)
                train(saved, 0, 2)
                saved.save_checkpoint(self.folder, client_state={"at": 2})
                there = {saved.parameters_of.name_of(each): saved.read(each, outrigger.lowlevel.VALUE_MASTER) for each in saved.parameters_of.ids}
                other = start(1, stage=stage, **section)
                train(other, 0, 1)
                before = {each: other.read(each, outrigger.lowlevel.VALUE_MASTER) for each in other.parameters_of.ids}
                moments = [other.read(each, outrigger.lowlevel.VALUE_EXP_AVG) for each in other.parameters_of.ids if each.requires_grad]
                mean = other.module.norm.running_mean.clone()
                path, state = other.load_checkpoint(self.folder, load_module_only=True, custom_load_fn=some)
                self.assertEqual((path, state, other.global_steps), (os.path.join(self.folder, "global_step2"), {"at": 2}, 1))
                for parameter, own in before.items():
                    name = other.parameters_of.name_of(parameter)
                    expected = own.clone()
                    if name.startswith(("a.", "norm.")):
                        expected = there[name]
                    elif name == "b.weight":
                        expected[:2] = there[name][:2]
                    expected = expected.to(parameter.dtype).float()  # all come by way of the module
                    self.assertTrue(torch.equal(other.read(parameter, outrigger.lowlevel.VALUE_MASTER), expected), name)
                self.assertFalse(torch.equal(other.module.norm.running_mean, mean))
                again = [other.read(each, outrigger.lowlevel.VALUE_EXP_AVG) for each in other.parameters_of.ids if each.requires_grad]
                self.assertTrue(all(map(torch.equal, moments, again)))
                train(other, 1, 2)
                saved.destroy()
                other.destroy()

    def test_a_function_that_fails_fails_on_all_ranks(self):
        engine = start()
        engine.save_checkpoint(self.folder)

        def failing(src, dst):
            if self.comm.rank == self.comm.size - 1:
                raise KeyError("head")

        with self.assertRaisesRegex((KeyError, RuntimeError), "head"):
            engine.load_checkpoint(self.folder, load_module_only=True, custom_load_fn=failing)
        train(engine, 0, 1)


def engine_tag(engine):
    return f"global_step{engine.global_steps}"


class Own:
    pass


class WrongUses(Case):
    def test_what_is_refused(self):
        engine = start()
        for call, text in ((lambda: engine.save_checkpoint(self.folder, save_latest=False), "save_latest=False is not supported"),
                           (lambda: engine.save_checkpoint(self.folder, exclude_frozen_parameters=True), "where parameters are frozen"),
                           (lambda: engine.load_checkpoint(self.folder, custom_load_fn=print), "custom_load_fn is not supported with")):
            with self.assertRaisesRegex(NotImplementedError, text):
                call()
        with self.assertRaisesRegex(ValueError, "save_dir is ''; give a folder"):
            engine.save_checkpoint("")
        with self.assertRaisesRegex(outrigger.OutriggerError, "E_ARGUMENT"):
            engine.save_checkpoint(self.folder, "a/b")
        self.assertEqual([name for name in os.listdir(self.folder) if not name.startswith(".")], [])

    def test_what_could_not_be_read_again(self):
        engine = start()
        for state, name in (({"deep": [1, {"own": Own()}]}, r"client_state\['deep'\]\[1\]\['own'\] is a .*Own"),
                            ({"array": numpy.ones(3)}, r"client_state\['array'\] is a numpy.ndarray"),
                            ({"call": lambda: 1}, r"client_state\['call'\] is a builtins.function"), (Own(), "client_state is a .*Own"),
                            (collections.OrderedDict(a={"b": numpy.ones(3)}), r"client_state\['a'\]\['b'\] is a numpy.ndarray"),
                            ({"a": {Own: 1}}, r"the key <class '.*Own'> of client_state\['a'\] is a builtins.type"),
                            ({"a": collections.defaultdict(int, b=numpy.int64(1))}, r"client_state\['a'\] is a collections.default.*; save a dict of it")):
            with self.subTest(name), self.assertRaisesRegex(TypeError, name):
                engine.save_checkpoint(self.folder, client_state=state)
        engine.save_checkpoint(self.folder, client_state={"number": numpy.float64(0.1), "set": {1, 2}})
        state = engine.load_checkpoint(self.folder)[1]
        self.assertEqual((state["number"], type(state["number"]), state["set"]), (0.1, float, {1, 2}))
        with torch.serialization.safe_globals([Own]):
            engine.save_checkpoint(self.folder, client_state=Own())
            self.assertIsInstance(engine.load_checkpoint(self.folder)[1], Own)

    def test_numbers_of_numpy_become_pythons(self):
        def made(three, half):
            return {"ordered": collections.OrderedDict([(three, half), ("b", [{"c": (three,)}])]), "counter": collections.Counter(a=three), three: half,
                    (three, "d"): {three, half}}

        engine, given = start(), made(numpy.int64(3), numpy.float32(0.5))
        weights = torch.nn.Linear(1, 1).state_dict()
        engine.save_checkpoint(self.folder, client_state={**given, "state_dict": weights})
        found = engine.load_checkpoint(self.folder)[1]
        self.assertEqual(found.pop("state_dict")._metadata, weights._metadata)
        self.assertEqual(repr(found), repr(made(3, 0.5)))
        self.assertEqual(repr(given), repr(made(numpy.int64(3), numpy.float32(0.5))))  # what was given stays

    def test_one_ranks_fault_is_all_ranks(self):
        engine = start()
        last = self.comm.size - 1
        state = {"bad": Own()} if self.comm.rank == last else {}
        kind, text = (TypeError, "client_state") if self.comm.rank == last else (RuntimeError, f"rank {last} failed, and so do all: TypeError")
        with self.assertRaisesRegex(kind, text):
            engine.save_checkpoint(self.folder, client_state=state)
        engine.save_checkpoint(self.folder)

    def test_in_a_window(self):
        engine = start(gas=2)
        engine.save_checkpoint(self.folder)
        x, t = resuming.batch(engine, 0, False)
        engine.backward(torch.nn.functional.mse_loss(engine(x), t))
        for _ in range(2):
            for call in (engine.save_checkpoint, engine.load_checkpoint):
                with self.assertRaisesRegex(RuntimeError, f"{call.__name__}: gradients of this window wait"):
                    call(self.folder)
            engine.step()
            if engine.is_window_empty():
                break
            self.assertEqual(engine.global_steps, 0)
        self.assertEqual(engine.global_steps, 1)
        engine(x)  # a forward alone keeps nothing
        engine.save_checkpoint(self.folder)
        engine.backward(engine(x).sum())
        engine.zero_grad()
        engine.load_checkpoint(self.folder)

    def test_another_module(self):
        engine = start(**DECAYS["PyTorch's"])
        engine.save_checkpoint(self.folder)
        other = start(network={"norm": False})
        before = values(other)
        with self.assertRaisesRegex(ValueError, r"it has no other, and \['norm.num_batches_tracked', .* too many"):
            other.load_checkpoint(self.folder)
        with self.assertRaisesRegex(ValueError, "needs the same parameters here and there, and these are not: norm.bias, norm.weight"):
            other.load_checkpoint(self.folder, load_module_strict=False)
        self.assertEqual(differing(before, values(other)), [])
        wider = start(1, **PRECISIONS["bf16"])
        other.save_checkpoint(self.folder, "less")
        with torch.no_grad():
            wider.module.norm.weight.fill_(0.5)  # which the checkpoint has nothing of
        wider.load_checkpoint(self.folder, "less", load_module_strict=False, load_module_only=True)
        self.assertEqual(set(wider.read(wider.module.norm.weight, outrigger.lowlevel.VALUE_MASTER).tolist()), {0.5})
        other.load_checkpoint(self.folder, "global_step0", load_module_strict=False, load_optimizer_states=False)
        self.assertTrue(torch.equal(values(other)["a.weight", outrigger.lowlevel.VALUE_MASTER],
                                    values(engine)["a.weight", outrigger.lowlevel.VALUE_MASTER]))
        # The same parameters: nothing that strict could mind.
        self.assertIsNotNone(start(1).load_checkpoint(self.folder, "global_step0", load_module_strict=False)[0])

    def test_other_shapes_groups_optimizers_and_schedules(self):
        start().save_checkpoint(self.folder)
        other = start(**DECAYS["PyTorch's"])
        with self.assertRaisesRegex(ValueError, "the checkpoint has no schedule, and this engine has a ExponentialLR"):
            other.load_checkpoint(self.folder)
        other.load_checkpoint(self.folder, load_lr_scheduler_states=False)
        other = start()
        other.module.norm.running_mean = torch.zeros(25)
        with self.assertRaisesRegex(ValueError, r"buffer 'norm.running_mean' has shape \(25,\), in the checkpoint \(24,\)"):
            other.load_checkpoint(self.folder)
        with self.assertRaisesRegex(ValueError, "the checkpoint's optimizer is none of PyTorch's, and this engine's is RMSprop"):
            start(make=HOSTS["RMSprop"]).load_checkpoint(self.folder)
        with self.assertRaisesRegex(ValueError, "the checkpoint has 1 parameter groups, this optimizer 2"):
            start(make=lambda parameters: torch.optim.RMSprop([{"params": [each]} for each in list(parameters)[:2]])).load_checkpoint(self.folder)
        start(make=HOSTS["NAdam"]).save_checkpoint(self.folder, "host")
        with self.assertRaisesRegex(ValueError, "optimizer is NAdam, and this engine's is RMSprop"):
            start(make=HOSTS["RMSprop"]).load_checkpoint(self.folder, "host")
        with self.assertRaisesRegex(outrigger.OutriggerError, "E_NOT_FOUND.*load weights only"):
            start().load_checkpoint(self.folder, "host")

    def test_a_part_of_a_later_release(self):
        engine = start()
        with mock.patch.object(riders, "_VERSION", 99):
            engine.save_checkpoint(self.folder)
        with self.assertRaisesRegex(ValueError, "has version 99; this release reads up to 1"):
            engine.load_checkpoint(self.folder)

    def test_no_code_is_run(self):
        class Evil:
            def __reduce__(self):
                return print, ("run",)

        import io
        file = io.BytesIO()
        torch.save({"version": 1, "client_state": Evil()}, file)
        engine = start()
        engine._library.save(self.folder, "evil", parts={riders.PART: file.getvalue()})
        with self.assertRaisesRegex(Exception, "Weights only load failed"):
            engine.load_checkpoint(self.folder)


if __name__ == "__main__":
    unittest.main()
