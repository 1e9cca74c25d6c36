# SPDX-License-Identifier: Apache-2.0
"""outrigger.numpy: named arrays, gradients by hand, against AdamW in float64."""
import unittest

import ml_dtypes
import numpy as np

import outrigger
import outrigger.numpy

LR, BETAS, EPS, DECAY = 0.01, (0.9, 0.999), 1e-8, 0.1
ADAMW = {"type": "AdamW", "params": {"lr": LR, "betas": BETAS, "eps": EPS, "weight_decay": DECAY}}


def comm():
    return outrigger.Comm.self_group(outrigger.Context(workers=1))


def engine_of(parameters, frozen=(), **config):
    return outrigger.numpy.Engine(parameters, {"optimizer": ADAMW, "gradient_clipping": 0, **config}, comm=comm(), frozen=frozen)


class Adam:
    """float64, by the formula."""

    def __init__(self, parameters):
        self.p = {name: value.astype(np.float64) for name, value in parameters.items()}
        self.m = {name: np.zeros_like(value) for name, value in self.p.items()}
        self.v = {name: np.zeros_like(value) for name, value in self.p.items()}
        self.t = 0

    def step(self, grads):
        self.t += 1
        for name, grad in grads.items():
            self.m[name] = BETAS[0] * self.m[name] + (1 - BETAS[0]) * grad
            self.v[name] = BETAS[1] * self.v[name] + (1 - BETAS[1]) * grad**2
            m, v = self.m[name] / (1 - BETAS[0]**self.t), self.v[name] / (1 - BETAS[1]**self.t)
            self.p[name] -= LR * (m / (np.sqrt(v) + EPS) + DECAY * self.p[name])


class Training(unittest.TestCase):
    def test_against_float64(self):
        random = np.random.default_rng(0)
        parameters = {"w": random.normal(size=(6, 3)).astype(np.float32), "b": np.zeros(3, np.float32)}
        for precision, bound in (({}, 1e-6), ({"fp16": {"enabled": True, "loss_scale": 128}}, 3e-3)):
            for gas in (1, 3):
                with self.subTest(gas=gas, **precision):
                    engine = engine_of(parameters, zero_optimization={"stage": 2}, gradient_accumulation_steps=gas, **precision)
                    model = Adam(parameters)
                    for _ in range(4):
                        sums = {name: np.zeros(value.shape) for name, value in parameters.items()}
                        for _ in range(gas):
                            x, dy = random.normal(size=(8, 6)), random.normal(size=(8, 3))
                            with engine.backward(dy) as grads:
                                np.testing.assert_allclose(grads.output, dy * engine.loss_scale / gas, rtol=1e-6)
                                grads["w"] = x.T @ grads.output
                                with grads.slot("b") as db:
                                    db[:] = grads.output.sum(0)
                            sums["w"] += x.T @ dy / gas
                            sums["b"] += dy.sum(0) / gas
                            engine.step()
                        model.step(sums)
                    for name, expected in model.p.items():
                        np.testing.assert_allclose(engine.read(name), expected, atol=bound)
                        with engine.parameters([name]) as p:
                            np.testing.assert_allclose(p[name], expected, atol=2e-3 if precision else bound)

    def test_first_values_without_a_copy_of_the_model(self):
        values = {"large": np.arange(600_000, dtype=np.float32) / 7, "double": np.full((2, 3), 1 / 3), "scalar": np.float16(0.5)}
        engine = engine_of(values, zero_optimization={"stage": 2})
        for name, value in values.items():
            np.testing.assert_array_equal(engine.read(name), np.asarray(value, np.float32))
        peak = {purpose: peak for purpose, _, peak in engine.library.memory}["initial values"]
        self.assertEqual(peak, 4 * 2**18, "what is on its way at a time")

    def test_several_outputs_contributions_and_inputs(self):
        engine = engine_of({"w": np.zeros(2, np.float32)}, gradient_accumulation_steps=4)
        with engine.backward(np.ones(2), np.full((1, 2), 2.0)) as grads:
            with self.assertRaisesRegex(ValueError, "2 output gradients"):
                _ = grads.output
            for output in grads.outputs:
                grads["w"] = output.reshape(2)
            np.testing.assert_allclose(grads.unscale(grads.outputs[1]), [[2, 2]])
            self.assertEqual(grads.scale, 0.25)
        engine.step()

    def test_nested_names_dtypes_and_frozen(self):
        engine = engine_of({"b": [np.ones(2, np.float16), np.ones(1)], "a": {"x": np.ones(3, ml_dtypes.bfloat16)}}, frozen=["b.1"],
                           bf16={"enabled": True})
        self.assertEqual(list(engine.ids), ["a.x", "b.0", "b.1"])
        with engine.parameters(float32=False) as p:
            self.assertEqual({value.dtype for value in p.values()}, {np.dtype(ml_dtypes.bfloat16)})
        with engine.backward() as grads, self.assertRaisesRegex(outrigger.OutriggerError, "frozen"):
            grads["b.1"] = np.ones(1)


class WrongUse(unittest.TestCase):
    def test_names_and_shapes(self):
        engine = engine_of({"w": np.ones((2, 2), np.float32)})
        with self.assertRaisesRegex(KeyError, "there are w"), engine.backward(np.ones(2)) as grads:
            grads["v"] = np.ones(2)
        with self.assertRaisesRegex(outrigger.OutriggerError, "OTR_E_SHAPE"), engine.backward(np.ones(2)) as grads:
            grads["w"] = np.ones(2)
        with self.assertRaisesRegex(ValueError, "frozen names no parameter: u"):
            engine_of({"w": np.ones(1)}, frozen=["u"])
        with self.assertRaisesRegex(KeyError, "there are w"):
            engine.read("v")

    def test_an_exception_gives_the_pass_up(self):
        engine = engine_of({"w": np.ones(2, np.float32)})
        with self.assertRaises(ZeroDivisionError), engine.backward(np.ones(2)) as grads:
            grads["w"] = np.ones(2)
            _ = 1 / 0
        report = engine.step()
        self.assertEqual(report.reason, outrigger.lowlevel.SKIP_ABANDONED)
        np.testing.assert_array_equal(engine.read("w"), np.ones(2))


if __name__ == "__main__":
    unittest.main()
