# SPDX-License-Identifier: Apache-2.0
"""Gradients by value: programs of many forms (programs.py) on engines and in plain PyTorch, float32 and alone. Every gradient
that leaves an engine is the true one, every one that reaches a parameter has each factor once.

The rule is SGD, and factors are not 1: accumulation 2 and 3, loss scales of 2^8 and 2^16, other ones for each engine. A drawn
program of several terms, models and engines comes after each term alone; on ranks each has data of its own.

    python test_gradients.py                     each form, and drawn programs
    python test_gradients.py --programs 2000     more drawn programs
    outrigger run -n 2 -- python test_gradients.py
"""
import os
import random
import sys
import unittest

import programs
import torch
import torch.distributed as dist
from models import solo

import outrigger.torch

LR = 0.1
# On ranks the forms meet one another in drawn programs only.
FORMS = programs.ROOTED if "WORLD_SIZE" in os.environ else programs.FORMS
DRAWN = 40
CONFIGURED = {"outrigger": {"accumulation_divisor": "configured"}}
# How an engine computes: options, the bound of ‖ours − true‖ / ‖true‖, the coefficient of losses, so that float16 holds them.
EXACT = {"float32": ({}, 2e-5, 1), "float32, scaled": (CONFIGURED, 2e-5, 1)}
ROUNDED = {"bf16": ({"bf16": {"enabled": True}}, 0.1, 1), "bf16, scaled": ({"bf16": {"enabled": True}, **CONFIGURED}, 0.1, 1),
           "fp16, 2^8": ({"fp16": {"enabled": True, "loss_scale": 2**8}}, 0.05, 1),
           "fp16, 2^16": ({"fp16": {"enabled": True, "loss_scale": 2**16}}, 0.05, 2**-8),
           "autocast fp16": ({"torch_autocast": {"enabled": True, "dtype": "fp16"}}, 0.05, 2**-6)}
FP16_KINDS = ("fp16, 2^8", "fp16, 2^16")


class Differs(AssertionError):
    pass


def ranks():
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def engine_of(model, stage, gas, options, apart=False):
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": gas, "zero_optimization": {"stage": stage},
              "gradient_clipping": 0, "optimizer": {"type": "SGD", "params": {"lr": LR}}, **options}
    if apart:
        config["outrigger"] = {**config.get("outrigger", {}), "share_parameters": False}
    comm = {} if dist.is_initialized() else {"comm": solo()}
    return outrigger.torch.initialize(model=model, config=config, **comm)[0]


class Trial:
    """The same models on both sides, and what has become of them."""

    def __init__(self, models, engines, bound, case):
        self.plain, self.ours = programs.Side(models), programs.Side(models, engines)
        self.bound, self.case = bound, case
        self.sums = [[torch.zeros_like(each) for each in model.parameters()] for model in models]

    def check(self, what, ours, true, bound=None):
        if (ours is None) != (true is None):
            raise Differs(f"{self.case}: {what} is {ours}, and not {true}")
        if ours is None:
            return
        distance, size = (ours.detach().float() - true).norm().item(), true.norm().item()
        if not distance <= (bound or self.bound) * size + 1e-9:
            raise Differs(f"{self.case}: {what} differs by {distance:.3g} of {size:.3g}; ratio {ours.float().norm().item() / (size or 1):.4g}")

    def micro_step(self, terms, form, seed):
        x, t = programs.batch(seed, ranks()[0])
        # In which order autograd comes to leaves is its own affair.
        true, ours = (sorted(programs.run(side, terms, form, x, t), key=lambda seen: seen[0]) for side in (self.plain, self.ours))
        if [what for what, _ in true] != [what for what, _ in ours]:
            raise Differs(f"{self.case}: seen is {ours}, and not {true}")
        for (what, one), (_, other) in zip(ours, true):
            self.check(what, one, other)
        for index, engine in enumerate(self.ours.engines):
            self.step(index, engine)

    def step(self, index, engine):
        model = self.plain.models[index]
        for total, each in zip(self.sums[index], model.parameters()):
            total += 0 if each.grad is None else each.grad
            each.grad = None
        ends = engine.is_gradient_accumulation_boundary()
        if ends:
            for total, (name, mine), each in zip(self.sums[index], engine.module.named_parameters(), model.parameters()):
                total /= engine.gradient_accumulation_steps()
                if dist.is_initialized():
                    dist.all_reduce(total)
                    total /= dist.get_world_size()
                if mine.grad is not None or total.any():
                    self.check(f"the gradient of {name} of model {index}", mine.grad, total)
                with torch.no_grad():
                    each -= LR * total
                total.zero_()
        engine.step()
        if ends and not engine.was_step_applied():
            raise Differs(f"{self.case}: the step was not applied")
        if ends:
            for (name, mine), each in zip(engine.module.named_parameters(), model.parameters()):
                # The master is as exact as the gradient is, of which LR is a small part.
                self.check(f"the weight {name} of model {index}", outrigger.torch.utils.safe_get_full_fp32_param(mine), each.detach(),
                           max(self.bound / 10, 2e-6))

    def destroy(self):
        for engine in self.ours.engines:
            engine.destroy()


