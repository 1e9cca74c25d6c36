# SPDX-License-Identifier: Apache-2.0
"""What crosses an engine's border in other ways than as a tensor in a tuple: gradients by value beside plain PyTorch, where a factor
lies inside (float16, a configured divisor) and where none does. What cannot be served is refused."""
import collections
import dataclasses
import types
import unittest

import torch
from models import solo
from torch import nn
from torch.utils.checkpoint import checkpoint

import outrigger.torch

KINDS = {"float32": ({}, 1e-6), "configured": ({"gradient_accumulation_steps": 3, "outrigger": {"accumulation_divisor": "configured"}}, 1e-6),
         "bfloat16": ({"bf16": {"enabled": True}}, 2e-2), "float16": ({"fp16": {"enabled": True, "loss_scale": 256}}, 5e-3),
         "dynamic": ({"fp16": {"enabled": True, "initial_scale_power": 15}}, 5e-3)}
SCALED = ("configured", "float16", "dynamic")
Pair = collections.namedtuple("Pair", "first second")


class Items(dict):
    """Its items are attributes, as in many configurations and outputs of libraries."""

    def __getattr__(self, name):
        return self[name]


@dataclasses.dataclass(frozen=True)
class Held:
    x: torch.Tensor


@dataclasses.dataclass(slots=True)
class Slotted:
    x: torch.Tensor
    later: torch.Tensor = dataclasses.field(init=False)


class Plain:
    pass


@dataclasses.dataclass(slots=True)
class SlottedOnPlain(Plain):
    x: torch.Tensor


@dataclasses.dataclass
class State:
    x: torch.Tensor
    own: object = None


class ReadOnly(dict):
    def __setitem__(self, key, value):
        raise TypeError("read only")


class Renamed(dict):
    """Its items() are not what [] finds."""

    def items(self):
        return [(("a", key), value) for key, value in super().items()]


class Both(tuple):
    def __new__(cls, first, second):
        return super().__new__(cls, (first, second))


class Model(nn.Module):
    def __init__(self, body):
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b, self.body = nn.Linear(3, 4), nn.Linear(4, 3), body
        self.register_buffer("kept", torch.zeros(()))

    def core(self, x):
        return self.b(torch.tanh(self.a(x)))

    def forward(self, *inputs):
        return self.body(self, *inputs)


def loss_of(*tensors):
    return sum((index + 1) * each.abs().float().square().mean() for index, each in enumerate(tensors)) / 64


def engine_of(model, options):
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "gradient_clipping": 0, "zero_optimization": {"stage": 2},
              "optimizer": {"type": "SGD", "params": {"lr": 0.1}}, **options}
    return outrigger.torch.initialize(model=model, comm=solo(), config=config)[0]


def weight_gradient(module):
    """The mean over the window, which one backward has begun: the others add nothing."""
    engine = outrigger.torch.owned.engine_of(module.a.weight)
    if engine is None:
        return module.a.weight.grad
    steps = engine.gradient_accumulation_steps()
    for _ in range(steps - 1):
        engine.step()
        (engine.module.a.weight.sum() * 0).backward()
    return module.a.weight.grad * steps


