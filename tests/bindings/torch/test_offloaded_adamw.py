# SPDX-License-Identifier: Apache-2.0
"""OffloadedAdamW on CPU parameters, against torch.optim.AdamW and Adam, by value: groups, schedules, clipping, loss scales,
states saved and loaded in both directions, formats, and what is refused."""
import copy
import io
import math
import unittest
import weakref

import numpy as np
import torch

from outrigger.torch import OffloadedAdamW

# Of weights up to 1 after some steps at lr 0.02: float32 products in another order.
BOUND = {"rtol": 2e-6, "atol": 2e-7}
FORMATS = {
    "split": ("bfloat16", None),
    "float32": ("bfloat16", {"master": {"format": "float32"}, "exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}),
    "in place": ("bfloat16", {"master": {"format": "bfloat16"}, "exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}),
    "nearest": ("bfloat16", {"master": {"format": "bfloat16", "rounding": "nearest"},
                             "exp_avg": {"format": "bfloat16", "rounding": "nearest"}}),
    "blocks": ("bfloat16", {"exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}}),
    "float16": ("float16", None),
    "float32 alone": ("float32", {"exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "block8"}}),
}


def parameters(dtype="float32", seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(getattr(torch, dtype)))
            for shape in ((15, 31), (6,), (), (0, 3), (2, 3, 4))]


def set_grads(params, step, factor=1.0):
    generator = torch.Generator().manual_seed(100 + step)
    for each in params:
        each.grad = (factor * torch.randn(each.shape, generator=generator)).to(each.dtype)


def go(optimizer, params, steps):
    for step in steps:
        set_grads(params, step)
        optimizer.step()


def groups(params):
    return [{"params": params[:1], "lr": 0.05, "betas": (0.8, 0.95)}, {"params": params[1:], "weight_decay": 0.0}]


class Values(unittest.TestCase):
    def alike(self, ours, theirs, **bound):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.detach(), other.detach(), **(bound or BOUND))

    def pair(self, make=lambda params: params, theirs=torch.optim.AdamW, own=None, dtype="float32", **options):
        ours, others = parameters(dtype), parameters(dtype)
        options = {"lr": 0.02, "weight_decay": 0.1, **options}
        return ours, OffloadedAdamW(make(ours), **options, **(own or {})), others, theirs(make(others), **options)

    def test_are_adamws(self):
        for options in ({}, {"maximize": True}, {"betas": (0.5, 0.9), "eps": 1e-3}, {"lr": torch.tensor(0.03)}):
            with self.subTest(**options):
                ours, optimizer, others, plain = self.pair(groups, **options)
                go(optimizer, ours, range(12))
                go(plain, others, range(12))
                self.alike(ours, others)
                for one, other in zip(ours, others):
                    self.assertEqual(optimizer.state[one]["step"], plain.state[other]["step"])
                    for name in ("exp_avg", "exp_avg_sq"):
                        torch.testing.assert_close(optimizer.state[one][name], plain.state[other][name], **BOUND)

    def test_are_adams(self):
        ours, optimizer, others, plain = self.pair(groups, torch.optim.Adam, own={"decoupled_weight_decay": False})
        go(optimizer, ours, range(12))
        go(plain, others, range(12))
        self.alike(ours, others)

    def test_gradients_are_read_where_they_are(self):
        """Of other dtypes and layouts, too; none is held after the step, none is changed."""
        ours, optimizer, others, plain = self.pair()
        for step in range(3):
            set_grads(ours, step)
            ours[0].grad = ours[0].grad.t().contiguous().t()
            kept = [each.grad.clone() for each in ours]
            optimizer.step()
            for each, before in zip(ours, kept):
                self.assertTrue(torch.equal(each.grad, before))
            set_grads(others, step)
            plain.step()
        self.alike(ours, others)
        memory = np.ones((15, 31), np.float32)
        ours[0].grad = torch.from_numpy(memory)
        gone = weakref.ref(memory)
        del memory
        optimizer.step()
        self.assertIsNotNone(gone())
        optimizer.zero_grad()
        self.assertIsNone(gone())

    def test_any_dense_layout(self):
        weight = torch.randn(4, 3, 2, 2)
        ours = torch.nn.Parameter(weight.contiguous(memory_format=torch.channels_last))
        other = torch.nn.Parameter(weight.clone())
        optimizer, plain = OffloadedAdamW([ours], lr=0.02), torch.optim.AdamW([other], lr=0.02)
        for step in range(3):
            set_grads([ours], step)
            set_grads([other], step)
            optimizer.step()
            plain.step()
        self.alike([ours], [other])
        torch.testing.assert_close(optimizer.state[ours]["exp_avg"], plain.state[other]["exp_avg"], **BOUND)
        gaps = torch.nn.Parameter(torch.ones(4, 6)[:, ::2])
        gaps.grad = torch.ones(4, 3)
        with self.assertRaisesRegex(ValueError, r"parameter 0 has shape \(4, 3\) and strides \(6, 2\), with gaps.*contiguous"):
            OffloadedAdamW([gaps]).step()

    def test_schedulers_and_changed_values(self):
        ours, optimizer, others, plain = self.pair(groups)
        schedules = [torch.optim.lr_scheduler.LambdaLR(each, [lambda step: 0.5**step, lambda step: 1 + step]) for each in (optimizer, plain)]
        for step in range(5):
            for each, params, schedule in ((optimizer, ours, schedules[0]), (plain, others, schedules[1])):
                set_grads(params, step)
                each.step()
                schedule.step()
                each.param_groups[0]["weight_decay"] = 0.01 * step
        self.alike(ours, others)

    def test_a_group_that_comes_later(self):
        ours, optimizer, others, plain = self.pair(lambda params: params[:2])
        go(optimizer, ours[:2], range(2))
        go(plain, others[:2], range(2))
        optimizer.add_param_group({"params": ours[2:], "lr": 0.1})
        plain.add_param_group({"params": others[2:], "lr": 0.1})
        go(optimizer, ours, range(2, 5))
        go(plain, others, range(2, 5))
        self.alike(ours, others)
        self.assertEqual([int(optimizer.state[each]["step"]) for each in ours], [5, 5, 3, 3, 3])

    def test_without_a_gradient_nothing_is_made_or_changed(self):
        ours, optimizer, others, plain = self.pair()
        ours[1].requires_grad_(False)
        before = ours[1].clone(), ours[4].clone()
        set_grads([ours[0], ours[2]], 0)
        set_grads([others[0], others[2]], 0)
        optimizer.step()
        plain.step()
        self.alike(ours, others)
        self.assertEqual(set(optimizer.state), {ours[0], ours[2]})
        self.assertTrue(torch.equal(ours[1], before[0]) and torch.equal(ours[4], before[1]))
        ours[1].requires_grad_(True)  # thawed
        go(optimizer, ours, range(1, 3))
        self.assertEqual([int(optimizer.state[each]["step"]) for each in ours], [3, 2, 3, 2, 2])

    def test_closure_and_hooks(self):
        parameter = torch.nn.Parameter(torch.ones(3))
        optimizer = OffloadedAdamW([parameter], lr=0.5, weight_decay=0)
        called = []
        optimizer.register_step_post_hook(lambda *_: called.append(1))

        def closure():
            optimizer.zero_grad()
            loss = (parameter * 3).sum()
            loss.backward()
            return loss

        self.assertEqual(optimizer.step(closure), 9)
        torch.testing.assert_close(parameter.detach(), torch.full((3,), 0.5))
        self.assertEqual(called, [1])

    def test_autograd_sees_the_update(self):
        parameter = torch.nn.Parameter(torch.ones(3))
        optimizer = OffloadedAdamW([parameter])
        kept = (parameter * parameter).sum()
        parameter.grad = torch.ones(3)
        optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            kept.backward()

    def test_clipping(self):
        for factor in (0.001, 30.0):
            ours, optimizer, others, plain = self.pair(groups, own={"max_norm": 1.5})
            for step in range(4):
                set_grads(ours, step, factor)
                set_grads(others, step, factor)
                norm = torch.nn.utils.clip_grad_norm_(others, 1.5)
                optimizer.step()
                plain.step()
                exact = math.sqrt(sum(float(each.grad.double().square().sum()) for each in ours))
                self.assertAlmostEqual(optimizer.grad_norm / exact, 1, places=12)
                self.assertAlmostEqual(optimizer.grad_norm / float(norm), 1, places=5)
            self.alike(ours, others, rtol=1e-5, atol=1e-6)

    def test_what_is_not_finite_is_left_out_under_a_norm(self):
        for value in (math.inf, math.nan):
            ours, optimizer, _, _ = self.pair(own={"max_norm": math.inf})
            go(optimizer, ours, range(2))
            before, state = [each.detach().clone() for each in ours], copy.deepcopy(optimizer.state_dict()["state"])
            set_grads(ours, 2)
            ours[4].grad[1, 2, 3] = value
            optimizer.step()
            self.assertEqual((optimizer.skipped_steps, optimizer.grad_norm), (1, math.inf))
            self.assertTrue(all(map(torch.equal, ours, before)))
            for index, after in optimizer.state_dict()["state"].items():
                for name in after:
                    self.assertTrue(torch.equal(after[name], state[index][name]))
            go(optimizer, ours, range(3, 4))
            self.assertEqual(int(optimizer.state[ours[0]]["step"]), 3)

    def test_without_a_norm_it_is_torchs(self):
        ours, optimizer, others, plain = self.pair()
        for params, each in ((ours, optimizer), (others, plain)):
            set_grads(params, 0)
            params[0].grad[2, 3] = math.nan
            each.step()
        self.assertTrue(torch.equal(ours[0].isnan(), others[0].isnan()))
        self.assertEqual(int(ours[0].isnan().sum()), 1)

    def test_grad_scaler(self):
        """It may unscale before, or leave it to the step; a step with Inf is left out and the scale falls."""
        for unscaled in (False, True):
            for own in ({}, {"max_norm": 2.0}):
                ours, optimizer, others, plain = self.pair(own=own)
                scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=100)
                applied = 0
                for step in range(5):
                    set_grads(ours, step, 1024.0 if step < 3 else 512.0)
                    scaler.scale(torch.zeros(1))  # makes its tensors
                    if step == 2:
                        ours[0].grad[0, 0] = math.inf
                    if unscaled:
                        scaler.unscale_(optimizer)
                    scaler.step(optimizer)
                    scaler.update()
                    if step != 2:
                        applied += 1
                        set_grads(others, step)
                        if own:
                            torch.nn.utils.clip_grad_norm_(others, 2.0)
                        plain.step()
                self.assertEqual(scaler.get_scale(), 512.0)
                self.assertEqual(int(optimizer.state[ours[0]]["step"]), applied)
                self.alike(ours, others, rtol=1e-5, atol=1e-6)


class Masters(unittest.TestCase):
    def make(self, kind, seed=0, **options):
        dtype, states = FORMATS[kind]
        params = parameters(dtype, seed)
        return params, OffloadedAdamW(groups(params), lr=0.02, weight_decay=0.1, states=states, seed=7, **options)

    def test_exact_masters_are_a_float32_run(self):
        """With gradients of 16 bits the master is what float32 weights would be, and the parameter that one, rounded."""
        for kind in ("split", "float16"):
            dtype = FORMATS[kind][0]
            params, optimizer = self.make(kind)
            full = [torch.nn.Parameter(each.detach().float()) for each in params]
            other = OffloadedAdamW(groups(full), lr=0.02, weight_decay=0.1)
            for step in range(8):
                set_grads(params, step)
                for each, low in zip(full, params):
                    each.grad = low.grad.float()
                optimizer.step()
                other.step()
            for index, each in enumerate(full):
                master = optimizer.state_dict()["state"][index]["master"]
                self.assertTrue(torch.equal(master, each))
                self.assertTrue(torch.equal(params[index], each.to(getattr(torch, dtype))))

    def test_formats_are_near_a_float32_run(self):
        bounds = {"split": 0.03, "float32": 0.02, "in place": 0.05, "nearest": 0.05, "blocks": 0.1, "float16": 0.002, "float32 alone": 0.1}
        for kind, bound in bounds.items():
            params, optimizer = self.make(kind)
            others = [torch.nn.Parameter(each.detach().float().clone()) for each in params]
            plain = torch.optim.AdamW(groups(others), lr=0.02, weight_decay=0.1)
            go(optimizer, params, range(8))
            go(plain, others, range(8))
            distance = max(float((one.float() - other).detach().abs().max()) for one, other in zip(params, others) if one.numel())
            self.assertLess(distance, bound, kind)
            self.assertGreater(distance, 0, kind)

    def test_bytes(self):
        for kind, each in (("split", 2 + 8), ("float32", 4 + 4), ("in place", 4), ("nearest", 2 + 4), ("float16", 4 + 8)):
            dtype, states = FORMATS[kind]
            parameter = torch.nn.Parameter(torch.ones(4096, dtype=getattr(torch, dtype)))
            optimizer = OffloadedAdamW([parameter], states=states)
            self.assertEqual(optimizer.host_bytes(), {"states": 0, "gradients": 0})
            go(optimizer, [parameter], range(1))
            self.assertEqual(optimizer.host_bytes(), {"states": 4096 * each, "gradients": 0}, kind)
        parameter = torch.nn.Parameter(torch.ones(4096, dtype=torch.bfloat16))
        optimizer = OffloadedAdamW([parameter], states=FORMATS["blocks"][1])
        go(optimizer, [parameter], range(1))
        self.assertEqual(optimizer.host_bytes()["states"], 4096 * 2 + 2 * 16 * 260)

    def test_saved_and_loaded_is_unbroken(self):
        """Through a file, in every format, stochastic rounding included, bit for bit; whatever is loaded first."""
        for kind in FORMATS:
            for weights_first in (True, False):
                with self.subTest(kind, weights_first=weights_first):
                    unbroken, whole = self.make(kind)
                    go(whole, unbroken, range(6))
                    first, optimizer = self.make(kind)
                    go(optimizer, first, range(3))
                    file = io.BytesIO()
                    torch.save({"weights": [each.detach() for each in first], "optimizer": optimizer.state_dict()}, file)
                    go(optimizer, first, range(3, 4))  # what was saved is in the file
                    file.seek(0)
                    saved = torch.load(file)
                    second, resumed = self.make(kind, seed=9)
                    go(resumed, second, range(20, 22))
                    for part in (0, 1) if weights_first else (1, 0):
                        if part == 1:
                            resumed.load_state_dict(saved["optimizer"])
                        else:
                            with torch.no_grad():
                                for each, value in zip(second, saved["weights"]):
                                    each.copy_(value)
                    again = resumed.state_dict()["state"]
                    for index, state in saved["optimizer"]["state"].items():
                        self.assertEqual(set(state), set(again[index]))
                        for name, value in state.items():
                            self.assertTrue(torch.equal(value, again[index][name]), name)
                    go(resumed, second, range(3, 6))
                    for one, other in zip(unbroken, second):
                        self.assertTrue(torch.equal(one, other))
                    left, right = whole.state_dict()["state"], resumed.state_dict()["state"]
                    for index in left:
                        for name in left[index]:
                            self.assertTrue(torch.equal(left[index][name], right[index][name]), name)

    def test_loaded_states_are_copies(self):
        first, optimizer = self.make("split")
        go(optimizer, first, range(2))
        second, other = self.make("split")
        other.load_state_dict(optimizer.state_dict())
        moments = other.state[second[0]]["exp_avg"].clone()
        go(optimizer, first, range(2, 4))
        self.assertTrue(torch.equal(moments, other.state[second[0]]["exp_avg"]))

    def test_torchs_states_in_both_directions(self):
        for theirs, decoupled in ((torch.optim.AdamW, True), (torch.optim.Adam, False)):
            with self.subTest(theirs.__name__):
                ours, others = parameters(), parameters()
                options = {"lr": 0.02, "weight_decay": 0.1}
                optimizer = OffloadedAdamW(groups(ours), **options, decoupled_weight_decay=decoupled)
                plain = theirs(groups(others), **options)
                go(optimizer, ours, range(3))
                go(plain, others, range(3))
                for source, target, from_, to in ((plain, OffloadedAdamW(groups(fresh := parameters(seed=3)), lr=1.0), others, fresh),
                                                  (optimizer, theirs(groups(other := parameters(seed=4)), lr=1.0), ours, other)):
                    with torch.no_grad():
                        for each, value in zip(to, from_):
                            each.copy_(value)
                    target.load_state_dict(copy.deepcopy(source.state_dict()))  # PyTorch's takes it by reference
                    go(target, to, range(3, 6))
                    self.assertEqual(target.param_groups[1]["lr"], 0.02)
                    self.assertEqual(target.param_groups[0]["decoupled_weight_decay"], decoupled)
                go(plain, others, range(3, 6))
                go(optimizer, ours, range(3, 6))
                for each, one in zip(fresh, others):
                    torch.testing.assert_close(each, one, **BOUND)
                for each, one in zip(other, ours):
                    torch.testing.assert_close(each, one, **BOUND)

    def test_states_of_an_older_release(self):
        params, optimizer = self.make("split")
        go(optimizer, params, range(2))
        saved = optimizer.state_dict()
        for group in saved["param_groups"]:
            for name in ("decoupled_weight_decay", "maximize", "fused", "capturable"):
                del group[name]
        optimizer.load_state_dict(saved)
        go(optimizer, params, range(2, 3))
        self.assertTrue(optimizer.param_groups[0]["decoupled_weight_decay"])

    def test_what_others_write_counts(self):
        """In place, through .data and at another place; what was not changed keeps its master."""
        for kind in ("split", "float32", "in place", "float16", "float32 alone"):
            for way in range(3):
                with self.subTest(kind, way=way):
                    params, optimizer = self.make(kind)
                    go(optimizer, params, range(3))
                    weight, before = params[0], params[0].detach().clone()
                    values = before.clone()
                    values[3] = 2.5
                    if way == 0:
                        with torch.no_grad():
                            weight[3] = 2.5
                    elif way == 1:
                        weight.data[3] = 2.5
                    else:
                        weight.data = values.clone()
                    other, fresh = self.make(kind)
                    with torch.no_grad():
                        for one, value in zip(other, params):
                            one.copy_(value)
                    saved = optimizer.state_dict()
                    for state in saved["state"].values():
                        state.pop("master", None)
                    fresh.load_state_dict(saved)
                    self.assertTrue(torch.equal(params[0], values))
                    go(optimizer, params, range(3, 4))
                    go(fresh, other, range(3, 4))
                    near = 0.02 if kind == "split" and way == 1 else 0  # the lower half stays with the new upper one
                    self.assertLessEqual(float((params[0][3].float() - other[0][3].float()).detach().abs().max()), near)
                    self.assertLess(float((params[0] - values).detach().abs().max()), 0.3)

    def test_apart_masters_keep_what_was_not_written(self):
        params, optimizer = self.make("float32")
        unbroken, whole = self.make("float32")
        go(whole, unbroken, range(5))
        go(optimizer, params, range(3))
        with torch.no_grad():
            params[0][3] = 2.5
        go(optimizer, params, range(3, 5))
        rest = [row for row in range(15) if row != 3]
        self.assertTrue(torch.equal(optimizer.state[params[0]]["master"][rest], whole.state[unbroken[0]]["master"][rest]))
        self.assertLess(float((optimizer.state[params[0]]["master"][3] - 2.5).abs().max()), 0.3)

    def test_a_parameter_at_another_place_goes_on(self):
        for kind in ("split", "float32", "in place", "float16", "float32 alone", "blocks"):
            params, optimizer = self.make(kind)
            unbroken, whole = self.make(kind)
            go(whole, unbroken, range(5))
            go(optimizer, params, range(3))
            for each in params:
                each.data = each.data.clone()
            go(optimizer, params, range(3, 5))
            for one, other in zip(unbroken, params):
                self.assertTrue(torch.equal(one, other), kind)
            if kind == "split":
                masters = [each.state_dict()["state"][0]["master"] for each in (whole, optimizer)]
                self.assertTrue(torch.equal(*masters))

    def test_states_that_are_changed(self):
        for kind in ("split", "in place"):
            params, optimizer = self.make(kind)
            go(optimizer, params, range(3))
            state = optimizer.state[params[4]]
            state["exp_avg"].zero_()
            state["exp_avg_sq"] = assigned = torch.full((2, 3, 4), 4.0)
            state["step"] = 50
            go(optimizer, params, range(3, 4))
            self.assertEqual(int(optimizer.state[params[4]]["step"]), 51)
            self.assertTrue(torch.equal(assigned, torch.full((2, 3, 4), 4.0)), "it is copied")
            self.assertIsNot(optimizer.state[params[4]]["exp_avg_sq"], assigned)
            torch.testing.assert_close(optimizer.state[params[4]]["exp_avg_sq"].float(),
                                       0.999 * 4 + 0.001 * params[4].grad.float().square(), rtol=0.01, atol=0)
            torch.testing.assert_close(optimizer.state[params[4]]["exp_avg"].float(), 0.1 * params[4].grad.float(), rtol=0.02, atol=1e-6)
        optimizer.state.clear()
        go(optimizer, params, range(1))
        self.assertEqual(int(optimizer.state[params[4]]["step"]), 1)


if __name__ == "__main__":
    unittest.main()
