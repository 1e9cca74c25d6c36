# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher, which share memory: what scripts write into parameters, what one rank alone has, and two models
under one loss.

    outrigger run -n 2 -- python test_ranks_together.py
"""
import copy
import types
import unittest

import torch
import torch.distributed as dist
from faults import FAULTS
from models import DTYPES, PRECISIONS, SGD, Rounded, differences, engine_of, furthest, moved_otherwise, net, sgd
from torch.nn.parallel import DistributedDataParallel

import outrigger.torch
from outrigger.process import process_comm
from outrigger.torch.utils import safe_get_full_grad, safe_get_local_fp32_param


class Together(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        outrigger.torch.init_distributed()
        self.comm = process_comm()

    def backward(self, engine, seed=0):
        generator = torch.Generator().manual_seed(10 * seed + self.comm.rank)
        engine(torch.randn(8, 6, generator=generator)).square().mean().backward()

    def test_loaded_and_gathered(self):
        for stage in range(4):
            with self.subTest(stage=stage):
                engine, other = engine_of(net(), comm=self.comm, stage=stage), net(3)
                engine.module.load_state_dict(other.state_dict())
                self.assertEqual(furthest(other, engine), 0)
                last = self.comm.size - 1
                with outrigger.torch.zero.GatheredParameters([engine.module.a.weight, engine.module.c.bias], modifier_rank=last):
                    if self.comm.rank == last:
                        engine.module.a.weight.data.mul_(2)
                        engine.module.c.bias.data.fill_(0.5)
                    else:
                        engine.module.a.weight.data.zero_()  # not the modifier: without effect
                with torch.no_grad():
                    other.a.weight.mul_(2)
                    other.c.bias.fill_(0.5)
                self.assertEqual(differences(other, engine).max(), 0)
                self.backward(engine)
                engine.step()
                self.assertEqual(engine.global_steps, 1)
                engine.destroy()

    def test_written_by_each_rank(self):
        for stage in range(4):
            with self.subTest(stage=stage):
                engine = engine_of(net(), comm=self.comm, stage=stage)
                with torch.no_grad():
                    engine.module.a.weight.mul_(0.5)
                if stage < 3 or self.comm.size == 1:
                    self.backward(engine)
                    engine.step()
                    model = net()
                    with torch.no_grad():
                        model.a.weight.mul_(0.5)
                    self.assertLess(furthest(model, engine), 0.011)  # one step of lr 0.01
                else:
                    with self.assertRaisesRegex(RuntimeError, "share its memory"):
                        self.backward(engine)
                dist.barrier()

    def test_a_rank_without_data(self):
        """It makes its step all the same; the others' gradients are averaged over all."""
        engine = engine_of(net(), comm=self.comm, stage=2)
        for _step in range(3):
            if self.comm.rank == 0:
                engine(torch.ones(8, 6)).square().mean().backward()
            engine.step()
            self.assertGreater(engine.get_global_grad_norm(), 0)
        self.assertEqual(engine.global_steps, 3)

    def test_gradients_and_pieces(self):
        engine, model = engine_of(net(), comm=self.comm, stage=3), net()
        self.backward(engine)
        for rank in range(self.comm.size):
            generator = torch.Generator().manual_seed(rank)
            (model(torch.randn(8, 6, generator=generator)).square().mean() / self.comm.size).backward()
        for mine, plain in zip(engine.module.parameters(), model.parameters()):
            torch.testing.assert_close(safe_get_full_grad(mine), plain.grad, atol=1e-6, rtol=0)
            torch.testing.assert_close(mine.grad, plain.grad, atol=1e-6, rtol=0)
        pieces = [None] * self.comm.size
        dist.all_gather_object(pieces, sum(len(safe_get_local_fp32_param(each)) for each in engine.module.parameters()))
        self.assertEqual(sum(pieces), sum(each.numel() for each in model.parameters()))


class TwoModels(unittest.TestCase):
    """Under one loss, which joins their gradients: two engines against DistributedDataParallel of both models. Accumulated, the
    second clipped; each rank has data of its own."""
    STEPS, GAS, CLIPS = 2, 3, (0, 0.05)
    LOSSES = {"summed": lambda a, b: a + 0.5 * b, "multiplied": lambda a, b: a * b}

    def setUp(self):
        torch.set_num_threads(1)
        outrigger.torch.init_distributed()
        self.comm = process_comm()
        self.models = net(), net(3)

    def loss(self, models, name, precision, seed):
        generator = torch.Generator().manual_seed(10 * seed + self.comm.rank)
        x, *targets = (torch.randn(8, size, generator=generator) for size in (6, 4, 4))
        each = [torch.nn.functional.mse_loss(model(x.to(DTYPES[precision])).float(), t) for model, t in zip(models, targets)]
        return self.LOSSES[name](*each)

    def expected(self, name, precision):
        plain = [copy.deepcopy(model) for model in self.models]
        optimizers = [sgd(model) for model in plain]
        parallel = [DistributedDataParallel(Rounded(model, DTYPES[precision])) for model in plain]
        scale = 2.0**10 if precision == "fp16" else 1
        for step in range(self.STEPS):
            for micro in range(self.GAS):
                for model in parallel:
                    model.require_backward_grad_sync = micro == self.GAS - 1
                (self.loss(parallel, name, precision, self.GAS * step + micro) * (scale / self.GAS)).backward()
            for model, optimizer, clip in zip(plain, optimizers, self.CLIPS):
                for parameter in model.parameters():
                    parameter.grad /= scale
                if clip:
                    self.assertGreater(torch.nn.utils.clip_grad_norm_(model.parameters(), clip), 2 * clip)
                optimizer.step()
                optimizer.zero_grad()
        return plain

    def differ(self, expected, name, precision, stages):
        """How each of the two engines does, or None."""
        engines = [engine_of(model, comm=self.comm, stage=stage, gas=self.GAS, clip=clip, optimizer=SGD, **PRECISIONS[precision])
                   for model, clip, stage in zip(self.models, self.CLIPS, stages)]
        for micro in range(self.GAS * self.STEPS):
            self.loss(engines, name, precision, micro).backward()
            for engine in engines:
                engine.step()
        how = [moved_otherwise(*each, precision) for each in zip(self.models, expected, engines)]
        for engine in engines:
            engine.destroy()
        return how

    def test_against_torch(self):
        for name in self.LOSSES:
            for precision in PRECISIONS:
                expected = self.expected(name, precision)
                for stages in ((0, 0), (1, 1), (2, 2), (3, 3), (3, 0)):
                    with self.subTest(name, precision=precision, stages=stages):
                        self.assertEqual(self.differ(expected, name, precision, stages), [None, None])

    def test_faults_are_seen(self):
        for precision in PRECISIONS:
            expected = self.expected("multiplied", precision)
            cases = [types.SimpleNamespace(precision=precision, gas=self.GAS, clip=clip, rule=types.SimpleNamespace(name="SGD"))
                     for clip in self.CLIPS]
            for index, (name, fault) in enumerate(FAULTS.items()):
                with self.subTest(name, precision=precision), fault.put_in():
                    how = self.differ(expected, "multiplied", precision, (index % 4, (index + 2) % 4))
                    for case, text in zip(cases, how):
                        if fault.shows(case):
                            self.assertIsNotNone(text, f"clip {case.clip}")


if __name__ == "__main__":
    unittest.main()
