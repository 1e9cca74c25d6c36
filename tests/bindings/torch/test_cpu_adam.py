# SPDX-License-Identifier: Apache-2.0
"""CPUAdam as an optimizer of PyTorch: its states are there to look at, to save, to load and to change, by value; DeepSpeed's
subgroups."""
import io
import unittest

import torch

from outrigger.torch import CPUAdam

FORMATS = {"float32": (torch.float32, True), "bf16": (torch.bfloat16, True), "bf16 moments": (torch.bfloat16, False)}


def parameters(dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in ((5, 7), (3,))]


def grads(params, step):
    generator = torch.Generator().manual_seed(100 + step)
    for each in params:
        each.grad = torch.randn(each.shape, generator=generator).to(each.dtype)


def go(optimizer, params, steps):
    for step in steps:
        grads(params, step)
        optimizer.step()


class States(unittest.TestCase):
    def make(self, kind, seed=0):
        dtype, full = FORMATS[kind]
        params = parameters(dtype, seed)
        return params, CPUAdam([{"params": params[:1]}, {"params": params[1:], "lr": 0.05}], lr=0.02, weight_decay=0.1,
                               fp32_optimizer_states=full)

    def test_layout(self):
        for kind, (dtype, full) in FORMATS.items():
            with self.subTest(kind):
                params, optimizer = self.make(kind)
                self.assertEqual(len(optimizer.state), 0)
                go(optimizer, params, range(2))
                for each in params:
                    state = optimizer.state[each]
                    self.assertEqual(list(state), ["step", "exp_avg", "exp_avg_sq"])
                    self.assertEqual(state["step"], 2)
                    for name in ("exp_avg", "exp_avg_sq"):
                        self.assertEqual((state[name].shape, state[name].dtype), (each.shape, torch.float32 if full else dtype))
                self.assertEqual(set(optimizer.state_dict()["state"]), {0, 1})

    def test_values_are_adams(self):
        params, optimizer = self.make("float32")
        others = parameters()
        plain = torch.optim.AdamW([{"params": others[:1]}, {"params": others[1:], "lr": 0.05}], lr=0.02, weight_decay=0.1)
        go(optimizer, params, range(4))
        go(plain, others, range(4))
        for ours, theirs in zip(params, others):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
            for name in ("exp_avg", "exp_avg_sq"):
                torch.testing.assert_close(optimizer.state[ours][name], plain.state[theirs][name], rtol=1e-6, atol=1e-7)

    def test_saved_and_loaded_is_unbroken(self):
        for kind in FORMATS:
            with self.subTest(kind):
                unbroken, whole = self.make(kind)
                go(whole, unbroken, range(6))
                first, optimizer = self.make(kind)
                go(optimizer, first, range(3))
                file = io.BytesIO()
                torch.save({"weights": [each.detach() for each in first], "optimizer": optimizer.state_dict()}, file)
                go(optimizer, first, range(3, 4))  # what was saved is a copy in the file
                file.seek(0)
                saved = torch.load(file)
                second, resumed = self.make(kind, seed=9)
                with torch.no_grad():
                    for each, value in zip(second, saved["weights"]):
                        each.copy_(value)
                resumed.load_state_dict(saved["optimizer"])
                self.assertEqual(resumed.state[second[0]]["step"], 3)
                go(resumed, second, range(3, 6))
                for one, other in zip(unbroken, second):
                    self.assertTrue(torch.equal(one, other))
                    for name in ("exp_avg", "exp_avg_sq"):
                        self.assertTrue(torch.equal(whole.state[one][name], resumed.state[other][name]))

    def test_loaded_into_an_optimizer_that_has_stepped(self):
        params, optimizer = self.make("float32")
        go(optimizer, params, range(2))
        saved = {"weights": [each.detach().clone() for each in params], "optimizer": io.BytesIO()}
        torch.save(optimizer.state_dict(), saved["optimizer"])
        go(optimizer, params, range(2, 5))
        after = [each.detach().clone() for each in params]
        with torch.no_grad():
            for each, value in zip(params, saved["weights"]):
                each.copy_(value)
        saved["optimizer"].seek(0)
        optimizer.load_state_dict(torch.load(saved["optimizer"]))
        go(optimizer, params, range(2, 5))
        for each, value in zip(params, after):
            self.assertTrue(torch.equal(each, value))

    def test_moments_keep_their_bits_across_dtypes(self):
        params, optimizer = self.make("float32")
        go(optimizer, params, range(3))
        lower, other = self.make("bf16")
        other.load_state_dict(optimizer.state_dict())
        half, coarse = self.make("bf16 moments")
        coarse.load_state_dict(optimizer.state_dict())
        for full, low, rounded in zip(params, lower, half):
            for name in ("exp_avg", "exp_avg_sq"):
                self.assertTrue(torch.equal(optimizer.state[full][name], other.state[low][name]))
                self.assertTrue(torch.equal(optimizer.state[full][name].bfloat16(), coarse.state[rounded][name]))
        go(other, lower, range(3, 4))
        self.assertEqual(other.state[lower[0]]["step"], 4)

    def test_states_of_torch_are_taken(self):
        others = parameters()
        plain = torch.optim.AdamW([{"params": others[:1]}, {"params": others[1:], "lr": 0.05}], lr=0.02, weight_decay=0.1)
        go(plain, others, range(3))
        params, optimizer = self.make("float32")
        with torch.no_grad():
            for each, value in zip(params, others):
                each.copy_(value)
        optimizer.load_state_dict({"state": plain.state_dict()["state"], "param_groups": optimizer.state_dict()["param_groups"]})
        go(plain, others, range(3, 6))
        go(optimizer, params, range(3, 6))
        for each, value in zip(params, others):
            torch.testing.assert_close(each, value, rtol=1e-6, atol=1e-7)

    def test_other_states_are_refused(self):
        others = parameters()
        plain = torch.optim.SGD(others, lr=0.1, momentum=0.9)
        go(plain, others, range(1))
        with self.assertRaisesRegex(ValueError, "states of parameter 0 are 'momentum_buffer'; CPUAdam needs 'step'"):
            CPUAdam(parameters()).load_state_dict(plain.state_dict())

    def test_what_is_changed_holds(self):
        """In place and assigned; a cleared state begins anew."""
        results = []
        for change in (lambda state: [state[name].zero_() for name in ("exp_avg", "exp_avg_sq")] + [state.update(step=0)],
                       lambda state: state.update(step=0, exp_avg=torch.zeros(3), exp_avg_sq=torch.zeros(3, dtype=torch.float64)),
                       lambda state: state.clear(), None):
            params, optimizer = self.make("float32")
            go(optimizer, params, range(3))
            with torch.no_grad():
                params[1].fill_(1)
            if change is None:
                fresh = torch.nn.Parameter(torch.ones(3))
                params, optimizer = [params[0], fresh], CPUAdam([params[0], fresh], lr=0.05, weight_decay=0.1)
            else:
                change(optimizer.state[params[1]])
            go(optimizer, params, range(3, 5))
            results.append(params[1].detach())
            self.assertEqual(optimizer.state[params[1]]["step"], 2)
        for each in results[1:]:
            self.assertTrue(torch.equal(results[0], each))

    def test_states_follow_a_parameter_that_moves(self):
        params, optimizer = self.make("float32")
        others, whole = self.make("float32")
        go(optimizer, params, range(2))
        for each in params:
            each.data = each.data.clone()
        go(optimizer, params, range(2, 4))
        go(whole, others, range(4))
        for one, other in zip(params, others):
            self.assertTrue(torch.equal(one, other))

    def test_a_skipped_step_changes_no_state(self):
        params, optimizer = self.make("float32")
        go(optimizer, params, range(2))
        before = optimizer.state[params[0]]["exp_avg"].clone()
        params[0].grad = torch.full((5, 7), torch.inf)
        params[1].grad = None
        with self.assertRaises(FloatingPointError):
            optimizer.step()
        self.assertEqual(optimizer.state[params[0]]["step"], 2)
        self.assertTrue(torch.equal(optimizer.state[params[0]]["exp_avg"], before))


