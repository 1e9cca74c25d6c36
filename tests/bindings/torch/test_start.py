# SPDX-License-Identifier: Apache-2.0
"""From a module to an engine: values, by what ranks built, and memory, by the kernel's count.

    outrigger run -n 2 -- python test_start.py
"""
import copy
import os
import unittest

import torch
import torch.distributed as dist
from test_gradients import CONFIGURED, engine_of

import outrigger.torch
from outrigger.torch import sharded, utils, zero

WIDTH = 256  # so that a weight is large enough to be sliced


def ranks():
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)
        # As models of Hugging Face do it, when all is built.
        self.up.weight.data.normal_(0, 0.02)
        with torch.no_grad():
            self.down.weight.mul_(0.5)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


def build(seed, blocks=2):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(*(Block() for _ in range(blocks)), torch.nn.Linear(WIDTH, WIDTH, bias=False))
    torch.nn.init.orthogonal_(model[-1].weight)
    model.register_buffer("scale", torch.linspace(0, 1, WIDTH))
    return model


def masters(engine):
    return {name: utils.safe_get_full_fp32_param(each) for name, each in engine.module.named_parameters()}


class Values(unittest.TestCase):
    def same(self, found, expected):
        for name, value in expected.items():
            self.assertTrue(torch.equal(found[name], value.float()), name)

    def test_of_rank_0_where_ranks_built_others(self):
        expected = dict(build(0).named_parameters())
        for stage in range(4):
            for options in ({}, {"bf16": {"enabled": True}}, {"bf16": {"enabled": True}, "outrigger": {"states": {"master": {"format": "split"}}}}):
                for inside in (True, False):
                    with self.subTest(stage=stage, inside=inside, **options):
                        with zero.Init(enabled=inside):
                            model = build(ranks()[0])
                        engine = engine_of(model, stage, 1, options, apart=stage == 3)
                        # Not rounded to the compute dtype on the way.
                        self.same(masters(engine), expected)
                        self.assertEqual(engine.module.scale.dtype, engine.compute_dtype)
                        engine.destroy()

    def test_rounded_first_as_deepspeed_does(self):
        expected = {name: each.bfloat16() for name, each in build(0).named_parameters()}
        engine = engine_of(build(0), 2, 1, {"bf16": {"enabled": True}, "outrigger": {"round_initial_values": True}})
        self.same(masters(engine), expected)

    def test_trained_as_without(self):
        """A sliced model, and one that was loaded into it, is the model."""
        with zero.Init():
            model = build(1)
        plain = build(2)
        model.load_state_dict(plain.state_dict())
        tied, reference = engine_of(model, 3, 1, CONFIGURED), engine_of(copy.deepcopy(plain), 0, 1, CONFIGURED)
        x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(ranks()[0]))
        for engine in (tied, reference):
            for _ in range(2):
                engine(x).square().mean().backward()
                engine.step()
        for one, other in zip(masters(tied).values(), masters(reference).values()):
            self.assertLess((one - other).abs().max(), 1e-6)


@unittest.skipIf("WORLD_SIZE" not in os.environ or os.environ["WORLD_SIZE"] == "1", "one rank keeps everything")
class Slices(unittest.TestCase):
    def sliced(self, module):
        return [each for each in module.parameters() if sharded.slice_of(each) is not None]

    def whole(self, parameter):
        return sharded.slice_of(parameter) in sharded.slice_of(parameter)._slices.whole

    def test_one_module_is_whole_at_a_time(self):
        with zero.Init():
            model = build(0)
            self.assertLess(sum(map(self.whole, self.sliced(model))), 3)
        found = self.sliced(model)
        self.assertEqual(len(found), 5)
        self.assertEqual(sum(map(self.whole, found)), 0)
        alias = model[0].up.weight.data
        model[1].up.weight.sum()
        model[1].down.weight.sum()
        self.assertEqual([self.whole(each) for each in found], [True, False, False, True, False])
        alias.fill_(3 + ranks()[0])
        del alias
        model[2].weight.sum()
        self.assertEqual(float(model[0].up.weight.detach().float().mean()), 3)

    def test_other_dtype_and_other_data(self):
        with zero.Init():
            model = build(0)
        model.half()
        self.assertEqual({each.dtype for each in model.parameters()}, {torch.float16})
        with zero.GatheredParameters(model[0].up.weight, modifier_rank=1):
            if ranks()[0] == 1:
                model[0].up.weight.data = torch.full_like(model[0].up.weight, 0.25)
        engine = engine_of(model, 3, 1, {})
        self.assertEqual(float(masters(engine)["0.up.weight"].mean()), 0.25)
        self.assertEqual(type(engine.module[0].up.weight).__name__, "Parameter")

    def test_data_of_a_parameter_in_slices(self):
        with zero.Init():
            model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3)))
            model[0].weight.data = torch.full((WIDTH, WIDTH), 2.0)
        model[1].weight.data = torch.full((WIDTH, WIDTH), 3.0)
        engine = engine_of(model, 3, 1, {})
        self.assertEqual([float(masters(engine)[f"{each}.weight"].mean()) for each in (0, 1)], [2, 3])

    def test_a_module_that_is_built(self):
        model = build(ranks()[0])
        zero.Init(module=model)
        self.assertEqual(sum(map(self.whole, self.sliced(model))), 0)
        self.assertTrue(torch.equal(model[2].weight.detach(), build(0)[2].weight.detach()))


if __name__ == "__main__":
    if "WORLD_SIZE" in os.environ:
        outrigger.torch.init_distributed()
    unittest.main()
