# SPDX-License-Identifier: Apache-2.0
"""An engine's module as an object of Python: copies and pickles of it are plain, and a parameter stays what is trained.

    outrigger run -n 2 -- python test_held.py     also in slices on the ranks
"""
import copy
import io
import os
import unittest

import torch
from models import net
from test_gradients import engine_of

import outrigger.torch
from outrigger.torch import zero

SLICES = {"outrigger": {"share_parameters": False}, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}
PRECISIONS = ({}, {"bf16": {"enabled": True}}, {"fp16": {"enabled": True, "initial_scale_power": 4}})


def step(engine):
    loss = engine(torch.ones(4, 6, dtype=engine.compute_dtype)).float().square().mean()
    engine.backward(loss)
    engine.step()


def again(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


def values(module):
    return {name: each.detach().clone() for name, each in module.named_parameters()}


class Copies(unittest.TestCase):
    def plain(self, module, expected):
        """A module with these values, which PyTorch trains and loads by itself."""
        self.assertEqual({type(each) for each in module.parameters()}, {torch.nn.Parameter})
        for name, each in module.named_parameters():
            self.assertTrue(torch.equal(each, expected[name]), name)
        module(torch.ones(2, 6, dtype=module.a.weight.dtype)).float().sum().backward()
        torch.optim.SGD(module.parameters(), 0.1).step()
        self.assertFalse(torch.equal(module.a.weight, expected["a.weight"]))
        module.load_state_dict(expected)

    def test_of_a_module(self):
        cases = [({}, options) for options in PRECISIONS] + [(SLICES, {})]
        for slices, options in cases:
            for take in (copy.deepcopy, lambda module: again(module, weights_only=False)):
                with self.subTest(slices=bool(slices), **options):
                    engine = engine_of(net(), 3 if slices else 1, 1, {**options, **slices})
                    handle = engine.module.b.register_forward_hook(print_nothing)
                    with zero.GatheredParameters(engine.module.parameters()):
                        expected = values(engine.module)
                        taken = take(engine.module)
                        self.plain(taken, expected)
                    step(engine)
                    with zero.GatheredParameters(engine.module.parameters()):
                        after = values(engine.module)
                    # Between a backward and its step, and on one rank only: it is no business of the engine's.
                    engine(torch.ones(4, 6, dtype=engine.compute_dtype)).float().sum().backward()
                    if engine.global_rank == 0:
                        taken.load_state_dict(expected)
                    engine.step()
                    with zero.GatheredParameters(engine.module.parameters()):
                        self.assertFalse(torch.equal(engine.module.a.weight, after["a.weight"]))
                    handle.remove()
                    engine.destroy()

    def test_of_parameters(self):
        for options in PRECISIONS:
            model = net()
            model.c.requires_grad_(False)
            engine = engine_of(model, 2, 1, options)
            engine.module.a.weight.note = "of the user"
            loaded = again(dict(engine.module.named_parameters()))  # weights_only
            for name, each in engine.module.named_parameters():
                self.assertTrue(torch.equal(each, loaded[name]), name)
                self.assertEqual((type(loaded[name]), loaded[name].requires_grad), (torch.nn.Parameter, each.requires_grad))
            self.assertEqual(loaded["a.weight"].note, "of the user")

    def test_of_a_parameter_of_another_class(self):
        class Own(torch.nn.Parameter):
            def __new__(cls, *, size):
                return super().__new__(cls, torch.ones(size))

        model = net()
        model.a.own = Own(size=3)
        taken = copy.deepcopy(engine_of(model, 1, 1, {}).module)
        self.assertIs(type(taken.a.own), Own)
        self.assertEqual(taken.a.own.tolist(), [1, 1, 1])

    def test_of_a_parameter_with_its_own_way(self):
        class Tagged(torch.nn.Parameter):
            def __new__(cls, data, tag="none", requires_grad=True):
                result = super().__new__(cls, data, requires_grad)
                result.tag = tag
                return result

            def __deepcopy__(self, memo):
                return Tagged(self.data.clone(), self.tag, self.requires_grad)

        model = net()
        model.a.weight = Tagged(model.a.weight.data, "of the user")
        taken = copy.deepcopy(engine_of(model, 1, 1, {}).module)
        self.assertEqual((type(taken.a.weight), taken.a.weight.tag), (Tagged, "of the user"))
        taken.a.weight.data = torch.zeros(1)

    def test_shallow(self):
        engine = engine_of(net(), 1, 1, {})
        taken = copy.copy(engine.module.a)
        with self.assertRaisesRegex(RuntimeError, "is a parameter of an engine"):
            taken.weight = torch.nn.Parameter(torch.ones(16, 6))  # its parameters are the module's
        taken._parameters = dict(taken._parameters)
        taken.weight = torch.nn.Parameter(torch.ones(16, 6))
        self.assertFalse(torch.equal(engine.module.a.weight, taken.weight))

    def test_of_what_zero_init_made(self):
        with zero.Init():
            model = torch.nn.Linear(256, 256)
        with zero.GatheredParameters(model.weight):
            loaded = again(model, weights_only=False)
            self.assertTrue(torch.equal(loaded.weight, model.weight))
            self.assertIs(type(loaded.weight), torch.nn.Parameter)


def print_nothing(module, inputs, output):
    pass


class Replaced(unittest.TestCase):
    def test_data_of_another_kind_is_refused(self):
        engine = engine_of(net(), 1, 1, {"bf16": {"enabled": True}})
        for new in (torch.ones(16, 6), torch.ones(6, 16, dtype=torch.bfloat16), torch.ones(16, 6, dtype=torch.bfloat16)):
            with self.assertRaisesRegex(RuntimeError, r"'a.weight'.data was set .*engine.destroy\(\)"):
                engine.module.a.weight.data = new
        for call in (engine.module.float, engine.float, engine.module.double):
            with self.assertRaisesRegex(RuntimeError, "in its shape and dtype"):
                call()
        engine.module.to("cpu").bfloat16()  # is so already
        step(engine)
        engine.destroy()
        engine.module.float()
        engine.module.a.weight.data = torch.zeros(1)

    def test_memory_of_other_processes_is_refused(self):
        engine = engine_of(net(), 1, 1, {})
        with self.assertRaisesRegex(RuntimeError, "stays in its engine's memory"):
            engine.module.share_memory()
        engine.destroy()
        engine.module.share_memory()

    def test_frozen_parameters_that_are_not_floating(self):
        """Quantized weights, for example."""
        for slices in ({}, SLICES):
            with zero.Init():
                model = net()
                model.a.packed = torch.nn.Parameter(torch.arange(1 << 17, dtype=torch.int8), requires_grad=False)
            engine = engine_of(model, 3, 1, slices)
            step(engine)
            self.assertTrue(torch.equal(engine.module.a.packed, torch.arange(1 << 17, dtype=torch.int8)))
            self.assertEqual(len(engine.parameters_of.ids), 6)
            engine.destroy()
        model.a.phase = torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64))
        with self.assertRaisesRegex(outrigger.OutriggerError, 'value of "a.phase" has dtype complex64; legal are float32'):
            engine_of(model, 3, 1, {})

    def test_another_parameter_is_refused(self):
        engine = engine_of(net(), 1, 1, {})
        with self.assertRaisesRegex(RuntimeError, "'weight' of a Linear is a parameter of an engine"):
            engine.module.a.weight = torch.nn.Parameter(torch.ones(16, 6))
        with self.assertRaisesRegex(RuntimeError, "is a parameter of an engine"):
            engine.module.load_state_dict(net(1).state_dict(), assign=True)
        engine.module.a.weight = engine.module.a.weight
        engine.destroy()
        engine.module.a.weight = torch.nn.Parameter(torch.ones(16, 6))


if __name__ == "__main__":
    if "WORLD_SIZE" in os.environ:
        outrigger.torch.init_distributed()
    unittest.main()
