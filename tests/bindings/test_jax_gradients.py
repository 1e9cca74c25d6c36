# SPDX-License-Identifier: Apache-2.0
"""outrigger.jax: gradients by value, in random chains (chain.py). `test_jax_gradients.py N` draws N of them."""
import sys
import unittest
from unittest import mock

import chain
import jax
import jax.numpy as jnp
import numpy as np

import outrigger
import outrigger.jax
from outrigger import lowlevel

SEEDS = chain.seeds(sys.argv, 40)


def model(p, x):
    return jnp.tanh(x @ p["w"] + p["b"])


def two_outputs(p, x):
    y = model(p, x)
    return y, y.sum()


class Host:
    stages = (0, 1, 2)
    forms = ("backward", "begin_pass", "halves", "vjp used twice", "jax.grad")

    @staticmethod
    def make(weights, config, comm):
        return outrigger.jax.Engine(weights, config, comm=comm)

    @staticmethod
    def step_many(engines):
        return outrigger.jax.step_many(engines)

    @staticmethod
    def backward(engine, form, x, cotangents, tag):
        parameters = engine.parameters()
        dtype = parameters["w"].dtype
        x = jnp.asarray(x, dtype)
        _, vjp = jax.vjp(model if len(cotangents) == 1 else two_outputs, parameters, x)
        cotangents = [jnp.asarray(each, dtype) for each in cotangents]

        def one(factor):
            scaled = [each * jnp.asarray(factor, dtype) for each in cotangents]
            given = scaled[0] if len(scaled) == 1 else tuple(scaled)
            with engine.begin_pass(given, tag) as a_pass:
                grads, dx = vjp(a_pass.cotangents)
                if form == "halves":
                    grads = jax.tree.map(lambda each: each / 2, grads)
                    a_pass.add(grads)
                a_pass.add(grads)
                return np.asarray(dx, np.float64), a_pass.tag, np.asarray(a_pass.unscale(dx), np.float64)
        if form == "vjp used twice":
            first, rest = one(0.25), one(0.75)
            return first[0] + rest[0], rest[1], first[2] + rest[2]
        if form == "jax.grad" and tag is None:  # of a loss, times the scaled gradient of the loss
            with engine.begin_pass(jnp.ones((), jnp.float32)) as a_pass:
                def loss(p, x):
                    y = model(p, x)
                    return a_pass.cotangents * sum(jnp.vdot(each.astype(jnp.float32), y.astype(jnp.float32)) if each.ndim else
                                                   each.astype(jnp.float32) * y.astype(jnp.float32).sum() for each in cotangents)
                grads, dx = jax.grad(loss, argnums=(0, 1))(parameters, x)
                a_pass.add(grads)
                return np.asarray(dx, np.float64), a_pass.tag, np.asarray(a_pass.unscale(dx), np.float64)
        if form == "backward":
            (unscaled,) = engine.backward(vjp, cotangents[0] if len(cotangents) == 1 else tuple(cotangents), tag)
            return None, None, unscaled  # these it returns alone
        return one(1)


class Gradients(unittest.TestCase):
    def test_of_random_chains(self):
        for seed in SEEDS:
            chain.run(Host, seed)


def engine_of(tree, **config):
    comm = outrigger.Comm.self_group(outrigger.Context(workers=1))
    return outrigger.jax.Engine(tree, {"optimizer": {"type": "SGD", "params": {"lr": 1}}, "gradient_clipping": 0, **config}, comm=comm)


