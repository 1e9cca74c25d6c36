# SPDX-License-Identifier: Apache-2.0
"""What the Python binding adds to the C library: arrays, ownership, exceptions, the interpreter's lock."""
import gc
import os
import signal
import threading
import time
import unittest

import ml_dtypes
import numpy as np
import outrigger
from outrigger import Comm, Context, Engine, OutriggerError, lowlevel


STAGE_2 = {"zero_optimization": {"stage": 2}}


def engine_with(*arrays, config=None, comm=None):
    engine = Engine(comm or Comm.self_group(Context(workers=1)), config or {})
    ids = [engine.add_parameter(f"p{i}", array) for i, array in enumerate(arrays)]
    engine.commit()
    return engine, ids


class InitialValues(unittest.TestCase):
    def test_given_after_commit(self):
        engine = Engine(Comm.self_group(Context(workers=1)), STAGE_2)
        a = engine.add_parameter("a", shape=(3, 4), held_bytes=48)
        b = engine.add_parameter("b", shape=[])
        self.assertEqual(engine.parameter_shape(a), (3, 4))
        engine.commit()
        self.assertEqual({p: r for p, r, _ in engine.memory}["initial values"], 48)
        values = np.arange(12, dtype=np.float64).reshape(4, 3).T
        engine.set_initial([a, b], iter([values, np.float32(0.5)]))
        np.testing.assert_array_equal(engine.read(a), values)
        np.testing.assert_array_equal(engine.read(b), np.float32(0.5))
        self.assertEqual({p: r for p, r, _ in engine.memory}["initial values"], 0)
        with self.assertRaisesRegex(ValueError, "1 values for 2 ids"):
            engine.set_initial([a, b], [values])
        with self.assertRaises(TypeError):
            engine.set_initial([a], [None])
        engine.begin_pass().end()
        with self.assertRaises(OutriggerError) as caught:
            engine.set_initial([a], [values])
        self.assertEqual(caught.exception.code, lowlevel.E_STATE)

    def test_a_value_and_a_shape_are_refused(self):
        engine = Engine(Comm.self_group(Context(workers=1)))
        with self.assertRaisesRegex(ValueError, "\"a\" has both"):
            engine.add_parameter("a", np.ones(3, np.float32), shape=(3,))


class Errors(unittest.TestCase):
    def test_code_name_and_text(self):
        with self.assertRaises(OutriggerError) as caught:
            Engine(Comm.self_group(Context()), {"optimiser": {}})
        error = caught.exception
        self.assertEqual((error.code, error.name), (lowlevel.E_CONFIG, "OTR_E_CONFIG"))
        self.assertIn("optimizer", error.text)
        self.assertEqual(str(error), f"OTR_E_CONFIG: {error.text}")

    def test_wrong_python_types(self):
        engine, (w,) = engine_with(np.ones(3, np.float32))
        for bad in (np.ones(3, np.int32), np.ones(3, ">f4"), [1.0, 2.0, 3.0], "abc"):
            with self.subTest(bad=bad), self.assertRaises((TypeError, ValueError)), engine.begin_pass() as p:
                p.add_grad(w, bad)
        with self.assertRaises(TypeError):
            engine.begin_pass(5)
        with self.assertRaises(TypeError):
            engine.acquire(["w"]).__enter__()
        with self.assertRaises(TypeError):
            Context(worker=1)
        with self.assertRaises(TypeError):
            lowlevel.engine_commit(Context().handle)
        with self.assertRaises(OutriggerError) as caught:
            lowlevel.engine_commit(None)
        self.assertEqual(caught.exception.code, lowlevel.E_ARGUMENT)

    def test_each_field_of_each_struct_is_readable(self):
        """python.i lists the integer fields by name; one it does not know would read as None."""
        engine, _ = engine_with()
        engine.begin_pass().end()
        report = engine.step()
        for record in (lowlevel.ParamOptions(), lowlevel.CommOptions(), lowlevel.ContextOptions(),
                       lowlevel.ShardOptions(), lowlevel.CallInfo(), lowlevel.EstimateOptions(), lowlevel.SaveOptions(),
                       lowlevel.LoadOptions(), engine.wait_save(0), report):
            fields = [n for n, v in vars(type(record)).items() if isinstance(v, property) and n != "thisown"]
            self.assertTrue(fields)
            for field in fields:
                if field not in ("group", "job", "name"):
                    self.assertIsInstance(getattr(record, field), (int, float), f"{type(record).__name__}.{field}")


