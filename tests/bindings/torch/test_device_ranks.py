# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher: engines on a device of each rank, beside the same on the CPU: the same bits. Each rank has data of its
own. The device is CUDA's mock driver (mock_device.py).

    outrigger run -n 2 -- python test_device_ranks.py
"""
import itertools
import unittest
from unittest import mock

import mock_device
import torch
from models import PRECISIONS, config, master_of, net
from torch.utils.checkpoint import checkpoint

import outrigger.torch
from outrigger import lowlevel
from outrigger.torch import devices


class Ranks(unittest.TestCase):
    def setUp(self):
        entered = mock_device.in_use("cuda")
        self.device = entered.__enter__()
        self.addCleanup(entered.__exit__, None, None, None)
        self.live = []
        self.addCleanup(self.destroy)

    def destroy(self):
        while self.live:
            self.live.pop(0).destroy()

    def make(self, there, model, offload=False, persistent=0, **options):
        made = config(**options)
        made["zero_optimization"]["stage3_param_persistence_threshold"] = persistent
        if offload:
            made["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
        if offload == "parameters":
            made["zero_optimization"]["offload_param"] = {"device": "cpu"}
        with mock.patch.dict(devices.KINDS, {"cpu": devices.KINDS["cuda"]} if there else {}):
            engine, *_ = outrigger.torch.initialize(model=model, config=made)
        engine.module.register_forward_pre_hook(self.device.forward)
        self.live.append(engine)
        return engine

    def train(self, engine, steps=3, gas=2):
        losses = []
        for number in range(steps * gas):
            generator = torch.Generator().manual_seed(100 * engine.global_rank + number)
            x, t = torch.randn(8, 6, generator=generator).to(engine.compute_dtype), torch.randn(8, 4, generator=generator)
            losses.append(torch.nn.functional.mse_loss(engine(x).float(), t))
            engine.backward(losses[-1])
            engine.step()
        self.device.synchronize()
        return [each.item() for each in losses]

    def same(self, one, other):
        for a, b in zip(master_of(one), master_of(other), strict=True):
            self.assertTrue(torch.equal(a, b))
        for a, b in zip(one.module.parameters(), other.module.parameters(), strict=True):
            self.assertTrue(torch.equal(a, b))

    def test_has_the_bits_of_the_cpu(self):
        for stage, precision, offload in itertools.product(range(3), PRECISIONS, (False, True)):
            if offload and stage == 0:
                continue
            with self.subTest(stage=stage, precision=precision, offload=offload):
                self.device.stream = self.device.new_stream()
                one, other = (self.make(there, net(), offload, stage=stage, gas=2, clip=0.05, **PRECISIONS[precision]) for there in (True, False))
                self.assertEqual(self.train(one), self.train(other))
                self.same(one, other)

    def test_slices_of_zero_init_go_to_the_device(self):
        sizes = {"inputs": 6, "hidden": 160, "outputs": 4}  # of 64 KiB and more
        with outrigger.torch.zero.Init(device="cuda"):
            model = net(**sizes)
        one, other = self.make(False, model), self.make(False, net(**sizes))
        self.assertGreater(sum(self.device.calls.values()), 0)
        self.assertEqual(self.train(one), self.train(other))
        self.same(one, other)

    def test_slices_are_gathered_at_other_addresses(self):
        """Stage 3: what autograd saves of a parameter is right wherever it is gathered to for the backward."""
        class Uses(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.scale = net(hidden=48), torch.nn.Parameter(torch.linspace(0.5, 1.5, 4))
                self.tied = torch.nn.Linear(48, 48)
                self.tied.weight = self.net.b.weight

            def forward(self, x):
                hidden = torch.tanh(self.net.a(x))
                for reentrant in (False, True):
                    hidden = hidden + checkpoint(lambda y: self.tied(torch.tanh(self.net.b(y))), hidden, use_reentrant=reentrant)
                return self.net.c(hidden @ self.net.b.weight.t()) * self.scale + self.net.c.weight[:, 0].square()

        for precision, offload, persistent in itertools.product(PRECISIONS, (False, True, "parameters"), (0, 200)):
            with self.subTest(precision=precision, offload=offload, persistent=persistent):
                self.device.stream = self.device.new_stream()
                one, other = (self.make(there, Uses(), offload, stage=3, gas=2, clip=0.05, persistent=persistent, **PRECISIONS[precision])
                              for there in (True, False))
                places = set()
                one.module.net.b.register_forward_hook(lambda module, *_, places=places: places.add(module.weight.data_ptr()))
                self.assertEqual(self.train(one), self.train(other))
                with outrigger.torch.zero.GatheredParameters(list(one.module.parameters())):
                    self.same(one, other)
                self.assertEqual(bool(one.parameters_of.gathered), one.world_size > 1 or offload == "parameters")
                if one.parameters_of.gathered:
                    for address, parameter in one.gathering._at.items():
                        self.assertTrue(one.gathering.has(parameter) and parameter.untyped_storage().data_ptr() == address)
                    self.assertGreater(len(places), 1, "the test does not see that addresses change")
                    where = "in host memory" if offload == "parameters" else "in slices on the ranks"
                    self.assertRaisesRegex(RuntimeError, f"is {where} outside of a module's call", torch.sum, one.module.net.b.weight)

    def test_destroy_leaves_whole_parameters(self):
        one, other = (self.make(there, net(), stage=3) for there in (True, False))
        self.train(one)
        self.train(other)
        masters = master_of(other)
        self.destroy()
        for engine in (one, other):
            for a, b in zip(engine.module.parameters(), masters, strict=True):
                self.assertTrue(torch.equal(a.detach(), b))

    def test_a_gathered_weight_is_written(self):
        """Who has gathered it sees the new value, and may give it back in a stream that has waited for the old one."""
        engine = self.make(True, net(hidden=300), stage=3)
        weight = engine.module.b.weight
        for number in range(3):
            self.device.stream = self.device.new_stream()
            with engine.whole([weight]):
                engine.write(weight, torch.full((300, 300), 1.0 + number), lowlevel.VALUE_MASTER)
                seen = self.device.read(weight.detach())
            self.device.synchronize()
            self.assertTrue((seen == 1 + number).all())


if __name__ == "__main__":
    unittest.main()