class Borders(unittest.TestCase):
    def test_float16_inputs_under_a_scale_beyond_float16(self):
        engine = engine_of({"w": jnp.ones(3)}, fp16={"enabled": True, "loss_scale": 2**17})
        _, vjp = jax.vjp(lambda p, x: p["w"] * x, engine.parameters(), jnp.ones(3, jnp.float16))
        (dx,) = engine.backward(vjp, jnp.full(3, 0.25, jnp.float16))
        np.testing.assert_array_equal(dx, np.full(3, 0.25))
        self.assertEqual(dx.dtype, jnp.float16)

    def test_bfloat16_inputs_are_rounded_once(self):
        engine = engine_of({"w": jnp.ones(200)}, bf16={"enabled": True}, gradient_accumulation_steps=3)
        seed = jnp.linspace(1, 2, 200).astype(jnp.bfloat16)
        with engine.begin_pass(seed) as a_pass:
            expected = (np.asarray(a_pass.cotangents, np.float64) * 3).astype(jnp.bfloat16)
            np.testing.assert_array_equal(np.asarray(a_pass.unscale(a_pass.cotangents), np.float64), expected.astype(np.float64))

    def test_integer_outputs_and_arguments(self):
        engine = engine_of({"w": jnp.arange(3.0)}, gradient_accumulation_steps=2)
        (_, index), vjp = jax.vjp(lambda p, x, rows: (p["w"] * x[rows], jnp.argmax(p["w"])), engine.parameters(), jnp.ones(4),
                                  jnp.array([0, 2, 2]))
        dx, drows = engine.backward(vjp, (jnp.ones(3), np.zeros(index.shape, jax.dtypes.float0)))
        np.testing.assert_array_equal(dx, [0, 0, 3, 0])
        self.assertEqual(drows.dtype, jax.dtypes.float0)

    def test_gradients_of_another_form_are_refused(self):
        engine = engine_of({"a": jnp.ones(2), "b": jnp.ones(2)})
        with self.assertRaisesRegex(ValueError, "one form"), engine.begin_pass(()) as a_pass:
            a_pass.add({"a": jnp.ones(2), "c": jnp.ones(2)})
        with self.assertRaisesRegex(ValueError, "one form"), engine.begin_pass(()) as a_pass:
            a_pass.add([jnp.ones(2), jnp.ones(2)])

    def test_parameters_are_new_after_a_joint_step(self):
        engines = [engine_of({"w": jnp.ones(2)}) for _ in range(2)]
        for engine in engines:
            engine.backward(jax.vjp(lambda p: p["w"].sum(), engine.parameters())[1], jnp.ones(()))
        reports = outrigger.jax.step_many(engines)
        self.assertEqual([report.outcome for report in reports], 2 * [lowlevel.STEP_APPLIED])
        for engine in engines:
            np.testing.assert_array_equal(engine.parameters()["w"], np.zeros(2))


def scaled_cotangents(exponent):
    def mutated(true):
        def init(self, *arguments):
            true(self, *arguments)
            self.cotangents = jax.tree.map(lambda each: (each.astype(jnp.float32) * self.scale**exponent).astype(each.dtype), self.cotangents)
        return init
    return mutated


# What a wrong factor at a border of the adapter would be.
MUTATIONS = {
    "cotangents without their factor": (outrigger.jax.Pass, "__init__", scaled_cotangents(-1)),
    "cotangents with it twice": (outrigger.jax.Pass, "__init__", scaled_cotangents(1)),
    "unscale does nothing": (outrigger.jax.Pass, "unscale", lambda true: lambda self, tree: tree),
    "unscale twice": (outrigger.jax.Pass, "unscale", lambda true: lambda self, tree: true(self, true(self, tree))),
    "unscale by begin's factor only": (outrigger.jax.Pass, "unscale", lambda true: lambda self, tree: jax.tree.map(
        lambda leaf: (leaf.astype(jnp.float32) / self.scale).astype(leaf.dtype), tree)),
    "a tag is not handed on": (outrigger.Engine, "begin_pass",
                               lambda true: lambda self, grads=(), tag=None, **info: true(self, grads, **info)),
    "gradients are added twice": (outrigger.jax.Pass, "add", lambda true: lambda self, grads: (true(self, grads), true(self, grads))),
    "gradients are dropped": (outrigger.jax.Pass, "add", lambda true: lambda self, grads: true(self, {"w": grads["w"], "b": None})),
}


class Mutations(unittest.TestCase):
    def test_each_is_caught(self):
        for name, (owner, attribute, mutated) in MUTATIONS.items():
            with self.subTest(name), mock.patch.object(owner, attribute, mutated(getattr(owner, attribute))), \
                    self.assertRaises(AssertionError):
                for seed in range(20):
                    chain.run(Host, seed)


if __name__ == "__main__":
    unittest.main()
