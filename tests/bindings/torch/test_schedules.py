# SPDX-License-Identifier: Apache-2.0
"""The library's schedules are those of outrigger.torch, and DeepSpeed's are as scripts/deepspeed.json records them: in every
update of an engine, with a skipped step in between."""
import json
import logging
import unittest

import numpy as np
import outrigger
import torch
from outrigger import lowlevel
from outrigger.torch import lr_schedules
from test_scripts import RECORD, SCHEDULES

logging.getLogger("outrigger").setLevel(logging.ERROR)  # the library says that optimizer.params.lr has no effect
LR, STEPS, SKIPPED = 0.05, 50, (7, 8, 31)
OWN = [
    ("Cosine", {"total_num_steps": 40}), ("Cosine", {"total_num_steps": 30, "warmup_num_steps": 6, "warmup_min_ratio": 0.2, "min_ratio": 0.1}),
    ("WSD", {"total_num_steps": 30, "decay_num_steps": 10, "warmup_num_steps": 5}),
    ("WSD", {"total_num_steps": 30, "decay_num_steps": 12, "decay_type": "sqrt", "min_ratio": 0.05}),
    ("WSD", {"total_num_steps": 20, "decay_num_steps": 15, "warmup_num_steps": 5, "warmup_min_ratio": 0.5, "decay_type": "cosine"}),
    ("WSD", {"total_num_steps": 20, "decay_num_steps": 0}),
]


class Schedules(unittest.TestCase):
    def setUp(self):
        self.comm = outrigger.Comm.self_group(outrigger.Context(workers=1))

    def engine(self, name, parameters, rule):
        engine = outrigger.Engine(self.comm, {"optimizer": {"type": rule, "params": {"lr": LR}},
                                              "scheduler": {"type": name, "params": parameters}})
        engine.add_parameter("w", np.ones(4, np.float32))
        engine.commit()
        return engine

    def each(self, name, parameters, rule):
        """For each step: the rate in its report, the engine's beta1 before it, and whether it was applied."""
        engine = self.engine(name, parameters, rule)
        for step in range(STEPS):
            beta1 = lowlevel.engine_get_group_value(engine.handle, None, "beta1")
            with engine.begin_pass() as p:
                p.add_grad(0, np.full(4, np.inf if step in SKIPPED else 1, np.float32))
            report = engine.step()
            self.assertEqual(report.outcome, lowlevel.STEP_SKIPPED if step in SKIPPED else lowlevel.STEP_APPLIED)
            yield report.lr, beta1, step not in SKIPPED

    def test_as_in_torch(self):
        for name, parameters in SCHEDULES + OWN:
            for rule in ("AdamW", "Lion"):
                with self.subTest(name=name, rule=rule, **parameters):
                    optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=LR)
                    schedule = getattr(lr_schedules, name)(optimizer, **parameters)
                    group = optimizer.param_groups[0]
                    for lr, beta1, applied in self.each(name, parameters, rule):
                        self.assertAlmostEqual(lr, group["lr"], delta=1e-15)
                        self.assertAlmostEqual(beta1, group["betas"][0], delta=1e-15)
                        if applied:
                            schedule.step()

    def test_as_recorded(self):
        record = json.loads(RECORD.read_text())["schedules"]
        for (name, parameters), expected in zip(SCHEDULES, record, strict=True):
            with self.subTest(name=name, **parameters):
                values = [(lr, beta1) for lr, beta1, applied in self.each(name, parameters, "AdamW") if applied]
                for (lr, beta1), (recorded_lr, recorded_beta1) in zip(values, expected):
                    self.assertAlmostEqual(lr, recorded_lr, delta=1e-12)
                    self.assertAlmostEqual(beta1, recorded_beta1, delta=1e-12)

    def test_every_type_is_compared(self):
        self.assertEqual({name for name, _ in SCHEDULES}, set(lr_schedules.VALID_LR_SCHEDULES))
        self.assertEqual({name for name, _ in SCHEDULES + OWN}, set(lr_schedules.SCHEDULES))

    def test_own_types_in_a_configuration(self):
        """Of the adapter's engine, by what it does to a weight: SGD with gradient 1 moves it by the rate."""
        for name, parameters in OWN:
            with self.subTest(name=name, **parameters):
                model = torch.nn.Linear(1, 1, bias=False)
                engine, optimizer, _, schedule = outrigger.torch.initialize(model=model, comm=self.comm, config={
                    "optimizer": {"type": "SGD", "params": {"lr": LR}}, "scheduler": {"type": name, "params": parameters}})
                self.assertIs(type(schedule), lr_schedules.SCHEDULES[name])
                for lr, _, applied in self.each(name, parameters, "AdamW"):
                    if applied:
                        before = model.weight.item()
                        engine(torch.ones(1, 1)).sum().backward()
                        engine.step()
                        self.assertAlmostEqual(before - model.weight.item(), lr, delta=1e-6)

    def test_plans_that_cannot_hold(self):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
        for name, parameters, text in (
                ("Cosine", {"total_num_steps": 5, "warmup_num_steps": 6}, "total_num_steps = 5 is less than warmup_num_steps = 6"),
                ("WSD", {"total_num_steps": 9, "decay_num_steps": 5, "warmup_num_steps": 5}, "the 5 steps of the decay together"),
                ("WSD", {"total_num_steps": 9, "decay_num_steps": 5, "decay_type": "log"}, "decay_type = 'log' is not legal"),
                ("WSD", {"total_num_steps": 9, "decay_num_steps": 5, "min_ratio": 2}, "min_ratio = 2 is not legal"),
                ("Cosine", {"total_num_steps": 9, "decay_num_steps": 5}, "scheduler.params of Cosine: .*decay_num_steps"),
                ("Poly", {}, "'Poly' is not legal; legal: .*WSD")):
            with self.subTest(name=name, **parameters), self.assertRaisesRegex(ValueError, text):
                lr_schedules.from_config({"type": name, "params": parameters}, optimizer)

    def test_a_rate_that_is_a_tensor_is_filled(self):
        for name, parameters in SCHEDULES + OWN:
            with self.subTest(name=name, **parameters):
                rate = torch.tensor(LR, dtype=torch.float64)
                optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=rate)
                plain = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=LR)
                schedules = [lr_schedules.SCHEDULES[name](each, **parameters) for each in (optimizer, plain)]
                for _ in range(STEPS):
                    self.assertIs(optimizer.param_groups[0]["lr"], rate)
                    self.assertAlmostEqual(rate.item(), plain.param_groups[0]["lr"], delta=1e-15)
                    for schedule in schedules:
                        schedule.step()

    def test_momentum_of_one_cycle_is_betas(self):
        optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=LR)
        schedule = lr_schedules.OneCycle(optimizer, cycle_min_lr=0.01, cycle_max_lr=0.1, cycle_first_step_size=4, decay_step_size=2,
                                         decay_mom_rate=0.01)
        for _ in range(12):
            schedule.step()
            self.assertEqual(schedule.get_mom(), [optimizer.param_groups[0]["betas"]])
            self.assertEqual(schedule.get_mom()[0][1], 0.99)


if __name__ == "__main__":
    unittest.main()
