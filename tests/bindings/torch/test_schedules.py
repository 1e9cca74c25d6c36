# SPDX-License-Identifier: Apache-2.0
"""The library's own schedules are those of outrigger.torch, and so DeepSpeed's as scripts/deepspeed.json records them: in
every update of an engine, with a skipped step in between."""
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
        for name, parameters in SCHEDULES:
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
        self.assertEqual({name for name, _ in SCHEDULES}, set(lr_schedules.SCHEDULES))

    def test_own_types_are_not_the_adapters(self):
        model = torch.nn.Linear(2, 2)
        with self.assertRaisesRegex(ValueError, "'WSD' is not legal"):
            outrigger.torch.initialize(model=model, comm=self.comm, config={
                "scheduler": {"type": "WSD", "params": {"total_num_steps": 10, "decay_num_steps": 5}}})


if __name__ == "__main__":
    unittest.main()
