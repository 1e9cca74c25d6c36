# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher: OffloadedAdamW over FSDP2's DTensors, against torch.optim.AdamW under the same fully_shard, by
value. Each rank has data of its own. Clipping over all ranks, states as DTensors, torch.distributed.checkpoint, a device whose
copies are late.

    outrigger run -n 2 -- python test_offloaded_adamw_ranks.py
"""
import contextlib
import copy
import functools
import os
import tempfile
import unittest
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from test_offloaded_adamw_device import LateCopies
from torch.distributed.checkpoint import state_dict as dcp_states
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate

from outrigger.torch import OffloadedAdamW, offloaded_adamw

BOUND = {"rtol": 2e-6, "atol": 2e-7}
LOW = {"master": {"format": "bfloat16"}, "exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = torch.nn.Linear(9, 21), torch.nn.Linear(21, 8), torch.nn.Linear(8, 1)  # a rank without rows

    def forward(self, x):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


@functools.cache  # each one makes process groups
def mesh():
    return init_device_mesh("cpu", (dist.get_world_size(),))


def net(dtype=torch.float32, seed=0, mixed=False, on=None):
    torch.manual_seed(seed)
    model = Net().to(dtype)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if mixed else MixedPrecisionPolicy()
    on = on or mesh()
    for each in (model.first, model.second, model.last, model):
        fully_shard(each, mesh=on, mp_policy=policy)
    return model


def backward(model, step, factor=1.0):
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    x = torch.randn(5, 9, generator=generator).to(next(model.parameters()).dtype)
    (factor * model(x).float().square().sum()).backward()


def full(tensor):
    return tensor.full_tensor().detach() if isinstance(tensor, DTensor) else tensor.detach()


class Ranks(unittest.TestCase):
    def alike(self, ours, others, **bound):
        for one, other in zip(ours.parameters(), others.parameters(), strict=True):
            torch.testing.assert_close(full(one), full(other), **(bound or BOUND))

    def same(self, ours, others):
        for one, other in zip(ours.parameters(), others.parameters(), strict=True):
            self.assertTrue(torch.equal(full(one), full(other)))

    def train(self, model, optimizer, steps, between=lambda model: None):
        for step in steps:
            optimizer.zero_grad()
            backward(model, step)
            between(model)
            optimizer.step()

    def late(self):
        """A device in the place of the CPU."""
        copies = LateCopies([])
        return mock.patch.object(offloaded_adamw, "copies_of", lambda device: copies)

    def test_values(self):
        for mixed in (False, True):
            for late in (False, True):
                with self.subTest(mixed=mixed, late=late):
                    ours, others = net(mixed=mixed), net(mixed=mixed)
                    if late:
                        with self.late():
                            optimizer = OffloadedAdamW(ours.parameters(), lr=0.02, weight_decay=0.1)
                    else:
                        optimizer = OffloadedAdamW(ours.parameters(), lr=0.02, weight_decay=0.1)
                    plain = torch.optim.AdamW(others.parameters(), lr=0.02, weight_decay=0.1)
                    self.train(ours, optimizer, range(6))
                    self.train(others, plain, range(6))
                    # In mixed precision a difference of one rounding of float32 may become one of bfloat16 in the next forward.
                    self.alike(ours, others, **({"rtol": 1e-2, "atol": 2e-3} if mixed else BOUND))
                    for one, other in zip(ours.parameters(), others.parameters()):
                        for name in ("exp_avg", "exp_avg_sq"):
                            mine, theirs = optimizer.state[one][name], plain.state[other][name]
                            self.assertEqual((mine.placements, mine.device_mesh, mine.shape), (theirs.placements, theirs.device_mesh, theirs.shape))
                            if not mixed:
                                torch.testing.assert_close(full(mine), full(theirs), **BOUND)

    def test_first_steps_bits(self):
        """One update of a float32 parameter, by the library's kernels over the same slices alone."""
        ours = net()
        optimizer = OffloadedAdamW(ours.parameters(), lr=0.02, weight_decay=0.1)
        backward(ours, 0)
        slices = [torch.nn.Parameter(each.to_local().detach().clone()) for each in ours.parameters()]
        for one, each in zip(slices, ours.parameters()):
            one.grad = each.grad.to_local().clone()
        alone = OffloadedAdamW(slices, lr=0.02, weight_decay=0.1)
        optimizer.step()
        alone.step()
        for one, each in zip(slices, ours.parameters()):
            self.assertTrue(torch.equal(one, each.to_local()))

    def test_clip_grad_norm_after_the_copy(self):
        """It changes the local tensors of DTensors, and no version tells of it."""
        def clip(model):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.2)

        with self.late():
            ours, others = net(), net()
            optimizer = OffloadedAdamW(ours.parameters(), lr=0.02, weight_decay=0.1)
        plain = torch.optim.AdamW(others.parameters(), lr=0.02, weight_decay=0.1)
        self.train(ours, optimizer, range(4), clip)
        self.train(others, plain, range(4), clip)
        self.alike(ours, others)

    def test_the_norm_is_over_all_ranks(self):
        for late in (False, True):
            with self.late() if late else contextlib.nullcontext():
                ours, others = net(), net()
                optimizer = OffloadedAdamW(ours.parameters(), lr=0.02, weight_decay=0.1, max_norm=0.2)
            plain = torch.optim.AdamW(others.parameters(), lr=0.02, weight_decay=0.1)
            for step in range(4):
                for model, each in ((ours, optimizer), (others, plain)):
                    each.zero_grad()
                    backward(model, step)
                exact = float(torch.stack([full(each.grad).double().square().sum() for each in ours.parameters()]).sum().sqrt())
                torch.nn.utils.clip_grad_norm_(others.parameters(), 0.2)
                optimizer.step()
                plain.step()
                self.assertAlmostEqual(optimizer.grad_norm / exact, 1, places=12)
            self.alike(ours, others, rtol=1e-5, atol=1e-6)

    def test_all_ranks_leave_a_step_out(self):
        ours = net()
        optimizer = OffloadedAdamW(ours.parameters(), max_norm=1.0)
        backward(ours, 0)
        before = [full(each).clone() for each in ours.parameters()]
        if dist.get_rank() == dist.get_world_size() - 1:
            ours.first.weight.grad.to_local()[0, 0] = float("nan")
        optimizer.step()
        self.assertEqual(optimizer.skipped_steps, 1)
        for one, each in zip(before, ours.parameters()):
            self.assertTrue(torch.equal(one, full(each)))

    def test_accumulation_without_a_sum_over_ranks(self):
        """FSDP2 keeps whole gradients until the last backward of a window: only its hook comes."""
        with self.late():
            ours, others = net(), net()
            optimizer = OffloadedAdamW(ours.parameters(), lr=0.02, weight_decay=0.1)
        plain = torch.optim.AdamW(others.parameters(), lr=0.02, weight_decay=0.1)
        for window in range(3):
            for model, each in ((ours, optimizer), (others, plain)):
                each.zero_grad()
                for micro in range(3):
                    model.set_requires_gradient_sync(micro == 2 or window == 2)
                    backward(model, 3 * window + micro, 1 / 3)
                each.step()
        self.alike(ours, others)

    def test_ddp(self):
        """Its sum over the ranks comes after the hook that copies a gradient: what was copied is old."""
        results = []
        for late in (True, False):
            torch.manual_seed(0)
            model = Net()
            with self.late() if late else contextlib.nullcontext():
                kind = OffloadedAdamW if late else torch.optim.AdamW
                optimizer = kind(model.parameters(), lr=0.02)
            self.train(torch.nn.parallel.DistributedDataParallel(model), optimizer, range(3))
            results.append(model)
        self.alike(*results)

    def test_masters_of_16_bits(self):
        """Exact masters are those of a float32 model with the same gradients; random numbers differ from rank to rank."""
        ours = net(torch.bfloat16)
        optimizer = OffloadedAdamW(ours.parameters(), lr=0.02)
        masters = [torch.nn.Parameter(full(each).float()) for each in ours.parameters()]
        plain = OffloadedAdamW(masters, lr=0.02)
        for step in range(5):
            optimizer.zero_grad()
            backward(ours, step)
            for one, each in zip(masters, ours.parameters()):
                one.grad = full(each.grad).float()
            optimizer.step()
            plain.step()
        for index, (one, each) in enumerate(zip(masters, ours.parameters())):
            self.assertTrue(torch.equal(full(each), one.bfloat16()))
            self.assertTrue(torch.equal(full(optimizer.state_dict()["state"][index]["master"]), one))
        parameter = torch.nn.Parameter(torch.full((512 * dist.get_world_size(),), 1.0, dtype=torch.bfloat16))
        module = torch.nn.Module()
        module.weight = parameter
        fully_shard(module, mesh=mesh())
        optimizer = OffloadedAdamW(module.parameters(), lr=1e-3, states=LOW)
        module.weight.grad = torch.ones_like(module.weight)
        optimizer.step()
        parts = full(module.weight).view(dist.get_world_size(), 512)
        self.assertGreater(int((parts[0] != parts[0][0]).sum()), 0, "rounded at random")
        for rank in range(1, dist.get_world_size()):
            self.assertFalse(torch.equal(parts[0], parts[rank]))

    def test_replicas_stay_alike(self):
        """Over a mesh that replicates and shards, with random roundings and a norm that counts each element once."""
        world = dist.get_world_size()
        if world == 1:
            self.skipTest("one rank has no replica")
        both = init_device_mesh("cpu", (world, 1), mesh_dim_names=("replicate", "shard"))
        ours = net(torch.bfloat16, on=both)
        optimizer = OffloadedAdamW(ours.parameters(), lr=1e-3, states=LOW, max_norm=0.2)
        self.train(ours, optimizer, range(3))
        exact = float(torch.stack([full(each.grad).double().square().sum() for each in ours.parameters()]).sum().sqrt())
        self.assertAlmostEqual(optimizer.grad_norm / exact, 1, places=12)
        for each in ours.parameters():
            mine = each.to_local().detach().float()
            first = mine.clone()
            dist.broadcast(first, 0)
            self.assertTrue(torch.equal(mine, first))

    def test_state_dicts_in_both_directions(self):
        ours, others = net(), net()
        optimizer, plain = OffloadedAdamW(ours.parameters(), lr=0.02), torch.optim.AdamW(others.parameters(), lr=0.02)
        self.train(ours, optimizer, range(3))
        self.train(others, plain, range(3))
        left, right = net(seed=3), net(seed=4)
        resumed, taken = OffloadedAdamW(left.parameters(), lr=1.0), torch.optim.AdamW(right.parameters(), lr=1.0)
        left.load_state_dict(others.state_dict())
        right.load_state_dict(ours.state_dict())
        resumed.load_state_dict(copy.deepcopy(plain.state_dict()))
        taken.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for model, each in ((ours, optimizer), (others, plain), (left, resumed), (right, taken)):
            self.train(model, each, range(3, 6))
        self.alike(left, others)
        self.alike(right, ours)

    def test_distributed_checkpoint(self):
        """Saved and loaded by torch.distributed.checkpoint, into an optimizer that has made no step: bit for bit."""
        for dtype, states in ((torch.float32, None), (torch.bfloat16, None), (torch.bfloat16, LOW),
                              (torch.bfloat16, {"exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}})):
            with self.subTest(dtype=dtype, states=states):
                whole, model = net(dtype), net(dtype)
                unbroken = OffloadedAdamW(whole.parameters(), lr=0.02, states=states)
                optimizer = OffloadedAdamW(model.parameters(), lr=0.02, states=states)
                self.train(whole, unbroken, range(6))
                self.train(model, optimizer, range(3))
                folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
                dist.broadcast_object_list(folder)
                saved = dict(zip(("model", "optimizer"), dcp_states.get_state_dict(model, optimizer)))
                dcp.save(saved, checkpoint_id=folder[0])
                fresh = net(dtype, seed=7)
                resumed = OffloadedAdamW(fresh.parameters(), lr=1.0, states=states)
                target = dict(zip(("model", "optimizer"), dcp_states.get_state_dict(fresh, resumed)))
                dcp.load(target, checkpoint_id=folder[0])
                dcp_states.set_state_dict(fresh, resumed, model_state_dict=target["model"], optim_state_dict=target["optimizer"])
                self.assertEqual(resumed.param_groups[0]["lr"], 0.02)
                self.train(fresh, resumed, range(3, 6))
                self.same(fresh, whole)

    def test_whole_states(self):
        """full_state_dict gathers whole tensors, and takes them."""
        model, fresh = net(), net(seed=7)
        optimizer, resumed = OffloadedAdamW(model.parameters(), lr=0.02), OffloadedAdamW(fresh.parameters(), lr=1.0)
        self.train(model, optimizer, range(3))
        options = dcp_states.StateDictOptions(full_state_dict=True)
        weights, states = dcp_states.get_state_dict(model, optimizer, options=options)
        self.assertEqual(states["state"]["first.weight"]["exp_avg"].shape, (21, 9))
        self.assertNotIsInstance(states["state"]["first.weight"]["exp_avg"], DTensor)
        dcp_states.set_state_dict(fresh, resumed, model_state_dict=weights, optim_state_dict=states, options=options)
        self.train(fresh, resumed, range(3, 5))
        self.train(model, optimizer, range(3, 5))
        self.same(fresh, model)

    def test_wrong_use(self):
        model = net()
        optimizer = OffloadedAdamW(model.parameters())
        backward(model, 0)
        optimizer.step()
        saved = optimizer.state_dict()
        saved["state"] = {index: {name: full(value) for name, value in state.items()} for index, state in saved["state"].items()}
        with self.assertRaisesRegex(ValueError, "exp_avg of parameter 0 is a plain tensor, the parameter a DTensor placed.*"
                                    "set_optimizer_state_dict"):
            optimizer.load_state_dict(saved)
        optimizer.zero_grad()
        weight = model.first.weight
        weight.grad = DTensor.from_local(torch.ones(21, 9), weight.device_mesh, [Replicate()])
        with self.assertRaisesRegex(ValueError, r"a gradient is placed \(Replicate.*its parameter placed \(Shard.*redistribute"):
            optimizer.step()


if __name__ == "__main__":
    if "RANK" not in os.environ:
        raise SystemExit("start it with a launcher: outrigger run -n 2 -- python test_offloaded_adamw_ranks.py")
    dist.init_process_group("gloo")
    try:
        program = unittest.main(exit=False)
        dist.barrier()
    finally:
        dist.destroy_process_group()
    raise SystemExit(not program.result.wasSuccessful())
