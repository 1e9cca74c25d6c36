# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher: optimizers of PyTorch that the library has not, on what each rank owns, against the same ones
in plain PyTorch.

    outrigger run -n 2 -- python test_optimizers.py
"""
import copy
import types
import unittest
from unittest import mock

import torch
from faults import FAULTS
from models import Rounded, furthest, master_of, moved_otherwise, net
from torch.optim import lr_scheduler

import outrigger
import outrigger.torch
from outrigger import lowlevel
from outrigger.process import process_comm
from outrigger.torch import utils

BOUND = 2e-6  # one rounding of weights up to 1, a few steps
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 1e-2, momentum=0.5, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 1e-2),
    "Adadelta": lambda p: torch.optim.Adadelta(p, 1.0),
    "Adamax": lambda p: torch.optim.Adamax(p, 1e-2),
    "NAdam": lambda p: torch.optim.NAdam(p, 1e-2),
    "RAdam": lambda p: torch.optim.RAdam(p, 1e-2),
    "Rprop": lambda p: torch.optim.Rprop(p, 1e-2),
    "AMSGrad": lambda p: torch.optim.AdamW(p, 1e-2, amsgrad=True),
    "maximize": lambda p: torch.optim.Adam(p, 1e-2, maximize=True),
}


def sgd(parameters):
    return OPTIMIZERS["SGD"](parameters)


def data(seed, rank=0):
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randn(8, 6, generator=generator), torch.randn(8, 4, generator=generator)


def loss_of(model, seed, rank=0):
    x, t = data(seed, rank)
    dtype = model.dtype if isinstance(model, Rounded) else next(model.parameters()).dtype
    return torch.nn.functional.mse_loss(model(x.to(dtype)).float(), t)


class Optimizers(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        outrigger.torch.init_distributed()
        self.comm = process_comm()

    def engine(self, model, make, stage=2, gas=1, **config):
        """An engine over a copy of the model, its copy's optimizer."""
        model = copy.deepcopy(model)
        client = make(model.parameters())
        engine, optimizer, *_ = outrigger.torch.initialize(
            model=model, optimizer=client, comm=self.comm,
            config={"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": gas, "gradient_clipping": 0,
                    "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": stage}, **config})
        self.assertIs(optimizer, engine.optimizer)
        return engine, client

    def loss(self, engine, step):
        """Each rank's is of data of its own."""
        return loss_of(engine, step, self.comm.rank)

    def gradients(self, model, step, factor=1):
        """Added to the model's: the mean over all ranks' data."""
        for rank in range(self.comm.size):
            (loss_of(model, step, rank) * (factor / self.comm.size)).backward()

    def train(self, engine, steps, start=0):
        for step in range(start, start + steps):
            engine.backward(self.loss(engine, step))
            engine.step()

    def plain(self, model, optimizer, steps, start=0):
        for step in range(start, start + steps):
            self.gradients(model, step)
            optimizer.step()
            optimizer.zero_grad()

    def test_each(self):
        for name, make in OPTIMIZERS.items():
            for stage, own in ((0, {}), (1, {}), (2, {}), (3, {}), (3, {"share_parameters": False})):
                with self.subTest(name, stage=stage, **own):
                    model = net()
                    engine, _ = self.engine(model, make, stage, outrigger=dict(own))
                    self.plain(model, make(model.parameters()), 4)
                    self.train(engine, 4)
                    self.assertLess(furthest(model, engine), BOUND)
                    self.assertGreater(furthest(net(), engine), 1e-3)
                    self.assertEqual(engine.global_steps, 4)
                    self.assertEqual([entry for entry in engine.memory() if entry[0].startswith("exp_avg") and entry[1]], [])
                    engine.destroy()

    def test_low_precision(self):
        scale = 64
        for precision, section, dtype in (("bf16", {"bf16": {"enabled": True}}, torch.bfloat16),
                                          ("fp16", {"fp16": {"enabled": True, "loss_scale": scale}}, torch.float16)):
            expected = net()
            optimizer = sgd(expected.parameters())
            for step in range(3):
                self.gradients(Rounded(expected, dtype), step, scale)
                for each in expected.parameters():
                    each.grad /= scale
                optimizer.step()
                optimizer.zero_grad()
            for stage in range(4):
                with self.subTest(precision, stage=stage):
                    engine, _ = self.engine(net(), sgd, stage, **section)
                    self.train(engine, 3)
                    self.assertIsNone(moved_otherwise(net(), expected, engine, precision))

    def test_faults_are_seen(self):
        """Put into the engine's gradients, by the bound of the other tests and by that of 16 bits."""
        case = types.SimpleNamespace(gas=1, clip=0, precision="float32", rule=types.SimpleNamespace(name="SGD"))
        expected = net()
        self.plain(expected, sgd(expected.parameters()), 3)
        for name, fault in FAULTS.items():
            alone = self.comm.size == 1 and "rank" in name
            if fault.shows(case) and not alone:
                for stage in range(4):
                    with self.subTest(name, stage=stage), fault.put_in():
                        engine, _ = self.engine(net(), sgd, stage)
                        self.train(engine, 3)
                        self.assertGreater(furthest(expected, engine), 100 * BOUND)
                        self.assertIsNotNone(moved_otherwise(net(), expected, engine, "bf16"))

    def test_low_precision_master(self):
        """What the optimizer writes is rounded to nearest."""
        section = {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}
        engine, _ = self.engine(net(), sgd, **section)
        before = master_of(engine)[0]
        self.train(engine, 1)
        after = master_of(engine)[0]
        self.assertTrue(torch.equal(after, after.bfloat16().float()))
        self.assertFalse(torch.equal(before, after))

    def test_clipped_and_accumulated(self):
        for stage in range(4):
            with self.subTest(stage=stage):
                model = net()
                optimizer = sgd(model.parameters())
                engine, _ = self.engine(model, sgd, stage, gas=2, gradient_clipping=0.05)
                for step in range(3):
                    for micro in range(2):
                        self.gradients(model, 2 * step + micro, 1 / 2)
                        engine.backward(self.loss(engine, 2 * step + micro))
                        engine.step()
                    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                    self.assertGreater(norm, 0.05)
                    self.assertAlmostEqual(engine.get_global_grad_norm(), norm.item(), 5)
                    optimizer.step()
                    optimizer.zero_grad()
                self.assertLess(furthest(model, engine), BOUND)

    def test_gradients_that_were_changed(self):
        model = net()
        optimizer = sgd(model.parameters())
        engine, _ = self.engine(model, sgd, gradient_clipping=0.5)
        for step in range(2):
            self.gradients(model, step)
            self.loss(engine, step).backward()
            for each in (model, engine):
                for parameter in each.parameters():
                    parameter.grad.mul_(100)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            engine.step()
        self.assertLess(furthest(model, engine), BOUND)

    def test_an_overflow_leaves_weights_and_states(self):
        engine, client = self.engine(net(), sgd)
        self.train(engine, 1)
        weights, states = master_of(engine), copy.deepcopy(client.state_dict())
        engine.backward(self.loss(engine, 1) * float("inf"))
        engine.step()
        self.assertEqual(engine.skipped_steps, 1)
        self.assertTrue(all(map(torch.equal, weights, master_of(engine))))
        for key, state in client.state_dict()["state"].items():
            self.assertTrue(torch.equal(state["momentum_buffer"], states["state"][key]["momentum_buffer"]))

    def test_unused_and_frozen_parameters(self):
        """Weight decay leaves them alone, as in PyTorch."""
        model = net()
        engine, client = self.engine(model, sgd)
        engine.module.b.weight.requires_grad_(False)
        loss = engine(data(0)[0]).sum() * 0 + engine.module.a.weight.square().sum()
        engine.backward(loss)
        engine.step()
        for parameter, before in ((engine.module.b.weight, model.b.weight), (engine.module.a.weight, model.a.weight)):
            same = torch.equal(utils.safe_get_full_fp32_param(parameter), before.detach())
            self.assertEqual(same, parameter is engine.module.b.weight)
        self.assertNotIn(engine.module.b.weight, client.state)

    def test_frozen_from_the_start_and_scalars(self):
        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.scale = net(), torch.nn.Parameter(torch.tensor(1.5))
                self.inner.a.weight.requires_grad_(False)

            def forward(self, x):
                return self.inner(x) * self.scale

        for stage in range(4):
            for name in ("SGD", "Adagrad"):
                with self.subTest(name, stage=stage):
                    make, model = OPTIMIZERS[name], Scaled()
                    engine, client = self.engine(model, make, stage)
                    self.plain(model, make(model.parameters()), 3)
                    self.train(engine, 3)
                    self.assertLess(furthest(model, engine), BOUND)
                    self.assertGreater((model.scale - 1.5).abs(), 1e-3)
                    engine.optimizer.load_state_dict(engine.optimizer.state_dict())
                    self.assertIs(client.param_groups[0]["params"][0], next(engine.module.parameters()))
                    engine.destroy()

    def test_a_weight_written_too_late(self):
        engine, _ = self.engine(net(), sgd)
        engine.backward(loss_of(engine, 0))
        weight = engine.module.a.weight
        self.assertIsNotNone(weight.grad)
        for write in (utils.safe_set_full_fp32_param, lambda p, value: utils.safe_set_local_fp32_param(p, value.view(-1)[:engine.local_count(p)])):
            with self.assertRaisesRegex(RuntimeError, "after step"):
                write(weight, torch.zeros(weight.shape))
        engine.step()
        self.assertEqual((engine.global_steps, engine.skipped_steps), (1, 0))

    def test_zero_grad_after_gradients_were_read(self):
        model = net()
        engine, _ = self.engine(model, sgd)
        engine.backward(loss_of(engine, 7))
        self.assertIsNotNone(engine.module.a.weight.grad)
        engine.zero_grad()
        self.assertIsNone(engine.module.a.weight.grad)
        self.plain(model, sgd(model.parameters()), 2)
        self.train(engine, 2)
        self.assertLess(furthest(model, engine), BOUND)

    def test_states(self):
        for stage in (0, 2):
            with self.subTest(stage=stage):
                model = net()
                optimizer = sgd(model.parameters())
                engine, client = self.engine(model, sgd, stage)
                self.plain(model, optimizer, 2)
                self.train(engine, 2)
                weight, key = engine.module.b.weight, "momentum_buffer"
                expected = optimizer.state[model.b.weight][key]
                self.assertLess((utils.safe_get_full_optimizer_state(weight, key) - expected).abs().max(), BOUND)
                self.assertEqual(utils.safe_get_local_optimizer_state(weight, key).numel(), engine.local_count(weight))
                utils.safe_set_full_optimizer_state(weight, expected * 2, key)
                self.assertTrue(torch.equal(utils.safe_get_full_optimizer_state(weight, key), expected * 2))
                utils.safe_set_local_optimizer_state(weight, utils.safe_get_local_optimizer_state(weight, key) / 2, key)
                self.assertTrue(torch.equal(utils.safe_get_full_optimizer_state(weight, key), expected))
                with self.assertRaisesRegex(ValueError, "'exp_avg' is not legal; legal: momentum_buffer"):
                    utils.safe_get_full_optimizer_state(weight, "exp_avg")
                # On with another engine, from weights and states.
                other, _ = self.engine(net(1), sgd, stage)
                other.optimizer.load_state_dict(copy.deepcopy(engine.optimizer.state_dict()))
                other.load_module_state_dict(engine.module_state_dict())
                for each in (engine, other):
                    self.train(each, 2, start=2)
                self.assertTrue(all(map(torch.equal, master_of(engine), master_of(other))))
                self.assertIs(other.optimizer.param_groups[0]["params"][0], other.module.a.weight)

    def test_rates(self):
        for of_client in (True, False):
            with self.subTest(of_client=of_client):
                model = net()
                optimizer = sgd(model.parameters())
                schedule = lr_scheduler.StepLR(optimizer, 1, 0.5)
                engine, client = self.engine(model, sgd)
                engine.lr_scheduler = lr_scheduler.StepLR(client if of_client else engine.optimizer, 1, 0.5)
                for step in range(3):
                    self.plain(model, optimizer, 1, step)
                    schedule.step()
                    self.train(engine, 1, step)
                    self.assertEqual((engine.get_lr(), engine.get_mom()), ([0.1 * 0.5 ** (step + 1)], [0.9]))
                    self.assertEqual(engine.report.lr, torch.tensor(0.1 * 0.5 ** step, dtype=torch.float64))
                self.assertLess(furthest(model, engine), BOUND)

    def test_groups(self):
        def make(parameters):
            parameters = list(parameters)
            return torch.optim.SGD([{"params": parameters[::2], "lr": 0.1}, {"params": parameters[1::2], "momentum": 0.5}], lr=0.01)
        model = net()
        engine, _ = self.engine(model, make)
        self.plain(model, make(model.parameters()), 3)
        self.train(engine, 3)
        self.assertLess(furthest(model, engine), BOUND)

    def test_named_by_the_configuration(self):
        """One of PyTorch's, and those that the library has itself: no guard, sharded like Adam."""
        for named, make in (
                ({"type": "RMSprop", "params": {"lr": 0.01}}, lambda p: torch.optim.RMSprop(p, 0.01)),
                ({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}}, sgd),
                ({"type": "SGD", "params": {"lr": 0.1}}, lambda p: torch.optim.SGD(p, 0.1)),
                ({"type": "Adagrad", "params": {"lr": 0.05, "weight_decay": 0.1}}, lambda p: torch.optim.Adagrad(p, 0.05, weight_decay=0.1))):
            for stage in (0, 2) if named["type"] != "RMSprop" else (0,):
                with self.subTest(named=named, stage=stage):
                    model = net()
                    engine, *_ = outrigger.torch.initialize(model=copy.deepcopy(model), comm=self.comm,
                                                            config={"optimizer": named, "gradient_clipping": 0,
                                                                    "zero_optimization": {"stage": stage}})
                    optimizer = make(model.parameters())
                    self.plain(model, optimizer, 3)
                    self.train(engine, 3)
                    self.assertLess(furthest(model, engine), BOUND)
                    momentum = optimizer.state[model.b.weight].get("momentum_buffer")
                    if momentum is not None:
                        found = utils.safe_get_full_optimizer_state(engine.module.b.weight, "momentum_buffer")
                        self.assertLess((found - momentum).abs().max(), BOUND)

    def test_rules_of_the_library(self):
        """Lion and LAMB, which PyTorch has not: groups have the rule's own hyperparameters, which can be changed."""
        for kind, names in (("Lion", {"lr", "weight_decay", "betas"}), ("Lamb", {"lr", "weight_decay", "betas", "eps"})):
            model = net()
            engine, optimizer, _, _ = outrigger.torch.initialize(
                model=copy.deepcopy(model), comm=self.comm,
                config={"optimizer": {"type": kind, "params": {"lr": 0.01}}, "scheduler": {
                    "type": "OneCycle", "params": {"cycle_min_lr": 0.01, "cycle_max_lr": 0.02}}, "zero_optimization": {"stage": 1}})
            self.assertEqual(set(optimizer.param_groups[0]) - {"params"}, names)
            optimizer.param_groups[0]["weight_decay"] = 0.5
            self.train(engine, 2)
            self.assertGreater(furthest(model, engine), 1e-3)
            self.assertEqual(outrigger.lowlevel.engine_get_group_value(engine.handle, None, "weight_decay"), 0.5)

    def test_groups_that_the_library_has_not(self):
        """What only PyTorch's rule can do for a group stays with PyTorch's."""
        named = {"type": "SGD", "params": {"lr": 0.1}}
        for more in ({"momentum": 0.5}, {"maximize": True}):
            model, other = net(), net()
            engine, *_ = outrigger.torch.initialize(model=other, comm=self.comm, config={"optimizer": named, "gradient_clipping": 0},
                                                    model_parameters=[{"params": list(other.parameters()), **more}])
            self.plain(model, torch.optim.SGD([{"params": list(model.parameters()), **more}], lr=0.1), 3)
            self.train(engine, 3)
            self.assertLess(furthest(model, engine), BOUND)


