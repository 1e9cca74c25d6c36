# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher: engines on a device of each rank, beside the same on the CPU: the same bits. Each rank has data of its
own. The device is CUDA's mock driver (mock_device.py).

    outrigger run -n 2 -- python test_device_ranks.py
"""
import copy
import itertools
import unittest
from unittest import mock

import mock_device
import torch
from models import PRECISIONS, config, master_of, net

import outrigger.torch
from outrigger.process import process_comm
from outrigger.torch import devices


class Ranks(unittest.TestCase):
    def setUp(self):
        entered = mock_device.in_use("cuda")
        self.device = entered.__enter__()
        self.addCleanup(entered.__exit__, None, None, None)

    def make(self, there, model, offload=False, **options):
        made = config(**options)
        if offload:
            made["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
        with mock.patch.dict(devices.KINDS, {"cpu": devices.KINDS["cuda"]} if there else {}):
            engine, *_ = outrigger.torch.initialize(model=model, config=made)
        engine.module.register_forward_pre_hook(self.device.forward)
        self.addCleanup(engine.destroy)
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

    def test_stage_3(self):
        model = net()
        if process_comm().size > 1:
            self.assertRaisesRegex(NotImplementedError, r"zero_optimization.stage 3 on 2 ranks is not supported with parameters on .*use stage 2",
                                   self.make, True, copy.deepcopy(model), stage=3)
        other = self.make(False, model, stage=3)
        self.train(other)


if __name__ == "__main__":
    unittest.main()
