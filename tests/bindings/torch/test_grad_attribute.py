# SPDX-License-Identifier: Apache-2.0
"""`parameter.grad` set, read and taken away, at every place of a window, against plain PyTorch by value; the rule is SGD."""
import copy
import unittest
import warnings

import torch
from models import net
from test_gradients import CONFIGURED, LR, Differs, engine_of

import outrigger.torch

FP16 = {"fp16": {"enabled": True, "loss_scale": 2**8}}
KINDS = {"float32": ({}, 1e-5), "float32, scaled": (CONFIGURED, 1e-5), "fp16": (FP16, 2e-2)}


def data(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, 6, generator=generator), torch.randn(8, 4, generator=generator)


def loss_of(model, seed):
    x, t = data(seed)
    dtype = getattr(model, "compute_dtype", torch.float32)
    return torch.nn.functional.mse_loss(model(x.to(dtype)).float(), t)


class Pair:
    """One program on a plain model and on an engine: program(side), where side is the Pair's `plain` or `ours`."""

    def __init__(self, kind="float32", gas=1, stage=2, **more):
        options, self.bound = KINDS[kind]
        model = net()
        for each in model.parameters():
            each.data = each.data.half().float()
        self.engine = engine_of(copy.deepcopy(model), stage, gas, {**options, **more})
        self.model, self.gas = model, gas
        self.optimizer = torch.optim.SGD(model.parameters(), LR)

    def sides(self):
        return self.model, self.engine

    def parameters(self, side):
        return list((side.module if side is self.engine else side).parameters())

    def both(self, program):
        for side in self.sides():
            program(side)

    def step(self):
        """At the window's end."""
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.engine.step()
        self.compare()

    def compare(self):
        for one, other in zip(self.parameters(self.engine), self.model.parameters()):
            master = outrigger.torch.utils.safe_get_full_fp32_param(one)
            if not (master - other).norm() <= self.bound * LR * other.norm():
                raise Differs(f"weights differ by {(master - other).norm():.3g} of {other.norm():.3g}")

    def compare_gradients(self):
        for one, other in zip(self.parameters(self.engine), self.model.parameters()):
            if (one.grad is None) != (other.grad is None):
                raise Differs(f"{one.grad} and {other.grad}")
            if one.grad is not None and not (one.grad - other.grad).norm() <= self.bound * other.grad.norm() + 1e-9:
                raise Differs(f"gradients differ by {(one.grad - other.grad).norm():.3g} of {other.grad.norm():.3g}")


def set_before(pair):
    """Set by hand, with no backward, and with one."""
    for also_backward in (False, True, False):
        def program(side):
            for index, each in enumerate(pair.parameters(side)):
                each.grad = torch.full(each.shape, 0.01 * (index + 1), dtype=torch.float32)
            pair.parameters(side)[0].grad.mul_(3)
            pair.parameters(side)[1].grad = None
            if also_backward:  # noqa: B023
                loss_of(side, 1).backward()
        pair.both(program)
        pair.compare_gradients()
        pair.step()


def read_between(pair):
    """Read, changed and assigned, and then another backward."""
    def program(side):
        loss_of(side, 1).backward()
        torch.nn.utils.clip_grad_norm_(pair.parameters(side), 0.05)
        pair.parameters(side)[0].grad.add_(0.01)
        loss_of(side, 2).backward()
        pair.parameters(side)[2].grad = torch.ones_like(pair.parameters(side)[2].grad)
        loss_of(side, 3).backward()
    for _ in range(2):
        pair.both(program)
        pair.compare_gradients()
        pair.step()


def read_between_in_a_window(pair):
    for window in range(2):
        for micro in range(pair.gas):
            seed = 10 * window + micro
            (loss_of(pair.model, seed) / pair.gas).backward()
            loss_of(pair.engine, seed).backward()
            if micro < pair.gas - 1:
                pair.engine.step()
        pair.compare_gradients()
        (loss_of(pair.model, 99) / pair.gas).backward()
        loss_of(pair.engine, 99).backward()
        pair.compare_gradients()
        pair.step()


def taken_away(pair):
    """None: the parameter is left alone, whatever the others do."""
    def program(side):
        loss_of(side, 1).backward()
        pair.parameters(side)[0].grad = None
        del pair.parameters(side)[3].grad
    pair.both(program)
    pair.compare_gradients()
    pair.step()

    def again(side):
        loss_of(side, 2).backward()
        for each in pair.parameters(side):
            each.grad = None
        loss_of(side, 3).backward()
        pair.parameters(side)[1].grad = None
    pair.both(again)
    pair.compare_gradients()
    pair.step()


def divided_by_the_caller(pair):
    """scale_wrt_gas=False; another engine under the same loss is not concerned."""
    other, reference = engine_of(net(5), 1, 2, {}), net(5)
    for micro in range(pair.gas):
        x, _ = data(micro)
        for one, two in ((pair.model, reference), (pair.engine, other)):
            y = (one(x.to(getattr(one, "compute_dtype", x.dtype))).float() * two(x)).square().mean() / pair.gas
            if one is pair.model:
                y.backward()
            else:
                returned = pair.engine.backward(y, scale_wrt_gas=False)
                if returned != y.detach():
                    raise Differs(f"the loss {y} came back as {returned}")
        if micro < pair.gas - 1:
            pair.engine.step()
        if micro == 1:
            for mine, true in zip(other.module.parameters(), reference.parameters()):
                if not (mine.grad - true.grad / 2).norm() <= pair.bound * true.grad.norm():
                    raise Differs(f"the other engine's gradient is {mine.grad}")
            torch.optim.SGD(reference.parameters(), LR / 2).step()
            reference.zero_grad()
        other.step()
    pair.compare_gradients()
    pair.step()


