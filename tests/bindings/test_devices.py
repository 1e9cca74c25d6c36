# SPDX-License-Identifier: Apache-2.0
"""Memory of a device: the plugin's, the host's own pool, copies."""
import contextlib
import io
import unittest

import numpy as np
import outrigger
from outrigger import Context, OutriggerError, lowlevel


class Devices(unittest.TestCase):
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
            engine = outrigger.Engine(outrigger.Comm.self_group(context), {})
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