class Borders(unittest.TestCase):
    def same(self, body, program, kinds=tuple(KINDS), least=0.0):
        """program(callable, module, x): a gradient, or None for that of the first weight. least: of the bounds."""
        for kind in kinds:
            options, bound = KINDS[kind]
            found = []
            for options_of_side in (None, options):
                module = Model(body)
                called = module if options_of_side is None else engine_of(module, options_of_side)
                x = torch.tensor([[0.5, -1, 2], [1, 0.25, -0.5]]).to(module.a.weight.dtype)
                gradient = program(called, module, x)
                found.append((weight_gradient(module) if gradient is None else gradient).float())
            with self.subTest(kind):
                self.assertGreater(found[0].abs().max(), 0)
                self.assertLess((found[1] - found[0]).abs().max() / found[0].abs().max(), max(bound, least))

    def refused(self, text, body, program, kinds=SCALED):
        for kind in kinds:
            module = Model(body)
            engine = engine_of(module, KINDS[kind][0])
            with self.subTest(kind), self.assertRaisesRegex(RuntimeError, text):
                program(engine, module, torch.ones(2, 3, dtype=module.a.weight.dtype))

    # ---- Outputs ----

    def test_outputs_that_are_one_tensor_or_share_its_memory(self):
        def twice(model, x):
            y = model.core(x)
            return y, y

        def part(model, x):
            y = model.core(x)
            return y, y[0]

        def parts(model, x):
            y = model.core(x)
            return tuple(y.view(-1).split(3))

        def turned(model, x):
            y = model.core(x).t()
            return y, y[:, 1]

        for body in (twice, part, parts, turned):
            for written in (0, 1):
                def program(called, module, x, written=written, body=body):
                    outputs = called(x)
                    if body is parts and getattr(called, "scales", None) is not True:  # PyTorch refuses to write into those of split()
                        outputs = (module.core(x).view(-1)[:3], module.core(x).view(-1)[3:])
                    outputs[written].mul_(3)
                    loss_of(*outputs).backward()
                self.same(body, program)

    def test_outputs_that_a_function_of_the_script_or_a_hook_is_between(self):
        class Reversed(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.view_as(x)

            @staticmethod
            def backward(ctx, grad):
                return -2 * grad

        def reverses(model, x):
            y = model.core(x)
            return y, Reversed.apply(y)

        def hooks(model, x):
            first, second = model.core(x).chunk(2, -1)
            first.register_hook(lambda grad: grad * 0.5)
            return first, second

        for body in (reverses, hooks):
            self.same(body, lambda called, module, x: loss_of(*called(x)).backward())

    def test_outputs_of_other_classes(self):
        bodies = {"a data class": lambda model, x: Held(model.core(x)), "with slots": lambda model, x: Slotted(model.core(x)), "items": lambda model, x: Items(x=model.core(x)),
                  "a distribution": lambda model, x: Items(x=torch.distributions.Normal(model.core(x).float(), 1.0).loc)}
        bodies["a namespace"] = lambda model, x: types.SimpleNamespace(x=model.core(x))

        def cyclic(model, x):
            state = State(model.core(x))
            state.own = [state]
            return state

        bodies["one that contains itself"] = cyclic
        for name, body in bodies.items():
            with self.subTest(name):
                self.same(body, lambda called, module, x: loss_of(called(x).x).backward())
        self.same(cyclic, lambda called, module, x: loss_of(called(x).own[0].own[0].x).backward())
        self.same(lambda model, x: ReadOnly(x=model.core(x)), lambda called, module, x: loss_of(dict.get(called(x), "x")).backward(),
                  ("float32", "bfloat16"))
        self.same(lambda model, x: model.core(x).to_sparse(), lambda called, module, x: loss_of(called(x).to_dense()).backward())

        def moved(model, x):
            move = torch.distributions.AffineTransform(model.core(x).float(), 2.0)
            return torch.distributions.TransformedDistribution(torch.distributions.Normal(torch.zeros(2, 3), 1.0), [move])
        self.same(moved, lambda called, module, x: (-called(x).log_prob(torch.ones(2, 3)).mean() / 64).backward())
        self.same(lambda model, x: torch.distributions.Normal(model.core(x).float(), 1.0),
                  lambda called, module, x: (-called(x).log_prob(torch.ones(2, 3)).mean() / 64).backward())
        self.same(lambda model, x: (model.core(x), torch.fft.rfft(model.core(x).float())),
                  lambda called, module, x: loss_of(*called(x)).backward())

    def test_an_object_that_refuses_to_be_copied(self):
        class Alone(State):
            def __copy__(self):
                raise ValueError("there is one")

        with self.assertRaisesRegex(TypeError, r"Alone with tensors .*there is one.* in a tuple"):
            engine_of(Model(lambda model, x: Alone(model.core(x))), KINDS["configured"][0])(torch.ones(2, 3))

    def test_a_state_of_the_module_stays_its_own(self):
        """Where there is no factor nothing is copied."""
        def body(model, x):
            model.state = State(model.core(x))
            return model.state
        for kind in ("float32", "bfloat16"):
            module = Model(body)
            engine = engine_of(module, KINDS[kind][0])
            self.assertIs(engine(torch.ones(2, 3, dtype=module.a.weight.dtype)), module.state)

    def test_a_generator(self):
        def body(model, x):
            yield model.core(x)
        self.refused("return a list", body, lambda engine, module, x: engine(x))

    # ---- Attributes ----

    def test_attributes_that_a_module_leaves(self):
        def leaving(put):
            def body(model, x):
                hidden = torch.tanh(model.a(x))
                put(model, hidden)
                return model.b(hidden)
            return body

        cases = ((lambda model, h: setattr(model, "left", (h, 1)), lambda module: module.left[0]),
                 (lambda model, h: setattr(model, "left", Pair(0, [h])), lambda module: module.left.second[0]),
                 (lambda model, h: setattr(model, "left", {"of": {"all": [h]}}), lambda module: module.left["of"]["all"][0]),
                 (lambda model, h: setattr(model, "left", Both(h, h)), lambda module: module.left[1]),
                 (lambda model, h: setattr(model, "left", Renamed(h=h)), lambda module: module.left["h"]),
                 (lambda model, h: setattr(model, "left", [SlottedOnPlain(h)]), lambda module: module.left[0].x),
                 (lambda model, h: setattr(model, "kept", h.mean()), lambda module: module.kept))
        for put, get in cases:
            self.same(leaving(put), lambda called, module, x, get=get: loss_of(called(x), get(module)).backward())

    def test_attributes_after_a_call_without_gradients(self):
        def body(model, x):
            if torch.is_grad_enabled():
                model.left = torch.tanh(model.a(x))
            return model.b(model.left)

        def program(called, module, x):
            result = called(x)
            with torch.no_grad():
                called(x)
            loss_of(result, module.left).backward()

        self.same(body, program)

    def test_attributes_that_a_checkpoint_reads_again(self):
        def leaves(model, x):
            model.left = torch.tanh(model.a(x))
            return model.b(checkpoint(lambda v: v * torch.tanh(model.left), model.left, use_reentrant=False))

        self.same(leaves, lambda called, module, x: loss_of(called(x), module.left).backward())
        for reentrant in (True, False):
            def reads(model, x, reentrant=reentrant):
                return model.b(checkpoint(lambda v: torch.tanh(model.a(v)) * model.cond, x, use_reentrant=reentrant))

            def program(called, module, x):
                module.cond = torch.full((4,), 1.5, dtype=x.dtype).requires_grad_()
                loss_of(called(x.requires_grad_())).backward()
                self.assertTrue(module.cond.is_leaf)
                return module.cond.grad

            self.same(reads, program)

    def test_a_gradient_that_the_module_retains(self):
        def body(model, x):
            model.left = torch.tanh(model.a(x))
            model.left.retain_grad()
            return model.b(model.left)

        def program(called, module, x):
            loss_of(called(x), module.left).backward(retain_graph=True)
            loss_of(module.left).backward()
            return module.left.grad

        self.same(body, program)

    def test_a_leaf_that_the_module_makes(self):
        def body(model, x):
            model.left = [x.detach().requires_grad_()]
            return model.core(model.left[0])
        self.refused("left it in its attribute 'left'.*as an input", body, lambda engine, module, x: engine(x))

    def test_tensors_given_in_attributes(self):
        def program(called, module, x):
            module.cond = torch.full((3,), 1.5, dtype=x.dtype).requires_grad_()
            module.more = (module.cond * 2, [module.cond])
            loss_of(called(x)).backward()
            return module.cond.grad

        self.same(lambda model, x: model.core(x * model.cond + model.more[0] - model.more[1][0]), program)

    def test_a_given_tensor_that_a_module_keeps_elsewhere(self):
        def body(model, x):
            model.seen = model.cond
            return model.core(x * model.cond)

        def program(called, module, x):
            module.cond = torch.full((3,), 1.5, dtype=x.dtype).requires_grad_()
            loss_of(called(x), module.seen).backward()
            return module.cond.grad

        self.same(body, program)

    # ---- Inputs ----

    def test_inputs_of_other_classes(self):
        for kind in (Held, SlottedOnPlain):
            def program(called, module, x, kind=kind):
                x.requires_grad_()
                loss_of(called(kind(x))).backward()
                return x.grad

            self.same(lambda model, held: model.core(held.x), program)

    def test_a_list_that_the_module_adds_to(self):
        def body(model, x, seen):
            seen.append(x.shape)
            return model.core(x)

        def program(called, module, x):
            seen = []
            loss_of(called(x.requires_grad_(), seen)).backward()
            self.assertEqual(seen, [(2, 3)])

        self.same(body, program)

    def test_an_input_that_is_written_into(self):
        def program(engine, module, x):
            return engine(x * torch.ones_like(x).requires_grad_())
        self.refused("clone()", lambda model, x: model.core(x.mul_(3)), program)

    # ---- Weights ----

    def test_a_backward_to_some_leaves(self):
        for backward in (lambda loss, leaves: loss.backward(inputs=leaves), lambda loss, leaves: torch.autograd.backward(loss, inputs=leaves)):
            self.same(Model.core, lambda called, module, x, backward=backward: backward(loss_of(called(x)), [module.a.weight, module.b.weight]))

    def test_a_gradient_that_a_module_computes_itself(self):
        def body(model, x):
            grad, = torch.autograd.grad(loss_of(model.a(x)), model.a.weight, create_graph=True)
            return model.b(torch.tanh(nn.functional.linear(x, model.a.weight - 10 * grad.to(x.dtype), model.a.bias)))
        self.same(body, lambda called, module, x: loss_of(called(x)).backward())

    def test_transforms_of_functions(self):
        """Where there is no factor."""
        def both(called, x):
            return torch.func.grad(lambda given: loss_of(called(given)))(x), torch.func.vmap(called)(x)

        for kind in ("float32", "bfloat16"):
            options, bound = KINDS[kind]
            module, x = Model(Model.core), torch.tensor([[0.5, -1, 2], [1, 0.25, -0.5]])
            expected = both(module, x)
            engine = engine_of(module, options)
            for one, other in zip(both(engine, x.to(engine.compute_dtype)), expected, strict=True):
                self.assertLess((one.float() - other).abs().max() / other.abs().max(), bound)

    def test_edges_of_parameters(self):
        for call in (lambda module: torch.autograd.graph.register_multi_grad_hook(list(module.parameters()), print),
                     lambda module: torch.autograd.graph.get_gradient_edge(module.a.weight)):
            self.refused("gradient edge", Model.core, lambda engine, module, x, call=call: call(module))

    def test_computed_weights(self):
        def program(called, module, x):
            weights = {name: each * 2 for name, each in module.named_parameters()}
            loss_of(torch.func.functional_call(module, weights, (x,))).backward()

        self.same(Model.core, program)
        self.refused("with engine.module", Model.core, lambda engine, module, x: torch.func.functional_call(
            engine, {f"module.{name}": each * 2 for name, each in module.named_parameters()}, (x,)))

    # ---- Calls in calls, hooks, checkpoints ----

    def test_an_engine_inside_of_another(self):
        def body(model, x):
            other = vars(model)["other"]
            return model.core(other(x.to(getattr(other, "compute_dtype", x.dtype))).to(x.dtype))

        for inner, bound in KINDS.values():
            def program(called, module, x, inner=inner):
                other = Model(Model.core)
                vars(module)["other"] = other if called is module else engine_of(other, inner)  # no module of it
                x.requires_grad_()
                loss_of(called(x)).backward()
                first, second = weight_gradient(module), weight_gradient(other)
                return torch.cat([each.float().flatten() for each in (first, second, x.grad)])

            self.same(body, program, least=bound)

    def test_hooks_of_gradients_in_forward_hooks(self):
        def clamps(called, module, x):
            def look(hooked, inputs, output):
                output.register_hook(lambda grad: (grad * 100).clamp(-1e-2, 1e-2))
            module.a.register_forward_hook(look)
            loss_of(called(x)).backward()

        def keeps(called, module, x):
            seen = []

            def look(hooked, inputs, output):
                output.retain_grad()
                seen.append(output)
            module.a.register_forward_hook(look)
            loss_of(called(x)).backward()
            return seen[0].grad

        def writes(called, module, x):
            def twice(hooked, inputs, output):
                output.mul_(2)
            module.b.register_forward_hook(twice)
            loss_of(called(x)).backward()

        self.same(Model.core, writes)
        self.same(Model.core, clamps)
        self.same(Model.core, keeps)

    def test_an_engine_in_a_reentrant_checkpoint(self):
        def program(called, module, x):
            loss = loss_of(checkpoint(called, x.requires_grad_(), use_reentrant=True))
            loss.backward() if called is module else called.backward(loss)
        self.same(Model.core, program)


if __name__ == "__main__":
    unittest.main()