class WrongUse(unittest.TestCase):
    def test_refused(self):
        comm = outrigger.Comm.self_group(outrigger.Context(workers=1))
        adafactor, muon = torch.optim.Adafactor, getattr(torch.optim, "Muon", torch.optim.Adafactor)
        allowed = {"zero_allow_untested_optimizer": True}
        for make, stage, more, error, text in (
                (torch.optim.SGD, 1, {}, ValueError, "optimizer=SGD at zero_optimization.stage 1.*zero_allow_untested_optimizer"),
                (torch.optim.LBFGS, 0, {}, NotImplementedError, "optimizer=LBFGS"),
                (torch.optim.SparseAdam, 0, {}, NotImplementedError, "optimizer=SparseAdam"),
                (adafactor, 2, allowed, NotImplementedError, "optimizer=Adafactor looks at whole matrices.*stage 2"),
                (muon, 1, allowed, NotImplementedError, "looks at whole matrices.*\"type\": \"Muon\".*at every stage"),
                (torch.optim.SGD, 2, {**allowed, "bf16": {"enabled": True, "bf16_master_weights_and_grads": True,
                                                           "bf16_optimizer_states": True}}, outrigger.OutriggerError, "bf16_optimizer_states"),
                (lambda p: torch.optim.Adam(p, differentiable=True), 0, {}, NotImplementedError, "differentiable")):
            with self.subTest(text=text), self.assertRaisesRegex(error, text):
                model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False))
                outrigger.torch.initialize(model=model, optimizer=make(model.parameters()), comm=comm,
                                           config={"zero_optimization": {"stage": stage}, **more})
        for named in ({"type": "RMSprop", "params": {"lr": 1}}, {"type": "SGD", "params": {"lr": 1, "maximize": True}}):
            with self.assertRaisesRegex(ValueError, f"optimizer={named['type']} at zero_optimization.stage 3"):
                outrigger.torch.initialize(model=net(), comm=comm, config={"optimizer": named, "zero_optimization": {"stage": 3}})

    def test_whole_matrices_at_stage_0(self):
        comm, model = outrigger.Comm.self_group(outrigger.Context(workers=1)), net()
        engine, *_ = outrigger.torch.initialize(model=copy.deepcopy(model), comm=comm, config={"gradient_clipping": 0},
                                                optimizer=lambda groups: torch.optim.Adafactor(groups, 0.1))
        optimizer = torch.optim.Adafactor(model.parameters(), 0.1)
        for step in range(2):
            loss_of(model, step).backward()
            optimizer.step()
            optimizer.zero_grad()
            engine.backward(loss_of(engine, step))
            engine.step()
        self.assertLess(furthest(model, engine), BOUND)

    def test_an_optimizer_that_fails(self):
        """Nothing has changed, and the window can be dropped."""
        class Failing(torch.optim.SGD):
            fails = True

            def step(self, closure=None):
                super().step(closure)
                if self.fails:
                    raise ArithmeticError("no")

        comm, model = outrigger.Comm.self_group(outrigger.Context(workers=1)), net()
        client = Failing(model.parameters(), 0.1)
        engine, *_ = outrigger.torch.initialize(model=model, optimizer=client, comm=comm, config={})
        before = master_of(engine)
        engine.backward(loss_of(engine, 0))
        with self.assertRaises(ArithmeticError):
            engine.step()
        self.assertTrue(all(map(torch.equal, before, master_of(engine))))
        self.assertIs(client.param_groups[0]["params"][0], engine.module.a.weight)
        with self.assertRaises(ArithmeticError):
            engine.step()  # again
        engine.zero_grad()
        client.fails = False
        engine.backward(loss_of(engine, 0))
        engine.step()
        self.assertEqual((engine.global_steps, engine.skipped_steps), (1, 0))

    def test_interrupted_while_it_wrote(self):
        comm, model = outrigger.Comm.self_group(outrigger.Context(workers=1)), net()
        engine, *_ = outrigger.torch.initialize(model=copy.deepcopy(model), optimizer=sgd, comm=comm, config={"gradient_clipping": 0})
        engine.backward(loss_of(engine, 0))
        real, calls = lowlevel.engine_local_write, []

        def write(*arguments):
            calls.append(arguments)
            if len(calls) == 3:
                raise KeyboardInterrupt
            real(*arguments)

        with mock.patch.object(lowlevel, "engine_local_write", write):
            with self.assertRaises(KeyboardInterrupt):
                engine.step()
            engine.step()
        self.assertEqual(len(calls), 7)
        optimizer = sgd(model.parameters())
        loss_of(model, 0).backward()
        optimizer.step()
        self.assertLess(furthest(model, engine), BOUND)


if __name__ == "__main__":
    unittest.main()