class Arrays(unittest.TestCase):
    def test_all_dtypes_and_strides_in_and_out(self):
        base = np.arange(24, dtype=np.float32).reshape(4, 6)
        views = [base, base.T, base[::2, ::-1], base[:, 1:1], base[1, 2], base.astype(np.float64),
                 base.astype(np.float16), base.astype(ml_dtypes.bfloat16),
                 base.astype(ml_dtypes.bfloat16).view(np.uint16), np.float32(3)]
        engine, ids = engine_with(*views)
        for id, view in zip(ids, views):
            expected = np.asarray(view)
            if expected.dtype == np.uint16:
                expected = expected.view(ml_dtypes.bfloat16)
            np.testing.assert_array_equal(engine.read(id), expected.astype(np.float32))
            self.assertEqual(engine.parameter_shape(id), expected.shape)
        out = np.zeros((6, 4), ml_dtypes.bfloat16).T
        np.testing.assert_array_equal(engine.read(ids[0], out=out).astype(np.float32), base)

    def test_an_output_must_be_writable(self):
        engine, (w,) = engine_with(np.ones(3, np.float32))
        out = np.zeros(3, np.float32)
        out.flags.writeable = False
        with self.assertRaises((BufferError, ValueError)):
            engine.read(w, out=out)
        with engine.acquire([w]) as (weight,), self.assertRaises(ValueError):
            weight[0] = 2

    def test_nothing_is_copied(self):
        engine, (w,) = engine_with(np.ones((2, 3), np.float32))
        with engine.acquire([w]) as (a,), engine.acquire([w]) as (b,):
            self.assertEqual(a.ctypes.data, b.ctypes.data)
        with engine.begin_pass([np.ones((2, 3), np.float32)]) as p:
            p.output_grad(0)[1, 1] = 7
            self.assertEqual(p.output_grad(0)[1, 1], 7)
            slot = p.slot(w)
            slot[...] = p.output_grad(0)
            p.add_grad(w, slot)

    def test_bfloat16_slot(self):
        engine, (w,) = engine_with(np.ones(3, np.float32), config={"bf16": {"enabled": True}})
        with engine.begin_pass() as p:
            slot = p.slot(w)
            self.assertEqual(slot.dtype, ml_dtypes.bfloat16)
            slot[...] = [1, 2, 3]
            p.add_grad(w, slot)
        self.assertEqual(engine.step().outcome, lowlevel.STEP_APPLIED)


