# SPDX-License-Identifier: Apache-2.0
"""The loss scale over thousands of steps against a model of DeepSpeed's rules that was written apart from the library.

The rules: an overflow uses up hysteresis, and halves the scale once only one unit of it is left (which stays so until
the scale grows); `window` clean steps after the last overflow, and again after as many, the scale doubles and the
hysteresis is full again. At the smallest scale an overflow is an error.
"""
import random
import unittest

import numpy as np
import outrigger
from outrigger import lowlevel


class Model:
    def __init__(self, power, window, hysteresis, consecutive, smallest):
        self.scale, self.window, self.full, self.smallest = 2.0**power, window, hysteresis, smallest
        self.left, self.consecutive = hysteresis, consecutive
        self.step, self.last_overflow = 0, -1

    def note(self, overflow):
        """Returns False where the run would end."""
        alive = True
        if overflow:
            if self.left > 1 and self.full > 1:
                self.left -= 1
            elif self.scale == self.smallest:
                alive = False
            else:
                self.scale = max(self.scale / 2, self.smallest)
            self.last_overflow = self.step
        else:
            if self.consecutive:
                self.left = self.full
            clean = self.step - self.last_overflow - 1
            if clean > 0 and clean % self.window == 0:
                self.left = self.full
                self.scale *= 2
        self.step += 1
        return alive


def make_engine(comm, fp16, **more):
    engine = outrigger.Engine(comm, {"fp16": {"enabled": True, **fp16}, "gradient_clipping": 0,
                                     "optimizer": {"type": "AdamW", "params": {"lr": 2.0**-10}}, **more})
    engine.add_parameter("w", np.ones(8, np.float32))
    engine.commit()
    return engine


class LossScale(unittest.TestCase):
    CASES = [
        {"power": 16, "window": 20, "hysteresis": 2, "consecutive": False, "smallest": 1},
        {"power": 8, "window": 7, "hysteresis": 1, "consecutive": False, "smallest": 1},
        {"power": 10, "window": 13, "hysteresis": 4, "consecutive": True, "smallest": 4},
        {"power": 16, "window": 1000, "hysteresis": 2, "consecutive": False, "smallest": 1},
    ]

    def trace(self, case, steps, seed):
        context = outrigger.Context(workers=1)
        comm = outrigger.Comm.self_group(context)
        engine = make_engine(comm, {"initial_scale_power": case["power"], "loss_scale_window": case["window"],
                                    "hysteresis": case["hysteresis"],
                                    "consecutive_hysteresis": case["consecutive"],
                                    "min_loss_scale": case["smallest"]})
        model, chance = Model(**case), random.Random(seed)
        exp_avg, applied, grown, stuck = np.zeros(8), 0, 0, 0
        for step in range(steps):
            overflow = chance.random() < (0.4 if step // 400 % 3 == 1 else 0.02)
            gradient = chance.randint(1, 64) / 2**18
            self.assertEqual(engine.loss_scale, model.scale, step)
            before = model.scale
            overflow = overflow or gradient * before > 65504  # beyond float16
            with engine.begin_pass([np.float32(1)]) as p:
                p.add_grad(0, np.full(8, np.inf if overflow else gradient) * p.output_grad())
            expected = model.note(overflow)
            grown += model.scale > before
            try:
                report = engine.step()
                self.assertTrue(expected, step)
            except outrigger.OutriggerError as error:
                self.assertEqual(error.code, lowlevel.E_LOSS_SCALE)
                self.assertFalse(expected, step)
                stuck += 1
                continue
            self.assertEqual(report.loss_scale, before, step)
            self.assertEqual(report.outcome, lowlevel.STEP_SKIPPED if overflow else lowlevel.STEP_APPLIED)
            if not overflow:
                # On a step that lets the scale grow, too: another scale would be off by a factor of two.
                self.assertEqual(report.grad_norm, np.sqrt(8 * gradient**2), step)
                exp_avg = 0.9 * exp_avg + 0.1 * gradient
                applied += 1
        np.testing.assert_allclose(engine.read(0, lowlevel.VALUE_EXP_AVG), exp_avg, rtol=1e-3)
        with engine.begin_pass():
            pass
        self.assertEqual(engine.step().applied_steps, applied + 1)
        return grown, stuck

    def test_follows_the_model(self):
        totals = [self.trace(case, 5000, seed) for seed, case in enumerate(self.CASES)]
        self.assertGreater(sum(grown for grown, _ in totals), 100)
        self.assertGreater(sum(stuck for _, stuck in totals), 10)  # the floor was met, and the run went on


if __name__ == "__main__":
    unittest.main()
