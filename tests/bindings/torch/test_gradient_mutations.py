# SPDX-License-Identifier: Apache-2.0
"""Faults put into each place where a factor is applied, dropped once and applied twice: the tests of gradients by value see
every one. What is not seen here would not be seen there."""
import itertools
import os
import unittest
from unittest import mock

import test_borders
import test_grad_attribute
import torch
from test_gradients import FP16_KINDS, Differs, each_alone

from outrigger.torch import backward, calls, direct, factors, gradients, inside, outer, trees
from outrigger.torch.attributes import Attributes
from outrigger.torch.config import Settings
from outrigger.torch.forward_hooks import ForwardHooks
from outrigger.torch.gradients import Gradients
from outrigger.torch.passes import Passes


def border(kind, power):
    """Gradients that pass a border are multiplied by the engine's factor once more (power 1), or divided by it."""
    original = kind.backward

    def wrong(ctx, *grads):
        result = original(ctx, *grads)
        factor = ctx.engine.open_pass()**power
        return tuple(None if each is None else each * factor for each in result)
    return mock.patch.object(kind, "backward", staticmethod(wrong))


def times(place, name, power, engine_of=lambda first: first):
    """What a function returns is wrong by the factor of the engine that is its first argument."""
    original = getattr(place, name)

    def wrong(engine, *more, **options):
        result = original(engine, *more, **options)
        return None if result is None else result * engine_of(engine).open_pass()**power
    return mock.patch.object(place, name, wrong)


def derivative(kind, power):
    """The derivative of a border's own multiplication."""
    original = kind.backward

    def wrong(ctx, grad):
        return (original(ctx, grad)[0] * ctx.factor**power, *original(ctx, grad)[1:])
    return mock.patch.object(kind, "backward", staticmethod(wrong))


def handed_over(power):
    original = Passes._hand_over
    return mock.patch.object(Passes, "_hand_over", lambda self, parameter, grad: original(self, parameter, grad * self._scale**power))


def assigned(power):
    original = Gradients.assigned

    def wrong(self):
        factor = (self._engine._scale * self._engine.gradient_accumulation_steps())**power
        return [(each, value * factor) for each, value in original(self)]
    return mock.patch.object(Gradients, "assigned", wrong)


def carried(power):
    original = Gradients.add_carried

    def wrong(self):
        for part in self._carried.values():
            part.mul_(0 if power < 0 else 2)
        original(self)
    return mock.patch.object(Gradients, "add_carried", wrong)


def divided_twice():
    """By the accumulation steps on the way, and at the step."""
    original = Settings.__init__

    def wrong(self, config):
        original(self, config)
        config["outrigger"].pop("accumulation_divisor", None)
    return mock.patch.object(Settings, "__init__", wrong), mock.patch.object(
        Passes, "_hand_over", lambda self, parameter, grad, original=Passes._hand_over: original(
            self, parameter, grad / self.gradient_accumulation_steps()))


def no_extra():
    return mock.patch.object(Passes, "_run_backward", lambda self, *arguments, original=Passes._run_backward, **options: (
        setattr(self, "_extra", 1), original(self, *arguments, **options)))


MUTATIONS = {f"{name}, {how}": (lambda make=make, power=power: make(power))
             for (name, make), (how, power) in itertools.product({
                 "outputs": lambda power: border(backward._Outputs, power),
                 "inputs": lambda power: border(backward._Inputs, -power),
                 "a parameter outside": lambda power: border(backward._Inner, power),
                 "second order": lambda power: derivative(factors._Scale, power),
                 "third order": lambda power: derivative(factors._Same, power),
                 "what leaves a parameter": lambda power: times(backward, "leaves", -power),
                 "what comes back to it": lambda power: times(backward, "enters", power),
                 "the way to the library": handed_over,
                 "assigned": assigned,
                 "read and carried on": carried}.items(), {"dropped": -1, "applied twice": 1}.items())}
