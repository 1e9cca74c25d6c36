# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher, stage 3 with the parameters in slices: modules of all kinds have the bits of stage 2, nothing
stays gathered, and what cannot be right is refused by name.

    outrigger run -n 2 -- python test_gathering.py
"""
import tempfile
import unittest
import warnings
from unittest import mock

import torch
from models import engine_of, master_of, net
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import outrigger
import outrigger.torch
from outrigger import lowlevel
from outrigger.process import process_comm

SLICES = {"outrigger": {"share_parameters": False}, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}


class Tied(nn.Module):
    """One weight used by two modules, and directly by the module around them."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)
        self.b.weight = self.a.weight

    def forward(self, x):
        kept = self.a.weight.t()  # used after the modules that have it have returned
        y = self.b(torch.tanh(self.a(x)))
        return self.c(torch.tanh(y @ kept) + F.linear(x, self.a.weight))


class Shared(nn.Module):
    """Called more than once, in an order of its input."""

    def __init__(self):
        super().__init__()
        self.parts, self.out, self.calls = nn.ModuleList(nn.Linear(6, 6) for _ in range(3)), nn.Linear(6, 4), 0

    def forward(self, x):
        self.calls += 1
        for part in list(self.parts)[::1 if self.calls % 2 else -1] + [self.parts[0]]:
            x = torch.tanh(part(x))
        return self.out(x)


class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6))

    def forward(self):
        return self.weight.view(2, 2, 6)


class Returned(nn.Module):
    """A module that returns a view of its parameter, which its caller uses."""

    def __init__(self):
        super().__init__()
        self.held, self.inner = Held(), nn.Linear(6, 6)

    def forward(self, x):
        weight = self.held()
        return F.linear(torch.tanh(self.inner(x)), weight.reshape(4, 6))


class Direct(nn.Module):
    """Parameters used by functions, concatenated and as a detached tensor."""

    def __init__(self):
        super().__init__()
        self.w, self.v, self.gain = nn.Parameter(torch.randn(6, 2)), nn.Parameter(torch.randn(6, 2)), nn.Parameter(torch.ones(()))

    def forward(self, x):
        return torch.tanh(x @ torch.cat([self.w, self.v], 1)) * self.gain + x @ torch.cat((self.w.detach(), self.v), 1)


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.a, self.b, self.c, self.scale = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4), nn.Parameter(torch.ones(8))
        self.reentrant = reentrant

    def middle(self, x):
        return torch.tanh(self.b(x)) * self.scale

    def forward(self, x):
        x = checkpoint(self.middle, torch.tanh(self.a(x)), use_reentrant=self.reentrant)
        return self.c(checkpoint(self.middle, x, use_reentrant=self.reentrant))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.LSTM(6, 5, 2), nn.Linear(5, 4)

    def forward(self, x):
        return self.out(self.inner(x[None])[0][0])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm, self.out = nn.MultiheadAttention(6, 2), nn.LayerNorm(6), nn.Linear(6, 4)

    def forward(self, x):
        mixed, _ = self.inner(x[None], x[None], x[None])
        return self.out(self.norm(mixed[0]))


class Experts(nn.Module):
    """Each rank another expert."""

    def __init__(self):
        super().__init__()
        self.all, self.out, self.rank = nn.ModuleList(nn.Linear(6, 6) for _ in range(4)), nn.Linear(6, 4), process_comm().rank

    def forward(self, x):
        return self.out(self.all[self.rank](x))


class ExpertModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = Experts()

    def forward(self, x):
        return self.experts(x)


def built(kind, *arguments):
    torch.manual_seed(3)
    return kind(*arguments)


MODELS = {"plain": lambda: net(), "tied": lambda: built(Tied), "twice and in changing order": lambda: built(Shared),
          "returned": lambda: built(Returned), "direct": lambda: built(Direct), "reentrant": lambda: built(Checkpointed, True),
          "not reentrant": lambda: built(Checkpointed, False), "recurrent": lambda: built(Recurrent),
          "attention": lambda: built(Attention), "in a checkpoint": lambda: built(nn.Sequential, built(Checkpointed, False), nn.Linear(4, 4))}
