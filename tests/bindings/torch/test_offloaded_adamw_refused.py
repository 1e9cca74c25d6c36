# SPDX-License-Identifier: Apache-2.0
"""What OffloadedAdamW refuses, with a text that names value, rule and way out, and without a change."""
import copy
import unittest

import outrigger
import torch
from test_offloaded_adamw import go, groups, parameters, set_grads

from outrigger.torch import OffloadedAdamW


class Refused(unittest.TestCase):
    def test_arguments(self):
        ones = [torch.nn.Parameter(torch.ones(3))]
        for options, error, text in (
                ({"amsgrad": True}, ValueError, "amsgrad = True is not supported: leave it out"),
                ({"capturable": True}, ValueError, "capturable = True is not supported.*CUDA graph"),
                ({"differentiable": True}, ValueError, "differentiable = True is not supported"),
                ({"max_norm": 0.0}, ValueError, "max_norm = 0.0 is not legal; legal: a number above 0, math.inf"),
                ({"gradient_buffer": -1}, ValueError, "gradient_buffer = -1 is not legal"),
                ({"lr": -1.0}, outrigger.OutriggerError, "lr.*-1"),
                ({"betas": (1.0, 0.9)}, outrigger.OutriggerError, "betas"),
                ({"workers": -1}, outrigger.OutriggerError, "workers"),
                ({"states": {"exp_avg": {"format": "int8"}}}, outrigger.OutriggerError, "int8.*block8"),
                ({"states": {"first": {"format": "float32"}}}, outrigger.OutriggerError, "first.*exp_avg"),
                ({"states": {"exp_avg": {"format": "block8"}}}, outrigger.OutriggerError, "exp_avg_sq"),
                ({"params": []}, ValueError, "empty parameter list"),
                ({"params": [torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))]}, ValueError, "parameter 0 is torch.complex64; legal: "
                 "torch.float32, torch.bfloat16, torch.float16"),
                ({"params": [*ones, torch.nn.Parameter(torch.ones(3).double())]}, ValueError, "parameter 1 is torch.float64"),
                ({"params": [torch.nn.Parameter(torch.ones(3, device="meta"))]}, ValueError, "parameter 0 is on the meta device.*to_empty"),
                ({"params": [torch.nn.Parameter(torch.ones(3).half())], "states": {"master": {"format": "split"}}}, ValueError,
                 "states.master.format = 'split' is not legal for parameter 0, which is torch.float16; legal: float32, float16"),
                ({"momentum": 0.9}, TypeError, "momentum")):
            with self.subTest(**options), self.assertRaisesRegex(error, text):
                OffloadedAdamW(**{"params": ones, **options})
        OffloadedAdamW(ones, foreach=True, fused=False)

    def test_a_refused_group_leaves_the_optimizer_as_it_was(self):
        ones = torch.nn.Parameter(torch.ones(3))
        optimizer = OffloadedAdamW([ones])
        with self.assertRaisesRegex(ValueError, "amsgrad"):
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))], "amsgrad": True})
        with self.assertRaisesRegex(ValueError, "some parameters appear in more than one parameter group"):
            optimizer.add_param_group({"params": [ones]})
        self.assertEqual(len(optimizer.param_groups), 1)
        optimizer.param_groups[0]["amsgrad"] = True
        with self.assertRaisesRegex(ValueError, "amsgrad"):
            optimizer.step()

    def test_gradients(self):
        table = torch.nn.Embedding(5, 3, sparse=True)
        optimizer = OffloadedAdamW(table.parameters())
        table(torch.tensor([1])).sum().backward()
        with self.assertRaisesRegex(ValueError, "gradient of parameter 0 is sparse.*SparseAdam"):
            optimizer.step()

    def test_a_converted_parameter(self):
        module = torch.nn.Linear(3, 2)
        optimizer = OffloadedAdamW(module.parameters())
        go(optimizer, list(module.parameters()), range(1))
        module.to(torch.bfloat16)
        set_grads(module.parameters(), 1)
        with self.assertRaisesRegex(RuntimeError, r"parameter 0 is torch.bfloat16 on cpu of shape \(2, 3\).*was torch.float32.*construct the "
                                    "optimizer after"):
            optimizer.step()

    def test_states(self):
        params = parameters()
        other = torch.optim.SGD(parameters(), lr=0.1, momentum=0.9)
        set_grads(other.param_groups[0]["params"], 0)
        other.step()
        optimizer = OffloadedAdamW(params)
        go(optimizer, params, range(2))
        before = copy.deepcopy(optimizer.state_dict())
        with self.assertRaisesRegex(ValueError, "states of parameter 0 are 'momentum_buffer'; OffloadedAdamW needs 'step', 'exp_avg', 'exp_avg_sq'"):
            optimizer.load_state_dict(other.state_dict())
        plain = torch.optim.AdamW(parameters(), amsgrad=True)
        with self.assertRaisesRegex(ValueError, "amsgrad = True"):
            optimizer.load_state_dict(plain.state_dict())
        with self.assertRaisesRegex(ValueError, "different number of parameter groups"):
            optimizer.load_state_dict(torch.optim.AdamW(groups(parameters())).state_dict())
        after = optimizer.state_dict()
        self.assertEqual(before["param_groups"], after["param_groups"])
        self.assertTrue(torch.equal(before["state"][0]["exp_avg"], after["state"][0]["exp_avg"]))
        before["state"][0]["exp_avg"] = torch.zeros(4)
        with self.assertRaisesRegex(ValueError, r"exp_avg of parameter 0 has shape \(4,\), the parameter \(15, 31\)"):
            optimizer.load_state_dict(before)

    def test_copies(self):
        with self.assertRaisesRegex(TypeError, "not copied or pickled.*state_dict"):
            copy.deepcopy(OffloadedAdamW(parameters()))


if __name__ == "__main__":
    unittest.main()
