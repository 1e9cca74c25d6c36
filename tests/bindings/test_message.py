# SPDX-License-Identifier: Apache-2.0
"""Messages in Python: arrays of any dtype and strides, memory that is kept, what is refused; and the safetensors package reads one."""
import ctypes
import gc
import importlib.util
import unittest

import numpy as np
from outrigger import Message, OutriggerError, lowlevel

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = None

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


def random_array(dtype, shape=(3, 5)):
    bits = np.random.default_rng(7).integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8)
    return (bits[..., 0] < 128) if dtype == "bool" else bits.view(dtype)[..., 0]


class Messages(unittest.TestCase):
    def test_every_dtype_comes_out_bit_by_bit(self):
        arrays = {dtype: random_array(dtype) for dtype in DTYPES}
        message = Message(Message.pack(arrays))
        self.assertEqual(set(message), set(DTYPES))
        self.assertEqual(len(message), len(DTYPES))
        for dtype, array in arrays.items():
            self.assertEqual(message[dtype].dtype, array.dtype)
            self.assertEqual(message[dtype].tobytes(), array.tobytes())
            self.assertEqual(message.tensor(dtype).dtype, dtype)

    @unittest.skipIf(bfloat16 is None, "ml_dtypes is not installed")
    def test_bfloat16_is_no_uint16(self):
        arrays = {"a": np.arange(6).astype(bfloat16), "b": np.arange(6, dtype=np.uint16)}
        message = Message(Message.pack(arrays))
        self.assertEqual((message["a"].dtype, message["b"].dtype), (np.dtype(bfloat16), np.dtype(np.uint16)))
        self.assertEqual(message["a"].tolist(), arrays["a"].tolist())

    def test_views_scalars_and_empty_arrays(self):
        base = np.arange(24, dtype=np.float32).reshape(4, 6)
        arrays = {"turned": base.T, "backwards": base[::-1, ::-2], "one": np.float32(3), "none": np.empty((0, 4), np.int64)}
        message = Message(Message.pack(arrays))
        for name, array in arrays.items():
            np.testing.assert_array_equal(message[name], array)
            self.assertEqual(message[name].shape, np.shape(array))

    def test_what_goes_along(self):
        tag = lowlevel.CallInfo()
        tag.loss_scale, tag.accumulation, tag.ranks = 4096 / 3, 2, 5
        data = Message.pack({}, micro_batch=9, tag=tag, attributes={"split": "train ä", "": "\\"})
        message = Message(data)
        self.assertEqual((message.micro_batch, message.attributes), (9, {"split": "train ä", "": "\\"}))
        self.assertEqual((message.tag.loss_scale, message.tag.accumulation, message.tag.ranks), (4096 / 3, 2, 5))
        self.assertEqual(message.info.bytes, len(data))
        self.assertIsNone(Message(Message.pack({})).tag)

    def test_arrays_keep_the_memory_and_nothing_is_copied(self):
        data = Message.pack({"x": np.arange(1000, dtype=np.float32)})
        message = Message(data, checked=False)
        x = message["x"]
        x[3] = -1
        with self.assertRaisesRegex(OutriggerError, "damaged"):
            Message(data)
        lowlevel.message_seal(data)
        self.assertEqual(Message(data)["x"][3], -1)
        message.close()
        with self.assertRaises(BufferError):
            data.append(0)  # x is still in there
        with self.assertRaisesRegex(ValueError, "this Message is closed"):
            message["x"]
        del message
        gc.collect()
        self.assertEqual(x[999], 999)
        del x
        gc.collect()
        data.append(0)

    def test_bytes_are_read_only(self):
        message = Message(bytes(Message.pack({"x": np.arange(4)})))
        self.assertFalse(message["x"].flags.writeable)
        with self.assertRaises(ValueError):
            message["x"][0] = 1

    def test_into_memory_that_is_there(self):
        arrays = {"x": np.arange(6, dtype=np.float64)}
        whole = Message.pack(arrays)
        memory = bytearray(b"\xee" * (len(whole) + 40))
        view = Message.pack(arrays, into=memory)
        self.assertEqual((bytes(view), bytes(memory[len(whole):])), (bytes(whole), b"\xee" * 40))
        np.testing.assert_array_equal(Message(view)["x"], arrays["x"])
        with self.assertRaisesRegex(OutriggerError, f"{len(whole)} bytes are needed") as caught:
            Message.pack(arrays, into=bytearray(len(whole) - 1))
        self.assertEqual(caught.exception.code, lowlevel.E_BUFFER_SIZE)

    def test_wrong_use_has_an_error(self):
        for bad, error, text in (({"x": np.zeros(2, complex)}, TypeError, "buffer format"), ({"x": "text"}, TypeError, "no array"),
                                 ({1: np.zeros(2)}, TypeError, "no str"), ({"__metadata__": np.zeros(2)}, OutriggerError, "__metadata__")):
            with self.assertRaisesRegex(error, text):
                Message.pack(bad)
        for bad, error, text in (({"a": None}, TypeError, "no str"), ({"a": "b\0c"}, ValueError, "NUL"), ({"b\0c": "a"}, ValueError, "NUL")):
            with self.assertRaisesRegex(error, text):
                Message.pack({}, attributes=bad)
        with self.assertRaisesRegex(ValueError, "NUL"):
            Message.pack({"a\0b": np.zeros(2)})
        memory = bytearray(1000)
        with self.assertRaisesRegex(OutriggerError, "'x' lies in the buffer"):
            Message.pack({"x": np.frombuffer(memory, np.float32, 20)[::-2]}, into=memory)
        with self.assertRaisesRegex(OutriggerError, "micro_batch = -1"):
            Message.pack({}, micro_batch=-1)
        good = Message.pack({"embedding": np.zeros(2)})
        for bad, text in ((b"", "no message"), (b"x" * 100, "no message"), (good[:-1], "cut short"), (memoryview(good)[1:], "multiple of 8")):
            with self.assertRaisesRegex(OutriggerError, text):
                Message(bad)
        message = Message(good)
        with self.assertRaisesRegex(KeyError, "embedding"):
            message["embeding"]
        self.assertIsNone(message.get("embeding"))
        self.assertNotIn("embeding", message)
        self.assertNotIn(3, message)

    def test_arrays_of_ctypes(self):
        values = (ctypes.c_float * 3)(1, 2, 3)
        self.assertEqual(Message(Message.pack({"x": values}))["x"].tolist(), [1, 2, 3])

    def test_routes(self):
        self.assertEqual(Message.share(8, 3), [3, 3, 2])
        self.assertEqual([tuple(r) for r in Message.routes([6, 6], [4, 4, 4])],
                         [(0, 0, 0, 0, 4), (0, 1, 4, 0, 2), (1, 1, 0, 2, 2), (1, 2, 2, 0, 4)])
        self.assertEqual(Message.routes([], []), [])
        with self.assertRaisesRegex(OutriggerError, "7 rows together, and target_rows 6"):
            Message.routes([3, 4], [6])

    @unittest.skipUnless(importlib.util.find_spec("safetensors"), "safetensors is not installed")
    def test_the_safetensors_package_reads_a_message(self):
        import safetensors.numpy
        arrays = {dtype: random_array(dtype) for dtype in DTYPES}
        read = safetensors.numpy.load(bytes(Message.pack(arrays, micro_batch=3, attributes={"a": "b"})))
        self.assertEqual(set(read), set(arrays))
        for name, array in arrays.items():
            self.assertEqual(read[name].tobytes(), array.tobytes())

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_tensors_of_pytorch(self):
        import torch
        tensors = {"x": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).T, "ids": torch.arange(4), "mask": torch.tensor([True, False])}
        message = Message(Message.pack(tensors))
        for name, tensor in tensors.items():
            self.assertTrue(torch.equal(torch.from_dlpack(message.tensor(name)), tensor))
        with self.assertRaises((BufferError, RuntimeError)):
            Message.pack({"x": torch.zeros(2, requires_grad=True)})


if __name__ == "__main__":
    unittest.main()
