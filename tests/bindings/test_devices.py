# SPDX-License-Identifier: Apache-2.0
"""Devices in Python: memory, the plugin's or the host's own pool's, copies, states that leave one."""
import contextlib
import io
import unittest

import numpy as np
from outrigger import Comm, Context, Engine, OutriggerError, lowlevel


class Devices(unittest.TestCase):
    def test_states_leave_the_device_and_come_back(self):
        context = Context(workers=1)
        lowlevel.context_load_plugin(context.handle, "simulated")
        engine = Engine(Comm.self_group(context), {"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}})
        lowlevel.engine_set_device(engine.handle, lowlevel.DEVICE_EXTENSION, 0)
        engine.add_parameter("w", np.arange(300, dtype=np.float32))
        engine.commit()
        there = [resident for purpose, resident, _ in engine.memory if purpose == "total"]
        engine.offload_states(lowlevel.STATES_MASTER | lowlevel.STATES_MOMENTS, page_lock=False)
        self.assertEqual([resident - before for (purpose, resident, _), before in
                          zip((each for each in engine.memory if each[0] == "total"), there)], [3 * 512 * 4, -3 * 512 * 4])
        for call in (engine.step, engine.offload_states):
            self.assertRaisesRegex(OutriggerError, "master weights, moments left the device .* otr_engine_reload_states first", call)
        engine.reload_states()
        self.assertEqual([resident for purpose, resident, _ in engine.memory if purpose == "total"], there)
        self.assertRaisesRegex(OutriggerError, "states = 32", engine.offload_states, 32)

    def test_memory_of_a_device_is_a_number(self):
        context = Context(workers=1).handle
        lowlevel.context_load_plugin(context, "simulated")
        self.assertEqual(lowlevel.device_count(context, lowlevel.DEVICE_EXTENSION), 8)
        address = lowlevel.device_allocate(context, lowlevel.DEVICE_EXTENSION, 0, 64)
        self.assertGreater(address, 0)
        lowlevel.device_free(context, lowlevel.DEVICE_EXTENSION, 0, address)
        lowlevel.device_free(context, lowlevel.DEVICE_EXTENSION, 0, None)
        with self.assertRaises(OutriggerError) as caught:
            lowlevel.device_free(context, lowlevel.DEVICE_EXTENSION, 0, address)
        self.assertEqual(caught.exception.code, lowlevel.E_ARGUMENT)
        with self.assertRaises(TypeError):
            lowlevel.device_free(context, lowlevel.DEVICE_EXTENSION, 0, "address")

    def test_allocator(self):
        place = (lowlevel.DEVICE_EXTENSION, 0)
        context, live, streams = Context(workers=1), {}, set()
        context.load_plugin("simulated")

        def allocate(size, stream):
            address = lowlevel.device_allocate(context.handle, *place, size)
            live[address] = size
            streams.add(stream)
            return address

        def release(address, size, stream):
            if live.pop(address) == size:
                lowlevel.device_free(context.handle, *place, address)

        def no_memory(size, stream):
            raise MemoryError(f"{size} bytes of the pool")

        def engine_there():
            engine = Engine(Comm.self_group(context), {})
            lowlevel.engine_set_device(engine.handle, *place)
            engine.add_parameter("w", np.ones(1000, np.float32))
            return engine

        context.set_device_allocator(*place, allocate, release)
        with engine_there() as engine:
            engine.commit()
            self.assertGreaterEqual(sum(live.values()), 4 * 4000)
            with self.assertRaises(OutriggerError) as caught:
                context.set_device_allocator(*place)
            self.assertEqual(caught.exception.code, lowlevel.E_STATE)
        self.assertEqual(live, {})
        self.assertTrue(streams)
        context.set_device_allocator(*place, no_memory, release)
        engine = engine_there()
        with contextlib.redirect_stderr(io.StringIO()) as told, self.assertRaises(OutriggerError) as caught:
            engine.commit()
        engine.close()
        self.assertEqual(caught.exception.code, lowlevel.E_OUT_OF_MEMORY)
        self.assertIn("bytes of the pool", told.getvalue())
        context.set_device_allocator(*place)
        with engine_there() as engine:
            engine.commit()
            self.assertEqual(live, {})

    def test_copy(self):
        context, out = Context(workers=1).handle, np.zeros((2, 3), np.float32)
        lowlevel.tensor_copy(context, out, np.ones((2, 3), np.float32))
        self.assertEqual(out.sum(), 6)
        out.flags.writeable = False
        with self.assertRaises((BufferError, ValueError)):
            lowlevel.tensor_copy(context, out, np.ones((2, 3), np.float32))


if __name__ == "__main__":
    unittest.main()
