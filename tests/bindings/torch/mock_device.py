# SPDX-License-Identifier: Apache-2.0
"""An engine on CUDA's mock driver under tensors of PyTorch that are the CPU's: in the place of outrigger.torch.devices.Cuda. The mock's
device memory is host memory that is hidden; what an engine shows there is made visible. What PyTorch computes happens at once, so
before it reads a weight the host waits for the device (Device.forward), which a GPU's stream would."""
import contextlib
import ctypes
import mmap
import os
from unittest import mock

import torch
from torch.utils.dlpack import to_dlpack

import outrigger
from outrigger import lowlevel
from outrigger.torch import devices

_ORDINAL = 100  # of the mock's device 0
_READ_WRITE = 3
_PAGE = mmap.PAGESIZE


class _Managed(ctypes.Structure):
    """The beginning of a DLManagedTensor."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _on(capsule, device_type):
    """The capsule as of another device."""
    managed = ctypes.cast(_pointer_of(capsule, b"dltensor"), ctypes.POINTER(_Managed)).contents
    managed.device_type, managed.device_id = device_type, 0
    return capsule, managed.data


def _unhide(address, size):
    first = address // _PAGE * _PAGE
    if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(first), ctypes.c_size_t(address + size - first), _READ_WRITE) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")


class Device:
    """stream: PyTorch's current one. calls: how many tensors were given in each."""
    device, place = torch.device("cpu"), (lowlevel.DEVICE_CUDA, 0)

    def __init__(self):
        self._context, self._driver = outrigger.Context(workers=1), ctypes.CDLL(os.environ["OTR_CUDA_DRIVER"])
        self._primary, self._given, self.stream, self.calls = ctypes.c_void_p(), [], 0, {}
        self.generator = torch.Generator()
        lowlevel.device_count(self._context.handle, lowlevel.DEVICE_CUDA)  # initialises the driver
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._primary), ctypes.c_int(_ORDINAL))

    def _call(self, name, *arguments):
        result = getattr(self._driver, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    @contextlib.contextmanager
    def _current(self):
        self._call("cuCtxPushCurrent_v2", self._primary)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def new_stream(self):
        made = ctypes.c_void_p()
        with self._current():
            self._call("cuStreamCreateWithPriority", ctypes.byref(made), ctypes.c_uint(1), ctypes.c_int(0))
        return made.value

    def order(self, first, then):
        """What the stream `then` is given from now on comes after what `first` has been given."""
        event = ctypes.c_void_p()
        with self._current():
            self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(2))
            self._call("cuEventRecord", event, ctypes.c_void_p(first))
            self._call("cuStreamWaitEvent", ctypes.c_void_p(then), event, ctypes.c_uint(0))

    def synchronize(self):
        with self._current():
            self._call("cuCtxSynchronize")
        for address in self._given:
            self.free(address)
        self._given.clear()

    def _locked(self, elements, dtype):
        """Memory of the host that a copy uses while the host goes on."""
        address, size = ctypes.c_void_p(), elements * dtype.itemsize
        with self._current():
            self._call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_uint(1))
        return torch.frombuffer((ctypes.c_char * size).from_address(address.value), dtype=dtype)

    def allocate(self, size):
        return lowlevel.device_allocate(self._context.handle, *self.place, size)

    def free(self, address):
        lowlevel.device_free(self._context.handle, *self.place, address)

    def live(self):
        """Bytes of its memory that are allocated."""
        get = self._driver.otr_mock_cuda_get
        get.restype = ctypes.c_double
        return get(b"bytes")

    def forward(self, *_):
        """A hook before a module's forward."""
        self.synchronize()

    # ---- As outrigger.torch.devices.Device ----

    def info(self):
        info = lowlevel.CallInfo()
        info.stream = self.stream
        return info

    def show(self, view):
        capsule, address = _on(view.__dlpack__(), lowlevel.DEVICE_CPU)
        tensor = torch.from_dlpack(capsule)
        if tensor.numel():
            _unhide(address, tensor.numel() * tensor.element_size())
            self.wait()  # what is shown is read at once
        return tensor

    def give(self, tensor):
        """A copy of it in the device's memory, written in the order of the current stream: to use it in another one's is a race, which
        the mock's device sees and does not survive."""
        self.calls[self.stream] = self.calls.get(self.stream, 0) + 1
        if not tensor.numel():
            return _on(to_dlpack(tensor), lowlevel.DEVICE_CUDA)[0]
        elements = 1 + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
        source = self._locked(elements, tensor.dtype)
        source.as_strided(tensor.size(), tensor.stride()).copy_(tensor)
        size = elements * tensor.element_size()
        address = self.allocate(size)
        with self._current():
            self._call("cuMemcpyHtoDAsync_v2", *map(ctypes.c_void_p, (address, source.data_ptr())), ctypes.c_size_t(size), ctypes.c_void_p(self.stream))
        self._given.append(address)
        there = torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=tensor.dtype)
        return _on(to_dlpack(there.as_strided(tensor.size(), tensor.stride())), lowlevel.DEVICE_CUDA)[0]

    def read(self, tensor):
        """What a kernel of the current stream would read there: begun now, not waited for."""
        target = self._locked(tensor.numel(), tensor.dtype)
        with self._current():
            self._call("cuMemcpyDtoHAsync_v2", *map(ctypes.c_void_p, (target.data_ptr(), tensor.data_ptr())),
                       ctypes.c_size_t(tensor.numel() * tensor.element_size()), ctypes.c_void_p(self.stream))
        return target.view(tensor.shape)

    def wait(self):
        with self._current():
            self._call("cuStreamSynchronize", ctypes.c_void_p(self.stream))

    def trim(self):
        pass

    def random_state(self):
        return self.generator.get_state()

    def set_random_state(self, state):
        self.generator.set_state(state)


@contextlib.contextmanager
def in_use(kind="cpu"):
    """Engines whose parameters are on this kind of device are made on the mock's device."""
    made = Device()
    with mock.patch.dict(devices.KINDS, {kind: lambda device: made}):
        yield made


def under(engine, device):
    """The engine, whose module's forward waits for the device."""
    engine.module.register_forward_pre_hook(device.forward)
    return engine
