# SPDX-License-Identifier: Apache-2.0
"""Trainings in JAX and with optax that are saved and go on: bit by bit those that were not stopped."""
import concurrent.futures
import os
import pathlib
import resource
import sys
import tempfile
import unittest
from unittest import mock

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"  # read by the import

import jax
import jax.numpy as jnp
import numpy as np
import optax

import outrigger.jax
import outrigger.optax
from outrigger import OutriggerError, lowlevel
from outrigger.pytrees import PART, pack, unpack

SGD = {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}  # a gradient twice as large is another training
ADAMW = {"type": "AdamW", "params": {"lr": 0.05, "weight_decay": 0.1}}
LOW = {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
       "outrigger": {"states": {"master": {"rounding": "stochastic"}}}}


def params():
    keys = jax.random.split(jax.random.key(0), 2)
    return {"a": [jax.random.normal(keys[0], (6, 80)), jnp.zeros(80)], "b": jax.random.normal(keys[1], (80, 3))}


def loss(p, x, target, key):
    hidden = jnp.tanh(x @ p["a"][0] + p["a"][1])
    kept = jax.random.bernoulli(key, 0.8, hidden.shape)
    return jnp.mean((jnp.where(kept, hidden / 0.8, 0) @ p["b"] - target).astype(jnp.float32) ** 2)


def data(step):
    keys = jax.random.split(jax.random.key(100 + step), 2)
    return jax.random.normal(keys[0], (5, 6)), jax.random.normal(keys[1], (5, 3))