def trial(kinds, stages, factors, case, checkpoints=(None, None, None)):
    """kinds: the names of how each engine computes."""
    models = [programs.Model(index, checkpoints[index]) for index in range(len(kinds))]
    every = {**EXACT, **ROUNDED}
    ours = programs.copies(models)
    # Masters begin with the rounded values, so the plain side does.
    for model, kind in zip(models, kinds):
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(kind[:4], torch.float32)
        with torch.no_grad():
            for each in model.parameters():
                each.copy_(each.to(dtype))
    engines = [engine_of(model, stage, gas, every[kind][0], apart=stage == 3 and index % 2 == 1)
               for index, (model, kind, stage, gas) in enumerate(zip(ours, kinds, stages, factors))]
    return Trial(models, engines, max(every[kind][1] for kind in kinds), case)


def each_alone(kind, gas, forms=programs.FORMS):
    """(name, run) of each term in each form; two models whose accumulation differs."""
    for number, term in enumerate(programs.TERMS + programs.ALONE + programs.ROOTED_TERMS):
        for form in forms:
            if term in programs.ROOTED_TERMS and form not in programs.ROOTED and kind != "float32":
                continue
            if term is programs.float16_outside and not kind.startswith("fp16"):
                continue
            name = f"{term.__name__} by {form}, {kind}, accumulation {gas} and {gas + 1}"

            def run(term=term, form=form, name=name, number=number):
                it = trial((kind, kind), (number % 4, (number + 1) % 4), (gas, gas + 1), name)
                coefficient = 1 if term is programs.float16_outside else {**EXACT, **ROUNDED}[kind][2]
                for micro in range(gas + 1):
                    it.micro_step([(term, coefficient, 0, 1)], form, micro)
                it.destroy()
            yield name, run


def drawn(seed, kinds=tuple(EXACT)):
    """A program of several terms on one to three engines."""
    draw = random.Random(seed)
    count = draw.randint(1, 3)
    chosen = [draw.choice(kinds) for _ in range(count)]
    factors = [draw.choice((1, 2, 3)) for _ in range(count)]
    stages = [draw.randint(0, 3) for _ in range(count)]
    checkpoints = [draw.choice((None, None, "reentrant", "other")) for _ in range(count)]
    coefficient = min({**EXACT, **ROUNDED}[kind][2] for kind in chosen)
    name = f"drawn program {seed}: {chosen}, stages {stages}, accumulation {factors}, checkpoints {checkpoints}"
    it = trial(chosen, stages, factors, name, checkpoints)
    for micro in range(6):
        terms = []
        for _ in range(draw.randint(1, 4)):
            first, second = draw.randrange(count), draw.randrange(count)
            legal = [each for each in programs.TERMS if each not in programs.NOT_REENTRANT
                     or "reentrant" not in (checkpoints[first], checkpoints[second])]
            terms.append((draw.choice(legal), coefficient * draw.uniform(0.5, 2), first, second))
        form = draw.choice(programs.FORMS)
        it.case = f"{name}, micro-step {micro}: {[(each[0].__name__, *each[2:]) for each in terms]} by {form}"
        it.micro_step(terms, form, 100 * seed + micro)
    it.destroy()


class Forms(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def test_each_term_in_each_form(self):
        for kind, gas, forms in (("float32, scaled", 2, FORMS), ("float32, scaled", 1, FORMS[:2]), ("float32", 2, FORMS[:2])):
            for name, run in each_alone(kind, gas, forms):
                with self.subTest(name):
                    run()

    def test_each_term_in_low_precision(self):
        for number, kind in enumerate(ROUNDED):
            for name, run in each_alone(kind, 2, FORMS[number % 2:3]):
                with self.subTest(name):
                    run()

    def test_drawn_programs(self):
        for seed in range(DRAWN):
            with self.subTest(seed=seed):
                drawn(seed)

    def test_drawn_programs_in_float16(self):
        for seed in range(DRAWN // 4):
            with self.subTest(seed=seed):
                drawn(seed, (*FP16_KINDS, "float32"))


if __name__ == "__main__":
    if "--programs" in sys.argv:
        at = sys.argv.index("--programs")
        DRAWN = int(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    if "WORLD_SIZE" in os.environ:
        outrigger.torch.init_distributed()
    unittest.main()