# name: (check, engines to check it with)
ALONE = [(kind, 1) for kind in KINDS]
WINDOWS = [(kind, gas) for kind in KINDS for gas in (2, 3)]
CHECKS = {"set before": (set_before, [*ALONE, ("float32", 1)]), "read between": (read_between, ALONE), "taken away": (taken_away, ALONE),
          "read in a window": (read_between_in_a_window, WINDOWS), "divided by the caller": (divided_by_the_caller, WINDOWS)}


def checks():
    for name, (check, kinds) in CHECKS.items():
        for number, (kind, gas) in enumerate(kinds):
            yield f"{name}, {kind}, accumulation {gas}", lambda check=check, kind=kind, gas=gas, stage=number % 4: check(Pair(kind, gas, stage))


class Values(unittest.TestCase):
    def test_values(self):
        for name, run in checks():
            with self.subTest(name):
                run()

    def test_a_step_without_gradients_changes_nothing(self):
        pair = Pair()
        for each in pair.parameters(pair.engine):
            each.grad = torch.ones_like(each)
        pair.engine.zero_grad()
        pair.engine.step()
        pair.compare()


class WrongUse(unittest.TestCase):
    def test_set_inside_a_window(self):
        engine = engine_of(net(), 2, 2, {})
        loss_of(engine, 0).backward()
        for value in (torch.zeros(16, 6), None):
            with self.assertRaisesRegex(RuntimeError, "'a.weight'.grad was assigned inside an accumulation window"):
                engine.module.a.weight.grad = value

    def test_a_graph_through_grad(self):
        engine = engine_of(net(), 2, 1, {})
        warnings.filterwarnings("ignore", message="Using backward.. with create_graph=True")  # PyTorch's own
        loss_of(engine, 0).backward(create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "cannot be differentiated; take it by torch.autograd.grad"):
            _ = engine.module.a.weight.grad
        engine.step()
        loss_of(engine, 0).backward()
        self.assertIsNotNone(engine.module.a.weight.grad)

    def test_assigned_while_a_backward_runs(self):
        engine = engine_of(net(), 2, 1, {})
        y = engine(data(0)[0])
        weight = engine.module.a.weight

        def change(grad):
            self.assertIsNone(weight.grad)
            weight.grad = torch.zeros_like(weight)
        y.register_hook(change)
        with self.assertRaisesRegex(RuntimeError, "assigned while a backward runs"):
            y.sum().backward()

    def test_another_backward_where_steps_are_counted(self):
        engine = engine_of(net(), 2, 1, {"outrigger": {"accumulation_divisor": "counted"}})
        loss_of(engine, 0).backward()
        self.assertIsNotNone(engine.module.a.weight.grad)
        with self.assertRaisesRegex(RuntimeError, "call step\\(\\) first"):
            loss_of(engine, 0).backward()

    def test_float16_beside_other_dtypes_outside(self):
        class Split(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.half(), x * 1

            @staticmethod
            def backward(ctx, half, full):
                return half.float() + full
        engine = engine_of(net(), 2, 1, FP16)
        half, full = Split.apply(engine(data(0)[0].half()))
        with self.assertRaisesRegex(RuntimeError, "outputs of float16 and of another dtype"):
            engine.backward(half.float().sum() + full.sum())

    def test_a_reentrant_checkpoint_outside(self):
        engine = engine_of(net(), 2, 1, FP16)
        weight, x = engine.module.a.weight, torch.ones((), requires_grad=True)
        with self.assertRaisesRegex(RuntimeError, "use_reentrant=False"):
            torch.utils.checkpoint.checkpoint(lambda y: (weight * y).sum(), x, use_reentrant=True)
        torch.utils.checkpoint.checkpoint(lambda y: (weight * y).sum(), x, use_reentrant=False).backward()
        self.assertLess((weight.grad - 1).abs().max(), 1e-3)
        with self.assertRaisesRegex(RuntimeError, "leaf Variable that requires grad is being used in an in-place"):
            weight.add_(1)


class Unused(unittest.TestCase):
    def test_refused_where_the_configuration_says_so(self):
        for ignore in (True, False):
            model = net()
            model.extra = torch.nn.Parameter(torch.ones(3))
            config = {"zero_optimization": {"stage": 2, "ignore_unused_parameters": ignore},
                      "optimizer": {"type": "SGD", "params": {"lr": LR}}}
            engine = engine_of(model, 2, 1, config)
            loss_of(engine, 0).backward()
            if ignore:
                engine.step()
                continue
            with self.assertRaisesRegex(RuntimeError, "no rank gave a gradient to 'extra'"):
                engine.step()
            engine.zero_grad()
            (loss_of(engine, 0) + engine.module.extra.sum()).backward()
            engine.step()
            self.assertEqual(engine.global_steps, 1)


if __name__ == "__main__":
    unittest.main()
