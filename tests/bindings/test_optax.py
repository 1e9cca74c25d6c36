# SPDX-License-Identifier: Apache-2.0
"""outrigger.optax against optax's own AdamW, in float64 and float32."""
import os
import threading
import unittest

import jax
import jax.numpy as jnp
import numpy as np
import optax

import outrigger
import outrigger.optax

LR, DECAY, STEPS = 1e-2, 0.1, 20
BFLOAT16 = {"exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}
ULP = float(np.finfo(np.float32).eps)  # of a number near 1


def params(dtype=jnp.float32):
    """Numbers between 1 and 2, so that a last place is a last place."""
    random = np.random.default_rng(0)
    tree = {"a": [random.uniform(1, 2, (30, 7)), np.array(1.5)], "b": (random.uniform(1, 2, 257),), "none": np.zeros((0, 3))}
    return jax.tree.map(lambda leaf: jnp.asarray(leaf.astype(np.float32), dtype), tree)


def grads(step, tree):
    """Of the parameters' dtypes, float32 for those of 16 bits."""
    random = np.random.default_rng(100 + step)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(0, 0.1, leaf.shape).astype(np.float32),
                                                 jnp.promote_types(leaf.dtype, jnp.float32)), tree)


def train(optimizer, start, steps=STEPS, jit=True):
    def step(each, state, tree):
        updates, state = optimizer.update(each, state, tree)
        return optax.apply_updates(tree, updates), state
    step = jax.jit(step) if jit else step
    tree, state = start, optimizer.init(start)
    for number in range(steps):
        tree, state = step(grads(number, tree), state, tree)
    return tree, state