class Subgroups(unittest.TestCase):
    def single(self, dtype=torch.float32, **options):
        generator = torch.Generator().manual_seed(3)
        parameter = torch.nn.Parameter(torch.randn(40, generator=generator).to(dtype))
        return parameter, CPUAdam([parameter], lr=0.02, weight_decay=0.1, **options)

    def test_a_subgroups_step_is_a_step(self):
        one, whole = self.single()
        go(whole, [one], range(3))
        other, optimizer = self.single()
        for step in range(3):
            grads([other], step)
            optimizer.step_subgroup(7)
            other.data = other.data.clone()  # DeepSpeed gives another buffer each time
        self.assertTrue(torch.equal(one, other))
        self.assertEqual(list(optimizer.state), [7])
        self.assertEqual(optimizer.state[7]["step"], 3)
        self.assertTrue(torch.equal(optimizer.state[7]["exp_avg"], whole.state[one]["exp_avg"]))

    def test_rolled_back(self):
        for options in ({}, {"adamw_mode": False}, {"bias_correction": False}):
            with self.subTest(**options):
                parameter, optimizer = self.single(**options)
                kept = []
                for step in range(3):
                    kept.append([each.clone() for each in (parameter.detach(), *list(optimizer.state[1].values())[1:])])
                    grads([parameter], step)
                    optimizer.step_subgroup(1)
                for step in (2, 1):
                    grads([parameter], step)
                    optimizer.rollback_subgroup(1)
                    self.assertEqual(optimizer.state[1]["step"], step)
                    weight, first, second = kept[step]
                    torch.testing.assert_close(parameter.detach(), weight, rtol=1e-5, atol=1e-6)
                    torch.testing.assert_close(optimizer.state[1]["exp_avg"], first, rtol=1e-4, atol=1e-6)
                    torch.testing.assert_close(optimizer.state[1]["exp_avg_sq"], second, rtol=1e-3, atol=1e-6)

    def test_what_cannot_be_rolled_back(self):
        parameter, optimizer = self.single()
        with self.assertRaisesRegex(RuntimeError, r"rollback_subgroup\(0\): this subgroup has had no step"):
            optimizer.rollback_subgroup(0)
        grads([parameter], 0)
        optimizer.step_subgroup(0)
        optimizer.rollback_subgroup(0)
        with self.assertRaisesRegex(RuntimeError, "no step that could be taken back"):
            optimizer.rollback_subgroup(0)
        parameter, optimizer = self.single(torch.bfloat16)
        grads([parameter], 0)
        optimizer.step_subgroup(0)
        with self.assertRaisesRegex(NotImplementedError, "keep copies of the parameter"):
            optimizer.rollback_subgroup(0)


if __name__ == "__main__":
    unittest.main()