PRECISIONS = {"float32": {}, "bf16": {"bf16": {"enabled": True}}, "fp16": {"fp16": {"enabled": True, "initial_scale_power": 8}}}


class Gathering(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        self.comm = process_comm()

    def both(self, model, **more):
        """Engines over the same model: stage 2, and stage 3 in slices."""
        return [engine_of(model, comm=self.comm, **{**more, **each}) for each in ({"zero_optimization": {"stage": 2}}, SLICES)]

    def data(self, step):
        generator = torch.Generator().manual_seed(10 * step + self.comm.rank)
        return torch.randn(8, 6, generator=generator), torch.randn(8, 4, generator=generator)

    def loss(self, engine, step):
        x, t = self.data(step)
        return F.mse_loss(engine(x.to(engine.compute_dtype)).float(), t)

    def apart(self, count):
        """Bytes of so many float32, where a parameter lies on several ranks; one rank has it whole, and gathers nothing."""
        return 4 * count if self.comm.size > 1 else 0

    def gathered(self, engine):
        return next(resident for purpose, resident, _ in engine.memory() if purpose == "acquired copies")

    def same_bits(self, engines):
        for one, other in zip(*(master_of(engine) for engine in engines)):
            self.assertTrue(torch.equal(one, other))

    def test_bits_of_stage_2(self):
        for name, make in MODELS.items():
            for precision, options in PRECISIONS.items():
                with self.subTest(model=name, precision=precision):
                    engines = self.both(make(), gas=2, clip=0.5, **options)
                    for step in range(6):
                        for engine in engines:
                            loss = self.loss(engine, step)
                            if step < 3:
                                engine.backward(loss)
                            else:
                                loss.backward()
                            with torch.no_grad(), warnings.catch_warnings():
                                warnings.filterwarnings("ignore", "None of the inputs have requires_grad")
                                engine.module(self.data(step)[0].to(engine.compute_dtype))
                            if name != "direct" and step < 3:  # what was detached stays until the window's end
                                self.assertEqual(self.gathered(engine), 0)
                            engine.step()
                        if step % 2 == 1:
                            self.assertEqual(self.gathered(engines[1]), 0)
                    self.same_bits(engines)
                    for engine in engines:
                        engine.destroy()

    def test_what_a_forward_leaves(self):
        """Only a module's own parameters are there at a time."""
        engine = engine_of(net(hidden=64), comm=self.comm, **SLICES)
        most = []
        engine.module.c.register_forward_hook(lambda *_: most.append(self.gathered(engine)), prepend=True)
        loss = self.loss(engine, 0)
        self.assertEqual(most, [self.apart(64 * 4 + 4)])
        self.assertEqual(self.gathered(engine), 0)
        loss.backward()
        self.assertEqual(self.gathered(engine), 0, "each went when its gradient had come")

    def test_fetched_ahead(self):
        """From the second pass on, all but the first of a pass and the first of its backward, which the forward has just given
        back; never more than the budget, and nothing that stays."""
        model = net(hidden=64)
        largest = max(each.numel() for each in model.parameters())
        for budget, ahead in ((50_000_000, 6), (largest, 6), (64, 3), (0, 0)):
            with self.subTest(budget=budget):
                zero = {**SLICES["zero_optimization"], "stage3_prefetch_bucket_size": budget}
                engines = [engine_of(model, comm=self.comm, **{**SLICES, "zero_optimization": each}) for each in (SLICES["zero_optimization"], zero)]
                fetched = []
                with mock.patch.object(lowlevel, "engine_prefetch", wraps=lowlevel.engine_prefetch) as prefetch:
                    for step in range(3):
                        for engine in engines[:1 if budget == 0 else 2]:
                            engine.backward(self.loss(engine, step))
                            self.assertEqual(self.gathered(engine), 0)
                            engine.step()
                        calls = [call.args for call in prefetch.call_args_list]
                        fetched.append(sum(len(ids) for handle, ids, _ in calls if handle == engines[1].handle))
                        prefetch.reset_mock()
                self.assertEqual(fetched, [0, ahead, ahead])
                if budget:
                    self.same_bits(engines)

    def test_fetched_and_not_used(self):
        """A pass that leaves out what the last one used gives it back."""
        class Either(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.a, self.b, self.way = nn.Linear(6, 6), nn.Linear(6, 4), nn.Linear(6, 4), 0

            def forward(self, x):
                self.way += 1
                return (self.a if self.way % 3 else self.b)(torch.tanh(self.first(x)))

        engines = self.both(Either())
        for step in range(6):
            for engine in engines:
                engine.backward(self.loss(engine, step))
                engine.step()
            self.assertEqual(self.gathered(engines[1]), 0)
        self.same_bits(engines)

    def test_small_parameters_stay(self):
        config = {**SLICES, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 16}}
        engine = engine_of(net(), comm=self.comm, **config)
        engine.backward(self.loss(engine, 0))
        self.assertEqual(self.gathered(engine), self.apart(16 + 16 + 4))
        engine.step()
        self.assertEqual(self.gathered(engine), 0)

    def test_zero_grad_between_forward_and_backward(self):
        engines = self.both(net())
        for engine in engines:
            engine(self.data(0)[0]).sum().backward()
            loss = self.loss(engine, 1)
            engine.zero_grad()
            loss.backward()
            engine.step()
        self.same_bits(engines)

    def test_gradient_penalty(self):
        """A backward that is itself differentiated."""
        engines = self.both(net())
        for engine in engines:
            for step in range(2):
                x = self.data(step)[0].requires_grad_()
                y = engine(x)
                slope, = torch.autograd.grad(y.sum(), x, create_graph=True)
                other = self.loss(engine, step + 5)
                engine.backward(slope.square().sum() + y.square().mean() + other)
                engine.step()
        self.same_bits(engines)

    def test_a_graph_kept_for_two_backwards(self):
        engines = self.both(net())
        for engine in engines:
            loss = self.loss(engine, 0)
            loss.backward(retain_graph=True)
            loss.backward()
            engine.step()
        self.same_bits(engines)

    def test_frozen_later(self):
        engines = self.both(net())
        for engine in engines:
            for step in range(3):
                engine.module.b.weight.requires_grad_(step != 1)
                engine.backward(self.loss(engine, step))
                engine.step()
                self.assertEqual(self.gathered(engine), 0)
        self.same_bits(engines)

    def test_gradients_are_read_and_clipped(self):
        engines = self.both(net())
        for engine in engines:
            self.loss(engine, 0).backward()
            nn.utils.clip_grad_norm_(engine.parameters(), 0.1)
            engine.step()
        self.same_bits(engines)

    def test_leaf_modules(self):
        model = built(ExpertModel)
        outrigger.torch.utils.set_z3_leaf_modules(model, [Experts])
        engines = self.both(model)
        for engine in engines:
            for step in range(3):
                engine.backward(self.loss(engine, step))
                engine.step()
            self.assertEqual(self.gathered(engine), 0)
        self.same_bits(engines)

    def test_reading_and_writing(self):
        engine = engine_of(net(), comm=self.comm, **SLICES)
        weight = engine.module.a.weight
        expected = net().a.weight
        with outrigger.torch.zero.GatheredParameters(engine.parameters()):
            self.assertTrue(torch.equal(weight, expected))
            state = {name: value.clone() for name, value in engine.module.state_dict().items()}
        self.assertEqual((weight.shape, weight.numel(), weight.dtype), ((16, 6), 96, torch.float32))
        self.assertIn("in slices", repr(weight))
        with outrigger.torch.zero.GatheredParameters(weight, modifier_rank=0):
            if self.comm.rank == 0:
                with torch.no_grad():
                    weight.mul_(2)
        with outrigger.torch.zero.GatheredParameters(weight):
            self.assertTrue(torch.equal(weight, 2 * expected))
        self.assertTrue(torch.equal(master_of(engine)[0], 2 * expected))
        self.assertTrue(torch.equal(engine.module_state_dict()["a.weight"], 2 * expected))
        with tempfile.TemporaryDirectory() as folder:
            engine.save_16bit_model(folder)
            if self.comm.rank == 0:
                saved = torch.load(f"{folder}/pytorch_model.bin")
                self.assertTrue(torch.equal(saved["a.weight"], 2 * expected))
        engine.module.load_state_dict(state)
        self.assertEqual(self.gathered(engine), 0)
        self.assertTrue(torch.equal(master_of(engine)[0], expected))
        engine.destroy()
        self.assertTrue(torch.equal(engine.module.a.weight, expected))
        self.assertEqual(engine.module(torch.ones(2, 6)).shape, (2, 4))

    def test_a_block_that_writes_in_another_one(self):
        last = self.comm.size - 1
        for options in (SLICES, {**SLICES, "bf16": {"enabled": True}}):
            engine = engine_of(net(), comm=self.comm, **options)
            weight = engine.module.a.weight
            with outrigger.torch.zero.GatheredParameters(weight, modifier_rank=0):
                weight.data = torch.full_like(weight, 1.0 + self.comm.rank)
                with outrigger.torch.zero.GatheredParameters([weight, engine.module.b.weight], modifier_rank=last):
                    weight.data = torch.full_like(weight, 4.0 + self.comm.rank)
                self.assertEqual(weight.data[0, 0], 4.0 + last)
                with torch.no_grad():
                    weight[0] += 1
            self.assertTrue(torch.equal(master_of(engine)[0][:2], torch.tensor([5.0 + last, 4.0 + last]).view(2, 1).expand(2, 6)))
            with self.assertRaisesRegex(RuntimeError, "data was set to another tensor"):
                with outrigger.torch.zero.GatheredParameters(weight):
                    weight.data = torch.zeros(16, 6, dtype=weight.dtype)

    def test_wrong_use(self):
        engine = engine_of(net(), comm=self.comm, **SLICES)
        weight = engine.module.a.weight
        for use in (lambda: weight.sum(), lambda: weight.detach(), lambda: weight.data, lambda: F.linear(torch.ones(6), weight),
                    lambda: engine.module.state_dict(), lambda: weight[0]):
            with self.assertRaisesRegex(RuntimeError, "'a.weight' is in slices.*GatheredParameters"):
                use()
        with self.assertRaisesRegex(RuntimeError, "call the engine"):
            engine.module(torch.ones(2, 6))
        hook = engine.module.a.register_forward_pre_hook(lambda *_: weight.data.mul_(1))
        engine(torch.ones(2, 6))  # what .data hides from PyTorch is hidden here
        hook.remove()

        def scaled(module, inputs):
            with torch.no_grad():
                module.weight.mul_(0.5)
        hook = engine.module.a.register_forward_pre_hook(scaled)
        loss = engine(torch.ones(2, 6)).sum()
        hook.remove()
        with self.assertRaisesRegex(RuntimeError, "a.weight.*slices.*GatheredParameters"):
            loss.backward()

    def test_an_exception_in_forward(self):
        engines = self.both(net())

        def fails(*_):
            raise KeyError("not today")
        for engine in engines:
            hook = engine.module.b.register_forward_hook(fails)
            with self.assertRaisesRegex(KeyError, "not today"):
                self.loss(engine, 0)
            hook.remove()
            self.assertEqual(self.gathered(engine), 0)
            engine.backward(self.loss(engine, 0))
            engine.step()
        self.same_bits(engines)

    def test_stale_graph(self):
        engine = engine_of(net(), comm=self.comm, **SLICES)
        loss = self.loss(engine, 0)
        loss.backward(retain_graph=True)
        engine.step()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_a_changed_activation(self):
        engine = engine_of(net(), comm=self.comm, **SLICES)
        engine.module.a.register_forward_hook(lambda module, inputs, output: output.tanh_())
        kept = []
        engine.module.b.register_forward_pre_hook(lambda module, inputs: kept.append(inputs[0]))
        loss = self.loss(engine, 0)
        with torch.no_grad():
            kept[0].add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()


if __name__ == "__main__":
    unittest.main()