def furthest(one, other):
    return max(float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max(initial=0))
               for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def same(test, one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    test.assertEqual(jax.tree.structure(one), jax.tree.structure(other))


def in_64_bits(call):
    def run():
        with jax.enable_x64(True):
            return call()
    return run


def in_float64(optimizer):
    return in_64_bits(lambda: train(optimizer, params(jnp.float64)))()


class Numbers(unittest.TestCase):
    def test_float32(self):
        """Of 20 updates of 0.01 each: a few last places from optax in float64; optax in float32 has 1 - 0.999**t with
        an error of 1e-5 in it."""
        for decay in (0.0, DECAY):
            with self.subTest(decay=decay):
                ours, state = train(outrigger.optax.adamw(LR, weight_decay=decay), params())
                exact, (moments, *_) = in_float64(optax.adamw(LR, weight_decay=decay))
                theirs, _ = train(optax.adamw(LR, weight_decay=decay), params())
                print(f"weight decay {decay}: from float64 {furthest(ours, exact) / ULP:.2f} last places, optax's float32 "
                      f"{furthest(theirs, exact) / ULP:.2f}; mu {furthest(state.mu, moments.mu):.2g}, nu {furthest(state.nu, moments.nu):.2g}")
                self.assertLess(furthest(ours, exact), 12 * ULP)
                self.assertLess(furthest(ours, theirs), 24 * ULP)
                self.assertLess(furthest(state.mu, moments.mu), 1e-7)
                self.assertLess(furthest(state.nu, moments.nu), 1e-8)
                self.assertEqual((int(state.count), int(state.skipped)), (STEPS, 0))

    def test_adam_other_betas_and_a_mask(self):
        for ours, theirs in ((outrigger.optax.adam(LR, 0.8, 0.9, 1e-3), optax.adam(LR, 0.8, 0.9, 1e-3)),
                             (outrigger.optax.adamw(LR, 0.0, 0.5, weight_decay=1.0, mask=lambda tree: jax.tree.map(lambda x: x.ndim > 1, tree)),
                              optax.adamw(LR, 0.0, 0.5, weight_decay=1.0, mask=lambda tree: jax.tree.map(lambda x: x.ndim > 1, tree)))):
            self.assertLess(furthest(train(ours, params())[0], in_float64(theirs)[0]), 12 * ULP)

    def test_bfloat16_moments(self):
        """They are float32's within 2**-7 of the value after one update, whichever way they are rounded. In training the
        parameters differ by a part of what the updates sum up to."""
        for rounding in ("stochastic", "nearest"):
            states = {name: {**state, "rounding": rounding} for name, state in BFLOAT16.items()}
            one = train(outrigger.optax.adamw(LR, states=states), params(), 1)[1]
            other = train(outrigger.optax.adamw(LR), params(), 1)[1]
            for a, b in zip(jax.tree.leaves((one.mu, one.nu)), jax.tree.leaves((other.mu, other.nu)), strict=True):
                self.assertEqual(a.dtype, jnp.bfloat16)
                self.assertLessEqual(np.max(np.abs(np.asarray(a, np.float64) - b) / np.maximum(np.abs(b), 1e-30), initial=0), 2**-7)
            ours, exact = train(outrigger.optax.adamw(LR, states=states), params())[0], in_float64(optax.adamw(LR))[0]
            print(f"bfloat16 moments, {rounding}: parameters differ by {furthest(ours, exact):.2g} after {STEPS} updates of {LR}")
            self.assertLess(furthest(ours, exact), 0.02 * STEPS * LR)

    def test_bfloat16_and_float16_parameters(self):
        """Updates below half a last place move bfloat16 weights on average where they are rounded stochastically."""
        start = {"w": jnp.full(20000, 1.5, jnp.bfloat16)}
        moved = {}
        for rounding in ("stochastic", "nearest"):
            optimizer = outrigger.optax.adam(1e-4, states={"master": {"rounding": rounding}})
            update = jax.jit(optimizer.update)
            tree, state = start, optimizer.init(start)
            for _ in range(20):
                updates, state = update({"w": jnp.ones(20000, jnp.bfloat16)}, state, tree)
                tree = optax.apply_updates(tree, updates)
            self.assertEqual(tree["w"].dtype, jnp.bfloat16)
            moved[rounding] = float(1.5 - tree["w"].astype(jnp.float32).mean())
        self.assertEqual(moved["nearest"], 0)
        self.assertAlmostEqual(moved["stochastic"], 20e-4, delta=2e-4)
        halves = train(outrigger.optax.adamw(LR), params(jnp.float16))[0]
        self.assertEqual({leaf.dtype for leaf in jax.tree.leaves(halves)}, {jnp.dtype("float16")})
        self.assertLess(furthest(halves, in_float64(optax.adamw(LR))[0]), 2e-2)


class Composed(unittest.TestCase):
    def both(self, make, bound=24 * ULP, **options):
        ours, theirs = (train(make(module.adamw), params(), **options)[0] for module in (outrigger.optax, optax))
        self.assertLess(furthest(ours, theirs), bound)

    def test_with_what_optax_has(self):
        schedule = optax.warmup_cosine_decay_schedule(0.0, LR, 5, STEPS)
        for name, make in {"schedule": lambda adamw: adamw(schedule),
                           "chain": lambda adamw: optax.chain(optax.clip_by_global_norm(0.5), adamw(schedule, weight_decay=DECAY)),
                           "scaled": lambda adamw: optax.chain(adamw(LR), optax.scale(0.5)),
                           "injected": lambda adamw: optax.inject_hyperparams(adamw, static_args=("seed",))(schedule, weight_decay=DECAY)
                           if adamw is outrigger.optax.adamw else optax.inject_hyperparams(adamw)(schedule, weight_decay=DECAY),
                           "accumulated": lambda adamw: optax.MultiSteps(adamw(LR), 4),
                           "masked": lambda adamw: optax.masked(adamw(LR), {"a": [True, False], "b": True, "none": False}),
                           "finite": lambda adamw: optax.apply_if_finite(adamw(LR), 3)}.items():
            with self.subTest(name=name):
                self.both(make, steps=8)
        self.both(lambda adamw: adamw(schedule), jit=False, steps=3)

    def test_inside_of_other_transformations(self):
        """A training loop as one jitted scan, and an ensemble under vmap."""
        optimizer, start = outrigger.optax.adamw(LR, states=BFLOAT16), {"w": 1 + jnp.arange(12.0).reshape(3, 4) / 12}

        def loop(tree):
            def step(carry, number):
                tree, state = carry
                updates, state = optimizer.update({"w": tree["w"] * number}, state, tree)
                return (optax.apply_updates(tree, updates), state), None
            return jax.lax.scan(step, (tree, optimizer.init(tree)), 0.1 * jnp.arange(1.0, 6))[0]

        def by_hand(tree):
            state = optimizer.init(tree)
            for number in 0.1 * jnp.arange(1.0, 6):
                updates, state = optimizer.update({"w": tree["w"] * number}, state, tree)
                tree = optax.apply_updates(tree, updates)
            return tree, state
        same(self, jax.jit(loop)(start), by_hand(start))
        rows = [by_hand({"w": row}) for row in start["w"]]
        same(self, jax.jit(jax.vmap(loop))(start), jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows))