class Ownership(unittest.TestCase):
    def test_any_order(self):
        engine, (w,) = engine_with(np.ones(3, np.float32))  # context and communicator are gone already
        gc.collect()
        p = engine.begin_pass()
        p.add_grad(w, np.ones(3, np.float32))
        engine.close()
        p.end()
        p.close()
        p.close()

    def test_a_closed_object_says_so(self):
        engine, _ = engine_with()
        engine.close()
        with self.assertRaisesRegex(ValueError, "this Engine is closed"):
            engine.commit()

    def test_a_view_keeps_its_pass(self):
        engine, _ = engine_with()
        with engine.begin_pass([np.full(100, 3, np.float32)]) as p:
            dy = p.output_grad(0)
        del p
        gc.collect()
        self.assertEqual(engine.live_children, 1)
        self.assertEqual(dy.shape, (100,))
        del dy
        self.assertEqual(engine.live_children, 0)

    def test_a_failed_pass_is_abandoned_though_a_view_of_it_lives(self):
        engine, (w,) = engine_with(np.ones(100, np.float32))
        with self.assertRaisesRegex(ValueError, "backward failed"):
            with engine.begin_pass([np.full(100, 3, np.float32)]) as p:
                dy = p.output_grad(0)
                p.add_grad(w, dy)
                raise ValueError("backward failed")
        self.assertEqual(engine.step().reason, lowlevel.SKIP_ABANDONED)
        with engine.begin_pass() as p:
            p.add_grad(w, np.ones(100, np.float32))
        self.assertEqual(engine.step().outcome, lowlevel.STEP_APPLIED)
        self.assertEqual(dy[0], 3)

    def test_a_shard_keeps_its_arrays(self):
        context = Context(workers=1)
        shard = outrigger.Shard(context, np.ones(1000, np.float32), np.ones(1000, np.float32))
        gc.collect()
        np.random.default_rng(0).random((50, 1000)).astype(np.float32)  # would reuse freed memory
        optimizer = outrigger.Optimizer(context, {"type": "AdamW", "params": {"lr": 0.25}})
        self.assertEqual(optimizer.step([shard]).updates, 1000)
        state = shard.state(lowlevel.VALUE_EXP_AVG)
        shard.close()
        gc.collect()
        np.testing.assert_allclose(state, 0.1, rtol=1e-6)

    def test_option_texts_are_owned(self):
        options = lowlevel.ParamOptions()
        options.group = "".join(["first", "!"])
        options.group = "".join(["sec", "ond"])
        gc.collect()
        self.assertEqual(options.group, "second")

    def test_engine_context_manager(self):
        with engine_with(np.ones(3, np.float32))[0]:
            pass
        a, b = Comm.threads(Context(workers=1), 2)
        engines = [Engine(a), Engine(b)]
        raised = []

        def failing():
            try:
                with engines[0] as engine:
                    engine.commit()
                    raise KeyError("host")
            except KeyError as error:
                raised.append(error)

        def waiting():
            try:
                with engines[1] as engine:
                    engine.commit()
                    engine.begin_pass().end()
                    engine.step()
            except OutriggerError as error:
                raised.append(error)

        threads = [threading.Thread(target=target, daemon=True) for target in (failing, waiting)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            self.assertFalse(thread.is_alive())
        codes = [error.code for error in raised if isinstance(error, OutriggerError)]
        self.assertEqual(codes, [lowlevel.E_ABORTED])


class Lock(unittest.TestCase):
    def test_a_waiting_call_lets_other_threads_run(self):
        """Two ranks in one interpreter: a barrier that kept the lock would never end."""
        comms = Comm.threads(Context(workers=1), 2, timeout=30.0)
        counted = []

        def late():
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                counted.append(1)
            comms[1].barrier()

        thread = threading.Thread(target=late)
        thread.start()
        comms[0].barrier()
        thread.join(30)
        self.assertGreater(len(counted), 100)

    def test_each_thread_reads_its_own_text(self):
        engine, _ = engine_with()
        wrong = []

        def ask(name):
            for _ in range(200):
                try:
                    engine.parameter_id(name)
                except OutriggerError as error:
                    if name not in error.text:
                        wrong.append(error.text)

        threads = [threading.Thread(target=ask, args=(f"name-{i}-{i}",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Interrupts(unittest.TestCase):
    """Ctrl-C on the main thread, while rank 1 is a thread that comes late."""

    def setUp(self):
        comms = Comm.threads(Context(workers=1), 2, timeout=60.0)
        self.comm, self.goes_on, self.failures = comms[0], threading.Event(), []

        def other():
            try:
                engine, (w,) = engine_with(np.ones(600, np.float32), config=STAGE_2, comm=comms[1])
                with engine.begin_pass() as p:
                    p.add_grad(w, np.ones(600, np.float32))
                self.goes_on.wait(60)
                engine.step()
            except Exception as error:
                self.failures.append(error)

        self.thread = threading.Thread(target=other)
        self.thread.start()
        self.engine, (w,) = engine_with(np.ones(600, np.float32), config=STAGE_2, comm=self.comm)
        with self.engine.begin_pass() as p:
            p.add_grad(w, np.ones(600, np.float32))

    def tearDown(self):
        self.goes_on.set()
        self.thread.join(60)
        self.assertEqual(self.failures, [])

    def interrupted(self, call, error=KeyboardInterrupt):
        """Seconds from Ctrl-C to the exception."""
        pressed = []

        def press():
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(0.2, press)
        timer.start()
        with self.assertRaises(error):
            call()
        timer.join()
        self.assertLess(time.monotonic() - pressed[0], 0.5)

    def test_a_step_that_waits_raises_and_is_made_again(self):
        self.interrupted(self.engine.step)
        self.engine.check()
        self.interrupted(self.engine.step)
        self.goes_on.set()
        self.assertEqual(self.engine.step().outcome, lowlevel.STEP_APPLIED)

    def test_a_handler_of_the_hosts_own(self):
        class Stop(Exception):
            pass

        def handler(number, frame):
            raise Stop

        before = signal.signal(signal.SIGINT, handler)
        try:
            self.interrupted(self.engine.step, Stop)
        finally:
            signal.signal(signal.SIGINT, before)
        self.goes_on.set()
        self.assertEqual(self.engine.step().outcome, lowlevel.STEP_APPLIED)

    def test_a_pending_step_goes_on(self):
        self.engine.step_begin()
        self.assertEqual(self.engine.report(0.0).outcome, lowlevel.STEP_PENDING)
        self.interrupted(self.engine.report)
        self.goes_on.set()
        self.assertEqual(self.engine.report().outcome, lowlevel.STEP_APPLIED)

    def test_a_signal_without_an_exception_ends_nothing(self):
        seen = []
        before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
        timers = [threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)),
                  threading.Timer(0.5, self.goes_on.set)]
        for timer in timers:
            timer.start()
        try:
            self.assertEqual(self.engine.step().outcome, lowlevel.STEP_APPLIED)
        finally:
            for timer in timers:
                timer.join()
            signal.signal(signal.SIGUSR1, before)
        self.assertEqual(seen, [signal.SIGUSR1])


class Shards(unittest.TestCase):
    CONFIG = {"params": {"lr": 0.01}, "states": {"master": {"format": "split"}, "exp_avg": {"format": "block8"},
                                                 "exp_avg_sq": {"format": "block8"}}}

    def split(self, context, grads, remainder=None):
        weights = np.zeros(600, np.uint16)  # taken as bfloat16
        return outrigger.Shard(context, weights, grads, remainder=np.zeros(600, np.uint16) if remainder is None else remainder)

    def test_a_run_is_saved_and_goes_on(self):
        grads = np.sin(np.arange(600)).astype(np.float32)
        with outrigger.Context() as context, outrigger.Optimizer(context, self.CONFIG) as optimizer:
            run, again = self.split(context, grads), self.split(context, grads)
            for _ in range(3):
                optimizer.step([run])
            optimizer.prepare([again])
            values = [lowlevel.VALUE_MASTER, lowlevel.VALUE_EXP_AVG, lowlevel.VALUE_EXP_AVG_SQ]
            for value in values:
                saved = np.empty(600, np.float32)
                run.read(value, saved)
                again.write(value, saved)
            self.assertEqual((run.step, again.step), (3, 0))
            again.step = run.step
            for _ in range(2):
                optimizer.step([run, again])
            for value in values:
                first, second = np.empty(600, np.float32), np.zeros(600, np.float32)
                run.read(value, first)
                again.read(value, second)
                np.testing.assert_array_equal(first, second)
                self.assertGreater(np.abs(first).sum(), 0)
            with self.assertRaisesRegex(outrigger.OutriggerError, "shard_read"):
                run.state(lowlevel.VALUE_EXP_AVG)

    def test_wrong_memory_is_refused_not_written(self):
        grads = np.ones(600, np.float32)
        with outrigger.Context() as context, outrigger.Optimizer(context, self.CONFIG) as optimizer:
            for wrong in (np.zeros(1200, np.uint16)[::2], np.zeros(600, np.uint16)[::-1], np.zeros((600, 1), np.uint16)):
                with self.assertRaisesRegex(outrigger.OutriggerError, "remainder"):
                    self.split(context, grads, wrong)
            with self.assertRaises((BufferError, TypeError, ValueError)):
                self.split(context, grads, np.frombuffer(bytes(1200), np.uint16))
            shard = self.split(context, grads)
            optimizer.step([shard])
            frozen = np.frombuffer(bytes(2400), np.float32)
            with self.assertRaises((BufferError, TypeError, ValueError)):
                shard.read(lowlevel.VALUE_MASTER, frozen)
            self.assertEqual(frozen.sum(), 0)


class Muon(unittest.TestCase):
    CONFIG = {"type": "Muon", "params": {"lr": 0.05, "adam_lr": 0.01, "momentum": 0.9}}

    def test_an_engine_and_shards_agree(self):
        """A matrix, one that its name excludes, and a vector: to a shard its rows say which it is."""
        shapes = {"w": (4, 6), "embed": (6, 3), "b": (5,)}
        arrays = {name: np.sin(np.arange(np.prod(shape))).astype(np.float32).reshape(shape) for name, shape in shapes.items()}
        engine = Engine(Comm.self_group(Context(workers=1)), {"optimizer": self.CONFIG, "gradient_clipping": 0, "zero_optimization": {"stage": 2}})
        ids = {name: engine.add_parameter(name, array) for name, array in arrays.items()}
        engine.commit()
        with outrigger.Context() as context, outrigger.Optimizer(context, self.CONFIG) as optimizer:
            weights = {name: array.flatten() for name, array in arrays.items()}
            grads = {name: np.empty_like(array) for name, array in weights.items()}
            shards = [outrigger.Shard(context, weights[name], grads[name], rows=4 if name == "w" else 0) for name in shapes]
            for step in range(3):
                with engine.begin_pass() as p:
                    for name, identity in ids.items():
                        grads[name][:] = np.cos((step + 1) * weights[name])
                        p.add_grad(identity, grads[name].reshape(shapes[name]))
                self.assertEqual(engine.step().outcome, lowlevel.STEP_APPLIED)
                self.assertEqual(optimizer.step(shards).outcome, lowlevel.STEP_APPLIED)
                engine.set_group_value("adam_lr", 0.02)
                optimizer.set_value("adam_lr", 0.02)
            for name, identity in ids.items():
                np.testing.assert_array_equal(engine.read(identity).flatten(), weights[name])
                self.assertGreater(np.abs(weights[name] - arrays[name].flatten()).max(), 1e-3)
            self.assertEqual([shard.state_bytes for shard in shards], [24 * 4, 18 * 8, 5 * 8])
            for read in (lambda: engine.read(ids["w"], lowlevel.VALUE_EXP_AVG_SQ), lambda: shards[0].state(lowlevel.VALUE_EXP_AVG_SQ)):
                with self.assertRaises(OutriggerError) as caught:
                    read()
                self.assertEqual(caught.exception.code, lowlevel.E_NOT_FOUND)

    def test_rows_are_checked(self):
        with outrigger.Context() as context:
            for rows in (5, -1):
                with self.subTest(rows=rows), self.assertRaisesRegex(OutriggerError, "rows"):
                    outrigger.Shard(context, np.ones(24, np.float32), np.ones(24, np.float32), rows=rows)
            with self.assertRaises(TypeError):
                outrigger.Shard(context, np.ones(24, np.float32), np.ones(24, np.float32), columns=6)


class Module(unittest.TestCase):
    def test_help_has_the_headers_text(self):
        self.assertIn("Collective.", lowlevel.engine_commit.__doc__)
        self.assertIn("OTR_E_STATE", lowlevel.pass_add_grad.__doc__)
        self.assertIn("default OTR_LOG_WARNING", lowlevel.ContextOptions.log_level.__doc__)
        view = lowlevel.pass_get_output_grad(engine_with()[0].begin_pass([np.ones(1)]).handle, 0)
        self.assertIs(type(view), lowlevel.TensorView)

    def test_versions(self):
        self.assertEqual(lowlevel.abi_version(), lowlevel.ABI_VERSION)
        self.assertEqual(outrigger.version(), outrigger.build_info()["version"])
        self.assertEqual(outrigger.version(), outrigger.machine_info()["version"])

    def test_config(self):
        self.assertIsInstance(outrigger.config_check({"gradient_clipping": 2.0}), dict)
        engine, _ = engine_with(config={"gradient_clipping": 2.0})
        self.assertEqual(engine.config, outrigger.config_check({"gradient_clipping": 2.0}))


if __name__ == "__main__":
    unittest.main()
