# SPDX-License-Identifier: Apache-2.0
"""Every form of backward that PyTorch users write, against plain PyTorch."""
import copy
import unittest

import torch
from models import adamw, config, engine_of, furthest, master_of, net, solo
from torch.utils.checkpoint import checkpoint

import outrigger.torch

BOUND = 2e-6  # of float32 parameters near 1 after a few steps at lr 1e-2


def data(step, outputs=4):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, 6, generator=generator), torch.randn(8, outputs, generator=generator)


def train(test, model, engine, optimizer, steps):
    """Both by loss.backward() on the same data; then they have the same weights."""
    for step in steps:
        x, t = data(step)
        for each, outer in ((model, optimizer), (engine, engine)):
            torch.nn.functional.mse_loss(each(x), t).backward()
            outer.step()
            outer.zero_grad()
    test.assertLess(furthest(model, engine), BOUND)


def run_backward(how, loss, encoder, head):
    if how == "loss":
        loss.backward()
    elif how == "scale":
        encoder.scale(loss).backward()
    else:
        {"engine": head, "first": encoder}[how].backward(loss)


class Forms(unittest.TestCase):
    def test_two_models_under_one_loss(self):
        first, second = net(1), net(2)
        engines = engine_of(first, stage=1), engine_of(second, stage=3, gas=1)
        optimizers = adamw(first), adamw(second)
        for step in range(4):
            x, y = data(step)
            (first(x) * second(y[:, :1] * x)).square().mean().backward()
            (engines[0](x) * engines[1](y[:, :1] * x)).square().mean().backward()
            for each in (*optimizers, *engines):
                each.step()
                each.zero_grad()
        self.assertLess(furthest(first, engines[0]), BOUND)
        self.assertLess(furthest(second, engines[1]), BOUND)

    def test_a_gan(self):
        """The generator's backward leaves gradients in the discriminator, which its next zero_grad forgets."""
        models = net(1, outputs=6), net(2, outputs=1)
        engines = [engine_of(model, stage=2) for model in models]
        optimizers = [adamw(model) for model in models]

        def train(generator, discriminator, generator_step, discriminator_step, noise, real):
            discriminator_step.zero_grad()
            (discriminator(real) - discriminator(generator(noise).detach())).mean().backward()
            discriminator_step.step()
            generator_step.zero_grad()
            discriminator(generator(noise)).mean().backward()
            generator_step.step()

        for step in range(4):
            real, noise = data(step, outputs=6)
            train(*models, *optimizers, noise, real)
            train(*engines, *engines, noise, real)
        for model, engine in zip(models, engines):
            self.assertLess(furthest(model, engine), BOUND)
            self.assertEqual((engine.global_steps, engine.skipped_steps), (4, 0))

    def test_a_chain_with_other_factors(self):
        """Accumulation and loss scales of two engines in a chain, each applied once, whichever way backward is called."""
        fp16 = {"fp16": {"enabled": True, "loss_scale": 256}}
        for first_gas, second_gas, precision, how in ((2, 2, {}, "loss"), (2, 4, {}, "engine"), (4, 2, {}, "scale"),
                                                      (2, 2, fp16, "loss"), (2, 2, fp16, "engine"), (2, 2, fp16, "first")):
            with self.subTest(first=first_gas, second=second_gas, precision=precision, how=how):
                first, second = net(1, outputs=6), net(2)
                encoder, head = engine_of(first, stage=2, gas=first_gas), engine_of(second, stage=1, gas=second_gas, **precision)
                optimizers = adamw(first), adamw(second)
                for micro in range(8):
                    x, t = data(micro)
                    # Half of the gradient comes by another way than through the head.
                    hidden = first(x)
                    (torch.nn.functional.mse_loss(second(hidden), t) + hidden.mean()).backward()
                    hidden = encoder(x)
                    loss = torch.nn.functional.mse_loss(head(hidden).float(), t) + hidden.mean()
                    run_backward(how, loss, encoder, head)
                    for model, engine, optimizer, gas in ((first, encoder, optimizers[0], first_gas),
                                                          (second, head, optimizers[1], second_gas)):
                        engine.step()
                        if (micro + 1) % gas == 0:
                            for each in model.parameters():
                                each.grad /= gas
                            optimizer.step()
                            optimizer.zero_grad()
                bound = 2e-3 if precision else BOUND
                self.assertLess(furthest(first, encoder), bound)
                self.assertLess(furthest(second, head), bound)

    def test_gradients_of_inputs_are_unscaled(self):
        model, x = net(), data(0)[0]
        weight = torch.linspace(-1, 1, 32).view(8, 4)
        for precision, bound in (({}, 1e-6), ({"fp16": {"enabled": True, "loss_scale": 512}}, 2e-3)):
            engine = engine_of(model, gas=4, **precision)
            mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
            model(theirs).backward(weight)
            engine(mine).backward(weight)
            self.assertLess((mine.grad - theirs.grad).abs().max().item(), bound)

    def test_windows_that_the_caller_counts(self):
        """managed_gradient_accumulation false: backward as often as one likes, step ends the window."""
        model = net()
        engine, optimizer = engine_of(model, gas=3, managed_gradient_accumulation=False), adamw(model)
        for step in range(3):
            for micro in range(3):
                x, t = data(10 * step + micro)
                (torch.nn.functional.mse_loss(model(x), t) / 3).backward()
                engine.backward(torch.nn.functional.mse_loss(engine(x), t))
            engine.step()
            optimizer.step()
            optimizer.zero_grad()
        self.assertLess(furthest(model, engine), BOUND)
        self.assertEqual(engine.global_steps, 3)
        with self.assertRaisesRegex(RuntimeError, "every step\\(\\) ends its window"):
            engine.set_gradient_accumulation_boundary(False)

    def test_windows_that_accelerate_counts(self):
        """The boundary is set before each backward, and step is called at it only."""
        model = net()
        engine, optimizer = engine_of(model, gas=2), adamw(model)
        for step in range(3):
            for micro in range(2):
                x, t = data(10 * step + micro)
                (torch.nn.functional.mse_loss(model(x), t) / 2).backward()
                engine.set_gradient_accumulation_boundary(is_boundary=micro == 1)
                engine.backward(torch.nn.functional.mse_loss(engine(x), t))
                if micro == 1:
                    engine.step()
            optimizer.step()
            optimizer.zero_grad()
        self.assertLess(furthest(model, engine), BOUND)

    def test_two_backwards_before_a_step_add(self):
        model = net()
        engine, optimizer = engine_of(model), adamw(model)
        for step in range(3):
            x, t = data(step)
            for each, outer in ((model, optimizer), (engine, engine)):
                y = each(x)
                (y * t).mean().backward(retain_graph=True)
                y.square().mean().backward()
                outer.step()
                outer.zero_grad()
        self.assertLess(furthest(model, engine), BOUND)

    def test_checkpointing_of_both_kinds(self):
        for reentrant in (True, False):
            class Checkpointed(torch.nn.Module):
                def __init__(self, inner, reentrant=reentrant):
                    super().__init__()
                    self.inner, self.reentrant = inner, reentrant

                def forward(self, x):
                    return checkpoint(self.inner.c, torch.tanh(checkpoint(self.inner.b, torch.tanh(self.inner.a(x)),
                                                                          use_reentrant=self.reentrant)), use_reentrant=self.reentrant)
            with self.subTest(reentrant=reentrant):
                model = Checkpointed(net())
                engine, optimizer = engine_of(model, stage=3), adamw(model)
                train(self, model, engine, optimizer, range(3))

    def test_tied_frozen_and_unused_parameters(self):
        class Odd(torch.nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.first = torch.nn.Linear(6, 6)
                self.tied = torch.nn.Linear(6, 6)
                self.tied.weight = self.first.weight
                self.frozen = torch.nn.Linear(6, 4).requires_grad_(False)
                self.unused = torch.nn.Parameter(torch.ones(3))

            def forward(self, x):
                return self.frozen(torch.tanh(self.tied(torch.tanh(self.first(self.first(x))))))
        model = Odd()
        engine = engine_of(model, stage=2)
        optimizer = adamw(model)
        train(self, model, engine, optimizer, range(3))
        self.assertIs(engine.module.tied.weight, engine.module.first.weight)

    def test_frozen_for_a_while(self):
        model = net()
        engine, optimizer = engine_of(model), adamw(model)
        for step in range(4):
            for each in (model, engine.module):
                each.b.requires_grad_(step % 2 == 0)
            train(self, model, engine, optimizer, [step])

    def test_containers_of_outputs(self):
        class Many(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = net()

            def forward(self, x, *, scale):
                y = self.inner(x["value"][0]) * scale
                return {"y": y, "more": [y.detach(), (y + 1, "text")], "count": 3}
        engine = engine_of(Many(), gas=2)
        result = engine({"value": (data(0)[0],)}, scale=2.0)
        self.assertEqual((result["count"], result["more"][1][1]), (3, "text"))
        self.assertFalse(result["more"][0].requires_grad)
        (result["y"].sum() + result["more"][1][0].sum()).backward()
        engine.step()


class Gradients(unittest.TestCase):
    def train(self, edit, how=lambda engine, loss: loss.backward(), gas=1, **options):
        """Plain PyTorch and an engine, each with its gradients edited by the same code before the step."""
        model = net()
        engine, optimizer = engine_of(model, gas=gas, **options), adamw(model)
        for step in range(3):
            for micro in range(gas):
                x, t = data(10 * step + micro)
                (torch.nn.functional.mse_loss(model(x), t) / gas).backward()
                how(engine, torch.nn.functional.mse_loss(engine(x), t))
                if micro == gas - 1:
                    self.assertAlmostEqual(float(edit(model)), float(edit(engine.module)), delta=1e-5)
                engine.step()
            optimizer.step()
            optimizer.zero_grad()
        self.assertLess(furthest(model, engine), BOUND)
        self.assertIsNone(engine.module.a.weight.grad)

    def test_clipped_by_the_caller(self):
        for options in ({}, {"gas": 3}, {"stage": 3}, {"how": lambda engine, loss: engine.backward(loss)}):
            with self.subTest(**options):
                self.train(lambda model: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05), **options)

    def test_edited_replaced_and_taken_away(self):
        def edit(model):
            model.a.weight.grad.mul_(0.5).add_(0.01)
            model.b.weight.grad = model.b.weight.grad.sign()
            model.c.bias.grad = torch.zeros(4)
            return sum(each.grad.square().sum() for each in model.parameters())
        self.train(edit)

    def test_before_they_are_complete(self):
        engine = engine_of(net(), gas=2)
        weight = engine.module.a.weight
        self.assertIsNone(weight.grad)
        engine(data(0)[0]).sum().backward()
        self.assertIsNone(weight.grad)
        engine.step()
        engine(data(1)[0]).sum().backward()
        self.assertEqual(weight.grad.shape, weight.shape)
        with self.assertRaisesRegex(RuntimeError, "has shape"):
            weight.grad = torch.zeros(3)
        engine.step()

    def test_shown_and_forgotten(self):
        engine = engine_of(net())
        weight = engine.module.a.weight
        engine(data(1)[0]).sum().backward()
        self.assertIsNotNone(weight.grad)
        engine.zero_grad()
        self.assertIsNone(weight.grad)
        other = engine_of(net())
        for each in (engine, other):
            each(data(2)[0]).sum().backward()
            each.step()
        self.assertEqual((engine.global_steps, engine.skipped_steps), (1, 0))
        self.assertEqual(max((a - b).abs().max() for a, b in zip(master_of(engine), master_of(other))), 0)

    def test_zero_grad_forgets_what_backward_has_ended(self):
        model = net()
        engine, optimizer = engine_of(model), adamw(model)
        for step in range(3):
            x, t = data(step)
            engine.backward(engine(100 * x).square().sum())
            engine.zero_grad()
            self.assertIsNone(engine.module.a.weight.grad)
            torch.nn.functional.mse_loss(model(x), t).backward()
            optimizer.step()
            optimizer.zero_grad()
            engine.backward(torch.nn.functional.mse_loss(engine(x), t))
            engine.step()
        self.assertLess(furthest(model, engine), BOUND)
        self.assertEqual((engine.global_steps, engine.skipped_steps), (3, 0))


class Weights(unittest.TestCase):
    """What the host writes into parameters is not lost at the next step."""

    def test_written_in_place(self):
        for options in ({}, {"stage": 3}):
            model = net()
            engine, optimizer = engine_of(model, **options), adamw(model)
            train(self, model, engine, optimizer, range(2))
            for each in (model, engine.module):
                with torch.no_grad():
                    each.a.weight.mul_(0.5)
                    each.b.weight.mul_(0.75)  # autograd keeps it for the gradient of what is before
                    torch.nn.init.ones_(each.b.bias)
            train(self, model, engine, optimizer, range(2, 4))
            for each in (model, engine.module):
                each.c.weight.data.fill_(0.25)
            engine.take_weights([engine.module.c.weight])
            train(self, model, engine, optimizer, range(4, 6))

    def test_loaded(self):
        model, other = net(), net(5)
        engine, optimizer = engine_of(model, bf16={"enabled": False}), adamw(model)
        train(self, model, engine, optimizer, range(2))
        for each in (model, engine.module):
            each.load_state_dict(other.state_dict())
        self.assertEqual(furthest(other, engine), 0)
        train(self, model, engine, optimizer, range(2, 4))

    def test_written_inside_a_window(self):
        engine = engine_of(net(), gas=2)
        engine(data(0)[0]).sum().backward()
        engine.step()
        with torch.no_grad():
            engine.module.a.weight.zero_()
        with self.assertRaisesRegex(RuntimeError, "'a.weight' was written into between"):
            engine(data(1)[0]).sum().backward()

    def test_thawed_that_was_frozen_from_the_start(self):
        model = net()
        model.b.requires_grad_(False)
        engine = engine_of(model)
        engine.module.b.requires_grad_(True)
        with self.assertRaisesRegex(RuntimeError, "'b.weight' had requires_grad False"):
            engine(data(0)[0]).sum().backward()


class WrongUse(unittest.TestCase):
    def test_a_compiled_module_beside_its_engine(self):
        """What is compiled for the engine's calls cannot tell that it is outside."""
        engine = engine_of(net(), fp16={"enabled": True})
        engine.compile("eager")
        engine(data(0)[0].half())
        with self.assertRaisesRegex(RuntimeError, "did not come through an output"):
            engine.module(data(0)[0].half()).sum().backward()

    def test_a_stale_graph(self):
        """What was computed with the weights before a step cannot go backward after it."""
        engine = engine_of(net())
        old = engine(data(0)[0]).sum()
        engine(data(1)[0]).sum().backward()
        engine.step()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            old.backward()

    def test_zero_grad_inside_a_window(self):
        engine = engine_of(net(), gas=2)
        for micro in range(2):
            engine(data(micro)[0]).sum().backward()
            if micro == 1:
                with self.assertRaisesRegex(RuntimeError, "1 micro-batches of this accumulation window"):
                    engine.zero_grad()
            engine.step()

    def test_arguments(self):
        for options, text in (({}, "needs model="), ({"model": net()}, "no configuration"),
                              ({"model": net(), "config": 3}, "is a int"),
                              ({"model": net(), "config": "/nowhere/x.json"}, "nowhere/x.json"),
                              ({"model": net(), "config": config(), "mpu": object()}, "mpu="),
                              ({"model": net(), "config": {}, "optimizer": torch.optim.LBFGS(net().parameters(), 1)}, "LBFGS"),
                              ({"model": net(), "config": {}, "model_parameters": []}, "empty"),
                              ({"model": net(), "config": {}, "model_parameters": net().parameters()}, "6 of the parameters")):
            with self.subTest(text=text), self.assertRaisesRegex(Exception, text):
                outrigger.torch.initialize(**options, comm=solo())

    def test_the_module_works_after_destroy(self):
        engine = engine_of(net())
        module = engine.module
        expected = copy.deepcopy(module)(data(0)[0])
        engine.destroy()
        del engine
        self.assertTrue(torch.equal(module(data(0)[0]), expected))


if __name__ == "__main__":
    unittest.main()