class Purity(unittest.TestCase):
    def test_older_states_again(self):
        """Each update of a run, made again in another order, has the same bits: stochastic rounding included."""
        optimizer = outrigger.optax.adamw(LR, states=BFLOAT16)
        update, other = jax.jit(optimizer.update), jax.jit(outrigger.optax.adamw(LR, states=BFLOAT16).update)
        tree, calls = params(jnp.bfloat16), []
        state = optimizer.init(tree)
        for step in range(6):
            arguments = grads(step, tree), state, tree
            updates, state = update(*arguments)
            calls.append((arguments, (updates, state)))
            tree = optax.apply_updates(tree, updates)
        for arguments, result in reversed(calls):
            for call in (update, other, optimizer.update):
                same(self, call(*arguments), result)
        reseeded = outrigger.optax.adamw(LR, states=BFLOAT16, seed=1).update(*calls[0][0])
        self.assertGreater(furthest(reseeded, calls[0][1]), 0)
        self.assertGreater(furthest(calls[0][1][0], calls[1][1][0]), 0)

    def test_steps_draw_other_numbers(self):
        """The same gradient and state at another count is rounded elsewhere."""
        optimizer = outrigger.optax.adam(1e-4)
        tree = {"w": jnp.full(1000, 1.5, jnp.bfloat16)}
        state = optimizer.init(tree)._replace(count=jnp.int32(1000))
        first = optimizer.update(tree, state, tree)[0]["w"]
        second = optimizer.update(tree, state._replace(count=jnp.int32(1001)), tree)[0]["w"]
        self.assertGreater(int((first != second).sum()), 0)

    def test_many_threads(self):
        """More computations at a time than there are cores, of two transformations whose values differ."""
        optimizers = [outrigger.optax.adamw(rate, states=BFLOAT16) for rate in (LR, 2 * LR)]
        updates = [jax.jit(each.update) for each in optimizers]
        tree = {"w": jnp.linspace(1, 2, 60000)}
        expected = [jax.tree.map(np.array, update(tree, optimizer.init(tree), tree)) for update, optimizer in zip(updates, optimizers)]
        found = []

        def work(number):
            which = number % 2
            for _ in range(3):
                found.append((which, updates[which](tree, optimizers[which].init(tree), tree)))
        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(2 * os.cpu_count() + 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(len(found), 3 * len(threads))
        for which, result in found:
            same(self, result, expected[which])

    def test_inf_and_nan_leave_all_as_it_was(self):
        optimizer, tree = outrigger.optax.adamw(LR), params()
        update = jax.jit(optimizer.update)
        _, state = update(grads(0, tree), optimizer.init(tree), tree)
        for bad in (jnp.inf, jnp.nan):
            broken = grads(1, tree)
            broken["b"] = (broken["b"][0].at[200].set(bad),)
            updates, after = update(broken, state, tree)
            same(self, optax.apply_updates(tree, updates), tree)
            same(self, after._replace(skipped=state.skipped), state)
            self.assertEqual(int(after.skipped), 1)


class WrongUse(unittest.TestCase):
    def test_texts(self):
        adamw, tree = outrigger.optax.adamw, {"w": jnp.ones(3), "b": jnp.ones(2)}
        optimizer = adamw(LR)
        state = optimizer.init(tree)
        for text, call in {
                r"update\(grads, state\) has no params": lambda: optimizer.update(tree, state),
                r"parameter at \['rows'\] is int32; legal: float32.*optax.masked": lambda: optimizer.init({"rows": jnp.arange(3)}),
                r"gradient at \['w'\] is int32": lambda: optimizer.update({**tree, "w": jnp.arange(3)}, state, tree),
                r"parameter at the root is complex64": lambda: optimizer.init(jnp.ones(2, jnp.complex64)),
                r"parameter at \['w'\] is float64.*cast it": in_64_bits(lambda: optimizer.init({"w": np.ones(3)})),
                r"the gradients are the tree .*one form": lambda: optimizer.update({"w": tree["w"]}, state, tree),
                r"the gradients are .*equal shapes": lambda: optimizer.update({**tree, "w": jnp.ones(4)}, state, tree),
                r"the moments are the tree": lambda: optimizer.update(tree, optimizer.init({"w": tree["w"]}), tree),
                r"mu of the state is float32, this transformation keeps bfloat16":
                    lambda: adamw(LR, states=BFLOAT16).update(tree, state, tree),
                r"mask has 1 leaves, the parameters 2": lambda: adamw(LR, mask=[True]).update(tree, state, tree),
                r"seed = Array.*static_args": lambda: adamw(LR, seed=jnp.int32(1)),
                r"states.master.format = 'bfloat16'.*leave the format out": lambda: adamw(LR, states={"master": {"format": "bfloat16"}}),
                r"block8": lambda: adamw(LR, states={"exp_avg": {"format": "block8"}}),
                r"betas.*1\.5": lambda: adamw(LR, b1=1.5),
                r"lr.*-1": lambda: adamw(-1.0),
                r"lr = -": lambda: jax.block_until_ready(adamw(lambda count: -1.0 - count).update(tree, state, tree))}.items():
            with self.subTest(text=text), self.assertRaisesRegex(Exception, text):
                call()


if __name__ == "__main__":
    unittest.main()