def bits(tree):
    """Of each leaf: where it is, what it is, and its bytes."""
    return [(jax.tree_util.keystr(path), type(leaf), str(getattr(leaf, "dtype", "")), np.shape(leaf), pack(leaf))
            for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "checkpoints"


class Engines(Case):
    def engine(self, tree=None, **config):
        comm = outrigger.Comm.self_group(outrigger.Context(workers=1))
        return outrigger.jax.Engine(params() if tree is None else tree, config, comm=comm)

    def train(self, engine, host, end):
        while host["step"] < end:
            key, host["key"] = jax.random.split(host["key"])
            p, (x, target) = engine.parameters(), data(host["step"])
            value, vjp = jax.vjp(lambda p, x=x, target=target, key=key: loss(p, x.astype(p["b"].dtype), target, key), p)
            engine.backward(vjp, jnp.ones_like(value))
            engine.step()
            host["losses"][host["step"]] = value
            host["step"] += 1
        return host

    def host(self):
        return {"step": 0, "key": jax.random.key(7), "losses": np.zeros(8, np.float32)}

    def state(self, engine, host):
        values = [engine.library.read(identity, value) for _, identity, _ in engine.leaves()
                  for value in (lowlevel.VALUE_MASTER, lowlevel.VALUE_EXP_AVG)]
        return bits((values, engine.parameters(), host)), engine.library.get_progress()

    def test_resume_is_continue(self):
        for optimizer in (SGD, ADAMW):
            for precision in ({}, LOW):
                with self.subTest(optimizer=optimizer["type"], low=bool(precision)):
                    config = {"optimizer": optimizer, "zero_optimization": {"stage": 2}, **precision}
                    engine = self.engine(**config)
                    begun = engine.resume(self.folder / "none", self.host())
                    self.assertEqual(bits(begun), bits(self.host()))
                    host = self.train(engine, begun, 4)
                    engine.save(self.folder, "four", host, keep_last=1, replace=True)
                    at_four = self.state(engine, host)
                    expected = self.state(engine, self.train(engine, host, 8))
                    self.assertNotEqual(expected, at_four)

                    again = self.engine(jax.tree.map(jnp.zeros_like, params()), **config)
                    again.parameters()  # copies, which a load makes old
                    host = again.resume(self.folder, self.host())
                    self.assertEqual(self.state(again, host), at_four)
                    self.assertEqual(self.state(again, self.train(again, host, 8)), expected)

    def test_a_part_is_loaded(self):
        """Names are paths of the tree, whose brackets mean themselves in a pattern."""
        engine = self.engine(optimizer=SGD)
        engine.save(self.folder, "a")
        saved = engine.masters()
        tree = jax.tree.map(lambda leaf: 3 * jnp.ones_like(leaf), params())
        other = self.engine({"model": {**tree, "b": jnp.full((90, 3), 3.0)}}, optimizer=SGD)
        other.parameters()  # copies, which a load makes old
        other.load(self.folder, weights_only=True, include=["*['a'][0]", "*['b']"], renamed={"['model']*": "*"}, resized="*['b']")
        found = other.parameters()["model"]
        np.testing.assert_array_equal(found["a"][0], saved["a"][0])
        np.testing.assert_array_equal(found["a"][1], np.full(80, 3))
        np.testing.assert_array_equal(found["b"], np.concatenate([saved["b"], np.full((10, 3), 3)]))

    def test_a_load_waits_for_the_save_under_way(self):
        """And reads nothing before: neither that there is none, nor an older one."""
        engine = self.engine({"w": jnp.ones((1500, 1500))}, optimizer=SGD)  # its save takes longer than what comes before the load
        for name, take in (("resume", engine.resume), ("load", lambda folder, host: engine.load(folder, host=host))):
            for step in (1, 2):
                engine.library.save(self.folder / name, f"step{step}", parts={PART: pack({"step": step})}, asynchronous=True)
                self.assertEqual(take(self.folder / name, {"step": 0}), {"step": step}, name)
        self.assertEqual(engine.library.wait_save().state, lowlevel.SAVE_DONE)

    def test_a_save_that_failed_is_told_on_all_ranks(self):
        """Also where one has heard of it by wait_save."""
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, limits)

        def run(comm):
            engine = outrigger.jax.Engine({"w": jnp.ones((1500, 1500))}, {"optimizer": SGD}, comm=comm)
            engine.save(self.folder, "whole", {"step": 1})
            comm.barrier()
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
            engine.library.save(self.folder, "failed", asynchronous=True)
            if comm.rank == 0:
                with self.assertRaisesRegex(OutriggerError, 'E_IO: .*the asynchronous save of checkpoint "failed" failed'):
                    engine.library.wait_save()
            with self.assertRaises(RuntimeError if comm.rank == 0 else OutriggerError):
                engine.load(self.folder, host={"step": 0})
            return engine.load(self.folder, host={"step": 0})

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            self.assertEqual(list(pool.map(run, outrigger.Comm.threads(outrigger.Context(workers=1), 2))), [{"step": 1}] * 2)

    def test_what_is_wrong_changes_nothing(self):
        engine = self.engine(optimizer=SGD)
        host = self.train(engine, self.host(), 2)
        with self.assertRaisesRegex(TypeError, r"\['o'\] is a object of dtype object"):
            engine.save(self.folder, "a", {"o": object()})
        self.assertFalse(self.folder.exists())
        with self.assertRaises(OutriggerError) as caught:
            engine.load(self.folder, host=host)
        self.assertEqual(caught.exception.name, "OTR_E_NOT_FOUND")
        engine.save(self.folder, "a", host)
        before = self.state(self.train(engine, host, 3) and engine, host)
        for other, text in (({"step": 0}, r"the tree that was given lacks \['key'\] \(threefry2x32 key\), \['losses'\]"), ({**host, "more": 1}, r"the checkpoint lacks \['more'\]")):
            with self.assertRaisesRegex(ValueError, text):
                engine.load(self.folder, host=other)
        self.assertEqual(self.state(engine, host), before)
        self.assertIsNone(engine.load(self.folder))
        self.assertNotEqual(self.state(engine, host), before)
        engine.save(self.folder, "bare", keep_last=1)
        self.assertEqual({path.name for path in self.folder.iterdir()}, {".lock", "latest", "bare"})
        with self.assertRaises(OutriggerError) as caught:
            engine.load(self.folder, host=host)
        self.assertEqual(caught.exception.name, "OTR_E_NOT_FOUND")


