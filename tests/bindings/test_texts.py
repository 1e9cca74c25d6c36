# SPDX-License-Identifier: Apache-2.0
"""What a user reads: a step report as text, and what is said of an object that is no array."""
import unittest

import numpy as np

from outrigger import Comm, Context, Engine, lowlevel


def engine_of(config=None):
    return Engine(Comm.self_group(Context(workers=1)), config)


def step_of(engine, grad):
    with engine.begin_pass() as a_pass:
        a_pass.add_grad(0, np.float32(grad))
    return engine.step()


class Report(unittest.TestCase):
    def test_every_field_by_its_name(self):
        engine = engine_of({"gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": 0.25}}})
        engine.add_parameter("w", np.ones(2, np.float32))
        engine.commit()
        text = str(step_of(engine, [0, 4]))
        self.assertEqual(text, "StepReport(outcome=STEP_APPLIED, reason=SKIP_NONE, nonfinite_rank=-1, nonfinite_param=-1, nonfinite_count=0, "
                               "micro_steps=1, applied_steps=1, skipped_steps=0, grad_norm=4.0, clip_coefficient="
                               f"{1 / (4 + 1e-6)}, loss_scale=1.0, lr=0.25, updates=1, vanished=0)")
        self.assertIn("StepReport(outcome=STEP_SKIPPED, reason=SKIP_NONFINITE, nonfinite_rank=0, nonfinite_param=0, nonfinite_count=1, ",
                      repr(step_of(engine, [0, np.inf])))

    def test_a_number_that_has_no_name(self):
        engine = engine_of()
        engine.add_parameter("w", np.ones(2, np.float32))
        engine.commit()
        report = step_of(engine, [0, 0])
        report.outcome = 77
        self.assertIn("outcome=77, reason=SKIP_NONE", repr(report))


class NoArray(unittest.TestCase):
    def test_what_to_give_instead(self):
        engine = engine_of()
        for value, kind in (([1.0, 2.0], "list"), (1.0, "float"), (object(), "object")):
            with self.subTest(kind=kind), self.assertRaises(TypeError) as caught:
                engine.add_parameter("w", value)
            self.assertEqual(str(caught.exception), f"<class '{kind}'> is no array; give an array, such as numpy.asarray(value)")
        self.assertEqual(lowlevel.engine_parameter_count(engine.handle), 0)


if __name__ == "__main__":
    unittest.main()