MUTATIONS |= {
    "an attribute of the module": lambda: mock.patch.object(Attributes, "hand_out", lambda self, is_of_call: None),
    "a tensor that a hook caught": lambda: mock.patch.object(ForwardHooks, "wrap", lambda self, module: None),
    "a tensor that a closure caught": lambda: mock.patch.object(inside, "engine_of_node", lambda node: None),
    "float16 outside without a scale": lambda: mock.patch.object(outer, "_MOST", 1),
    "float16 outside, scaled and left so": lambda: mock.patch.object(
        outer._Outer, "_correct", lambda self, node, carried, original=outer._Outer._correct: original(self, node, 1)),
    "scale_wrt_gas": no_extra,
    "a hook on a parameter as it was": lambda: mock.patch.object(gradients.Scaling, "register_hook", torch.Tensor.register_hook),
    "inside taken for outside": lambda: mock.patch.object(inside, "is_inside", lambda engine: False),
    "outside taken for inside": lambda: mock.patch.object(inside, "is_inside", lambda engine: True),
    "divided twice": divided_twice,
}
BORDERS = {  # seen by test_borders.py
    "a call in another engine's call": lambda: mock.patch.object(inside, "around", lambda engine: None),
    "a tensor given in an attribute": lambda: mock.patch.object(Attributes, "take_in", lambda self, modules, is_of_call: []),
    "a tensor given there and kept elsewhere": lambda: mock.patch.object(Attributes, "give_back", lambda self: [
        place.set(own) for place, own, _ in self._in]),
    "outputs that share memory": lambda: mock.patch.object(backward, "_bases", lambda found: {}),
    "tensors in data classes": lambda: mock.patch.object(trees, "_fields", lambda value: {}),
    "leaves of a backward": lambda: mock.patch.object(direct, "_UNTOUCHED", direct._UNTOUCHED - {torch.autograd.backward}),
    "a gradient edge": lambda: mock.patch.object(direct, "_EDGES", set()),
    "computed weights": lambda: mock.patch.object(calls.Calls, "_require_own_weights", lambda self, module: None),
    "an input that is written into": lambda: mock.patch.object(backward, "require_unwritten", lambda given: None),
    "an engine in a reentrant checkpoint": lambda: mock.patch.object(backward, "in_reentrant_checkpoint", lambda: False),
    "attributes while a backward computes again": lambda: mock.patch.object(Attributes, "turn_in", lambda self: False),
    "what a forward hook wrote": lambda: mock.patch.object(backward, "is_written", lambda given: False),
    "a retained gradient inside": lambda: mock.patch.object(backward, "_retain", lambda engine, inner, outer: None),
    "hooks on what a forward hook saw": lambda: mock.patch.object(backward, "is_hooked", lambda value: False),
}
SMALL = ("loss", "engine")
EVERY = int(os.environ.get("OTR_MUTATIONS_EVERY", "1"))  # one of so many; the soak makes them all


def everything():
    """The tests by value, those first that have a factor."""
    yield from each_alone("float32, scaled", 2, SMALL)
    yield from test_grad_attribute.checks()
    yield from each_alone(FP16_KINDS[0], 2, SMALL)
    yield from each_alone("float32", 2, SMALL)


def borders():
    result = unittest.TestResult()
    result.failfast = True
    unittest.defaultTestLoader.loadTestsFromTestCase(test_borders.Borders).run(result)
    for test, text in result.failures + result.errors:
        raise AssertionError(f"{test}: {text.splitlines()[-1]}")


def seen(checks=everything):
    for name, run in checks():
        try:
            run()
        except (Differs, RuntimeError, AssertionError) as error:
            return name, error
    return None


class Mutations(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def test_each_is_seen(self):
        self.see(MUTATIONS, everything)

    def test_each_at_the_borders_is_seen(self):
        self.see(BORDERS, lambda: [("borders", borders)])

    def see(self, mutations, checks):
        for name, make in list(mutations.items())[::EVERY]:
            with self.subTest(name):
                patches = make()
                patches = patches if isinstance(patches, tuple) else (patches,)
                for patch in patches:
                    patch.start()
                try:
                    found = seen(checks)
                finally:
                    for patch in patches:
                        patch.stop()
                self.assertIsNotNone(found, f"{name}: no test by value sees it")
                print(f"{name}: {found[1]}".split("\n")[0][:160])

    def test_none_is_seen_where_there_is_none(self):
        self.assertIsNone(seen())


if __name__ == "__main__":
    unittest.main()