class Optax(Case):
    def optimizers(self):
        return (optax.chain(optax.clip_by_global_norm(1.0), outrigger.optax.adamw(
                    optax.cosine_decay_schedule(0.05, 8), states={"exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}})),
                optax.sgd(0.1, momentum=0.9))

    def train(self, optimizer, run, end):
        @jax.jit
        def update(p, state, key, batch):
            grads = jax.grad(loss)(p, *batch, key)
            updates, state = optimizer.update(grads, state, p)
            return optax.apply_updates(p, updates), state
        p, state, key, step = run
        for number in range(step, end):
            now, key = jax.random.split(key)
            p, state = update(p, state, now, data(number))
        return p, state, key, end

    def test_resume_is_continue(self):
        for optimizer in self.optimizers():
            for dtype in (jnp.float32, jnp.bfloat16):
                folder = self.folder / str(len(list(self.folder.glob("*"))))
                first = jax.tree.map(lambda leaf, dtype=dtype: leaf.astype(dtype), params())
                begin = (first, optimizer.init(first), jax.random.key(3, impl="rbg"), 0)
                run = self.train(optimizer, outrigger.optax.resume(folder, begin), 4)
                outrigger.optax.save(folder, 4, run)
                expected = bits(self.train(optimizer, run, 8))
                found = outrigger.optax.resume(folder, begin)
                self.assertEqual(bits(found), bits(run))
                self.assertEqual(jax.tree.structure(found), jax.tree.structure(run))
                self.assertEqual(bits(self.train(optimizer, found, 8)), expected)

    def test_the_last_steps_stay(self):
        for step in (8, 9, 10):
            outrigger.optax.save(self.folder, step, {"x": step}, keep_last=2)
        self.assertEqual({path.name for path in self.folder.iterdir()}, {".lock", "latest", "step9", "step10"})
        self.assertEqual(outrigger.optax.load(self.folder, {"x": 0}), {"x": 10})
        self.assertEqual(outrigger.optax.load(self.folder, {"x": 0}, "step9"), {"x": 9})
        for call, name in ((lambda: outrigger.optax.save(self.folder, 10, {"x": 1}), "DUPLICATE"),
                           (lambda: outrigger.optax.load(self.folder, {"x": 0}, "step8"), "NOT_FOUND"),
                           (lambda: outrigger.optax.save(self.folder, -1, {}), "CONFIG")):
            with self.assertRaises(OutriggerError) as caught:
                call()
            self.assertEqual(caught.exception.name, "OTR_E_" + name)
        outrigger.optax.save(self.folder, 10, {"x": 1}, replace=True)
        self.assertEqual(outrigger.optax.resume(self.folder, {"x": 0}), {"x": 1})

    def test_a_checkpoint_that_is_damaged_is_not_begun_anew(self):
        outrigger.optax.save(self.folder, 1, {"x": np.arange(100)})
        file = self.folder / "step1" / "rank-00000.safetensors"
        damaged = bytearray(file.read_bytes())
        damaged[-9] ^= 1
        file.write_bytes(damaged)
        for _ in ("its bytes", "its name"):
            with self.assertRaises(OutriggerError) as caught:
                outrigger.optax.resume(self.folder, {"x": np.arange(100)})
            self.assertEqual(caught.exception.name, "OTR_E_CORRUPT")
            (self.folder / "latest").write_text("gone\n")


class Trees(unittest.TestCase):
    def same(self, tree, like=None):
        found = unpack(pack(tree), tree if like is None else like)
        self.assertEqual(bits(found), bits(tree))
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
            if isinstance(one, np.ndarray):
                np.testing.assert_array_equal(one, other)
        return found

    def test_each_kind_of_leaf(self):
        dtypes = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8", "uint64",
                  "uint32", "uint16", "uint8", "bool", "complex64")
        self.same({each: np.arange(6).reshape(2, 3).astype(jnp.dtype(each)) for each in dtypes})
        self.same({each: jnp.ones((2, 1), each) for each in dtypes if not each.endswith("64")})
        self.same([True, 3, -2**40, 0.1, float("inf"), "text é", "", b"\0bytes", np.float32(3), None, (), jnp.zeros((0, 3)), np.array(5)])
        self.same(jnp.arange(3))
        self.same({})
        self.same(np.arange(12).reshape(3, 4).T)
        self.same(np.arange(12)[::2])
        nan = np.array([np.nan, -0.0], np.float32)
        self.same(nan)
        found = self.same({"a": np.zeros(3)})
        found["a"][0] = 1  # the caller's own
        like = {"a": jax.ShapeDtypeStruct((3,), jnp.float32)}
        self.assertIsInstance(unpack(pack({"a": jnp.ones(3)}), like)["a"], jax.Array)
        for device in jax.devices():
            placed = {"a": jax.device_put(jnp.ones(3), device), "key": jax.device_put(jax.random.key(1), device)}
            self.assertEqual({leaf.sharding for leaf in self.same(placed).values()}, {placed["a"].sharding})

    def test_keys_go_on(self):
        for impl in ("threefry2x32", "rbg"):
            keys = {"one": jax.random.key(1, impl=impl), "many": jax.random.split(jax.random.key(2, impl=impl), 3)}
            found = self.same(keys, jax.tree.map(lambda key: jax.random.clone(key), keys))
            np.testing.assert_array_equal(jax.random.normal(found["one"]), jax.random.normal(keys["one"]))
        with self.assertRaisesRegex(ValueError, r"the checkpoint lacks \['one'\] \(threefry2x32 key\)"):
            unpack(pack(keys), {"one": jax.random.key(1), "many": keys["many"]})

    def test_a_weak_type_stays_weak(self):
        weak = {"s": jnp.asarray(0.1), "v": jnp.full(3, 2.0), "i": jnp.asarray(2), "n": jnp.full(2, jnp.nan)}
        found = self.same(weak)
        for name, leaf in weak.items():
            self.assertTrue(leaf.weak_type and found[name].weak_type, name)
        self.assertEqual((found["s"] * jnp.ones(2, jnp.bfloat16)).dtype, jnp.bfloat16)
        self.assertFalse(self.same(jnp.ones(2, jnp.float32)).weak_type)

    def test_what_does_not_fit(self):
        data = pack({"a": np.zeros((2, 3), np.float32)})
        for like, text in (({"a": np.zeros((3, 2), np.float32)}, r"\['a'\] is float32 \[2, 3\] in the checkpoint and float32 \[3, 2\]"),
                           ({"a": np.zeros((2, 3))}, "and float64"), ({"b": 1}, r"lacks \['b'\]"), ({}, r"the tree that was given lacks \['a'\]"),
                           ({"a": "text"}, r"lacks \['a'\] \(str\)"), ([np.zeros((2, 3), np.float32)], r"lacks \[0\]")):
            with self.subTest(text=text), self.assertRaisesRegex(ValueError, text):
                unpack(data, like)
        for leaf in (object(), 2**70, 1j, np.array(["a"])):
            with self.subTest(leaf=leaf), self.assertRaisesRegex(TypeError, r"the leaf \['a'\] is a"):
                pack({"a": leaf})

        class Same(str):
            __slots__ = ()

            def __repr__(self):
                return "same"
        with self.assertRaisesRegex(ValueError, r"two leaves of the tree have the name \[same\]"):
            pack({Same("a"): 1, Same("b"): 2})

    def test_without_safetensors(self):
        with mock.patch.dict(sys.modules, {"safetensors": None, "safetensors.numpy": None}), self.assertRaisesRegex(ImportError, "pip install safetensors"):
            pack({})


if __name__ == "__main__":
    unittest.main()
