# SPDX-License-Identifier: Apache-2.0
"""outrigger.jax against optax's AdamW."""
import unittest

import jax
import jax.numpy as jnp
import numpy as np
import optax

import outrigger
import outrigger.jax

ADAMW = {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}}


def params():
    keys = jax.random.split(jax.random.key(0), 2)
    return {"a": [jax.random.normal(keys[0], (6, 8)), jnp.zeros(8)], "b": (jax.random.normal(keys[1], (8, 3)),)}


def model(p, x):
    return jnp.tanh(x @ p["a"][0] + p["a"][1]) @ p["b"][0]


def data(step):
    keys = jax.random.split(jax.random.key(100 + step), 2)
    return jax.random.normal(keys[0], (5, 6)), jax.random.normal(keys[1], (5, 3))


def engine_of(tree, frozen=None, **config):
    comm = outrigger.Comm.self_group(outrigger.Context(workers=1))
    return outrigger.jax.Engine(tree, {"optimizer": ADAMW, "gradient_clipping": 0, **config}, comm=comm, frozen=frozen)


def furthest(one, other):
    return max(float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max())
               for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


class Training(unittest.TestCase):
    def test_first_values_without_a_copy_of_the_model(self):
        tree = {"large": jnp.arange(600_000) / 7, "half": [jnp.full((2, 3), 0.5, jnp.bfloat16), jnp.float32(0.25)]}
        engine = engine_of(tree, zero_optimization={"stage": 2})
        self.assertEqual(furthest(engine.masters(), tree), 0)
        peak = {purpose: peak for purpose, _, peak in engine.library.memory}["initial values"]
        self.assertEqual(peak, 4 * 2**18, "what is on its way at a time")

    def test_against_optax(self):
        for stage, gas, precision, bound in ((0, 1, {}, 2e-6), (1, 3, {}, 2e-6), (2, 2, {}, 2e-6),
                                             (2, 2, {"fp16": {"enabled": True, "loss_scale": 64}}, 5e-3)):
            with self.subTest(stage=stage, gas=gas, **precision):
                engine = engine_of(params(), zero_optimization={"stage": stage}, gradient_accumulation_steps=gas, **precision)
                theirs, optimizer = params(), optax.adamw(0.01, weight_decay=0.1)
                state = optimizer.init(theirs)
                for step in range(4):
                    sums = jax.tree.map(jnp.zeros_like, theirs)
                    for micro in range(gas):
                        x, cotangent = data(10 * step + micro)
                        grads = jax.vjp(lambda p, x=x: model(p, x), theirs)[1](cotangent / gas)[0]
                        sums = jax.tree.map(jnp.add, sums, grads)
                        own = engine.parameters()
                        y, vjp = jax.vjp(lambda p, x=x: model(p, x.astype(p["b"][0].dtype)), own)
                        engine.backward(vjp, cotangent.astype(y.dtype))
                        engine.step()
                    updates, state = optimizer.update(sums, state, theirs)
                    theirs = optax.apply_updates(theirs, updates)
                self.assertLess(furthest(engine.masters(), theirs), bound)
                self.assertLess(furthest(engine.parameters(), theirs), bound)

    def test_gradients_of_other_arguments_are_unscaled(self):
        engine = engine_of(params(), gradient_accumulation_steps=4)
        x, cotangent = data(0)
        _, vjp = jax.vjp(model, engine.parameters(), x)
        (mine,) = engine.backward(vjp, cotangent)
        theirs = jax.vjp(lambda x: model(params(), x), x)[1](cotangent)[0]
        self.assertLess(furthest(mine, theirs), 1e-6)

    def test_trees_of_outputs_integers_and_frozen_leaves(self):
        tree = {"w": jnp.ones(3), "table": jnp.ones((4, 3))}
        engine = engine_of(tree, frozen={"w": False, "table": True})

        def outputs(p, rows):
            return {"sum": p["w"].sum(), "rows": p["table"][rows] * p["w"]}
        _, vjp = jax.vjp(outputs, engine.parameters(), jnp.array([0, 2]))
        engine.backward(vjp, {"sum": jnp.ones(()), "rows": jnp.ones((2, 3))})
        engine.step()
        after = engine.masters()
        np.testing.assert_array_equal(after["table"], np.ones((4, 3)))
        self.assertLess(after["w"].max(), 1)

    def test_parameters_are_new_after_an_update_only(self):
        engine = engine_of(params(), gradient_accumulation_steps=2)
        first = engine.parameters()
        kept = np.array(first["b"][0])
        for micro in range(2):
            self.assertIs(engine.parameters(), first)
            x, cotangent = data(micro)
            engine.backward(jax.vjp(lambda p, x=x: model(p, x), engine.parameters())[1], cotangent)
            engine.step()
        self.assertIsNot(engine.parameters(), first)
        np.testing.assert_array_equal(first["b"][0], kept)

    def test_stage_3_by_blocks(self):
        blocks = [{"w": 0.5 * jnp.eye(4)}, {"w": jnp.eye(4), "b": jnp.zeros(4)}]
        engine, theirs = engine_of(blocks, zero_optimization={"stage": 3}), list(blocks)
        optimizer = optax.adamw(0.01, weight_decay=0.1)
        state = optimizer.init(theirs)

        def block(p, x):
            return jnp.tanh(x @ p["w"] + p.get("b", 0))
        x = jnp.linspace(-1, 1, 12).reshape(3, 4)
        for _ in range(3):
            inner, first = jax.vjp(block, engine.parameters(block=0), x)
            y, second = jax.vjp(block, engine.parameters(block=1), inner)
            with engine.begin_pass(jnp.ones_like(y)) as a_pass:
                grads, down = second(a_pass.cotangents)
                a_pass.add(grads, block=1)
                a_pass.add(first(down)[0], block=0)
            engine.step()
            grads = jax.grad(lambda p: block(p[1], block(p[0], x)).sum())(theirs)
            updates, state = optimizer.update(grads, state, theirs)
            theirs = optax.apply_updates(theirs, updates)
        self.assertLess(furthest(engine.masters(), theirs), 2e-6)
        with self.assertRaisesRegex(ValueError, "no copy of all parameters"):
            engine.parameters()

    def test_a_cotangent_that_overflows_when_scaled(self):
        engine = engine_of({"w": jnp.ones(2)}, fp16={"enabled": True, "initial_scale_power": 16})
        with engine.begin_pass(jnp.ones((), jnp.float16)) as a_pass:
            self.assertTrue(np.isinf(a_pass.cotangents))
            a_pass.add({"w": jnp.ones(2)})
        self.assertEqual(engine.step().reason, outrigger.lowlevel.SKIP_SEED_OVERFLOW)


class WrongUse(unittest.TestCase):
    def test_forms(self):
        with self.assertRaisesRegex(NotImplementedError, "list of blocks"):
            engine_of(params(), zero_optimization={"stage": 3})
        with self.assertRaisesRegex(ValueError, "frozen has 1 leaves"):
            engine_of(params(), frozen=[True])
        engine = engine_of(params())
        with self.assertRaisesRegex(ValueError, "have 1 leaves, the parameters 3"), engine.begin_pass(jnp.ones(2)) as a_pass:
            a_pass.add({"a": jnp.ones(2)})
        engine.step()
        with self.assertRaisesRegex(ValueError, r"\['a'\]\[0\] has shape \(2,\)"), engine.begin_pass(jnp.ones(2)) as a_pass:
            a_pass.add({"a": [jnp.ones(2), None], "b": (None,)})
        _, vjp = jax.vjp(lambda x, p: model(p, x), data(0)[0], engine.parameters())
        with self.assertRaisesRegex(ValueError, "the first argument of vjp's function must be the parameters"):
            engine.backward(vjp, jnp.ones((5, 3)))
        with self.assertRaisesRegex(ValueError, "block= is for stage 3"):
            engine.parameters(block=0)


if __name__ == "__main__":
    unittest.main()
