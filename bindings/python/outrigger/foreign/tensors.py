# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch.save as references to bytes of a file, which are read when they are asked for."""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from .files import Archive, ForeignError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float32Array = NDArray[numpy.float32]

# Of a class of storages: PyTorch's name of the dtype, and NumPy's. bfloat16 is the upper half of a float32.
STORAGES = {"FloatStorage": ("float32", "<f4"), "DoubleStorage": ("float64", "<f8"), "HalfStorage": ("float16", "<f2"), "BFloat16Storage": ("bfloat16", "<u2"),
            "LongStorage": ("int64", "<i8"), "IntStorage": ("int32", "<i4"), "ShortStorage": ("int16", "<i2"), "CharStorage": ("int8", "<i1"),
            "ByteStorage": ("uint8", "<u1"), "BoolStorage": ("bool", "<u1")}
_FLOATING = ("float32", "float64", "float16", "bfloat16")
_MOST_DIMENSIONS = 64
_MOST_ELEMENTS = 1 << 56


class Storage:
    """An entry data/<key> of an archive: elements of one dtype."""

    def __init__(self, archive: Archive, key: str, dtype: str, numpy_dtype: str, count: int) -> None:
        self.archive, self.entry, self.dtype, self.count = archive, f"data/{key}", dtype, count
        data = archive.bytes(self.entry)
        size = numpy.dtype(numpy_dtype).itemsize
        if count < 0 or count * size != len(data):
            raise ForeignError(f"{archive.name}: the pickle says that {self.entry!r} has {count} elements of {dtype}, and it has {len(data)} bytes; the file is damaged")
        self.values = numpy.frombuffer(data, numpy_dtype)


class Tensor:
    """Of shape and dtype (PyTorch's name of it, such as "bfloat16"). Nothing is read until float32 or array is called."""

    def __init__(self, storage: Storage, offset: int, shape: Sequence[int], strides: Sequence[int]) -> None:
        self.storage, self.dtype, self.shape = storage, storage.dtype, tuple(shape)
        self._offset, self._strides = offset, tuple(strides)
        name = f"{storage.archive.name}: a tensor of {storage.entry!r}"
        if not all(type(each) is int and 0 <= each < _MOST_ELEMENTS for each in (offset, *shape, *strides)) or len(shape) != len(strides) or len(shape) > _MOST_DIMENSIONS:
            raise ForeignError(f"{name} has the offset {offset!r}, shape {shape!r} and strides {strides!r}, which no tensor has; the file is damaged")
        self.count = math.prod(self.shape)
        end = offset + sum((n - 1) * stride for n, stride in zip(self.shape, self._strides)) + 1 if self.count else offset
        if end > storage.count or self.count > storage.count:
            raise ForeignError(f"{name} has the offset {offset}, shape {self.shape} and strides {self._strides}, which are {self.count} elements up to number {end} of "
                               f"{storage.count}; the file is damaged, or the tensor was expanded: save a copy of it")

    @property
    def is_floating(self) -> bool:
        return self.dtype in _FLOATING

    def is_same(self, other: Tensor) -> bool:
        """Whether both are views of the same elements: one parameter under two names."""
        return (self.storage is other.storage and self._offset == other._offset and self.shape == other.shape and self._strides == other._strides
                and self.count > 0)

    def array(self) -> NDArray[Any]:
        """A read-only view of the file in this shape. bfloat16: its bits, as uint16."""
        step = self.storage.values.itemsize
        return numpy.lib.stride_tricks.as_strided(self.storage.values[self._offset:], self.shape, [each * step for each in self._strides], writeable=False)

    def flat(self, first: int, count: int) -> NDArray[Any]:
        """Elements in row-major order: a view where they lie so."""
        array = self.array()
        return array.reshape(-1)[first:first + count]

    def float32(self) -> Float32Array:
        """A new array of this shape."""
        out = numpy.empty(self.shape, numpy.float32)
        convert(self.array(), self.dtype, out)
        return out

    def scalar(self) -> float:
        """ForeignError: it has more than one element, or none."""
        if self.count != 1:
            raise ForeignError(f"{self.storage.archive.name}: a tensor of shape {self.shape} is where a number should be; the file is damaged")
        out = numpy.empty(self.shape, numpy.float64)
        convert(self.array(), self.dtype, out)
        return float(out.reshape(-1)[0])

    def check(self) -> None:
        """Compares the storage with its checksum. ForeignError."""
        self.storage.archive.check(self.storage.entry)

    def __repr__(self) -> str:
        return f"<{self.dtype} tensor of shape {self.shape} in {self.storage.archive.name}>"


def convert(values: NDArray[Any], dtype: str, out: NDArray[Any]) -> None:
    """Elements of that dtype of PyTorch into an array of a floating one, rounded to nearest."""
    if dtype == "bfloat16":
        out[...] = (values.astype(numpy.uint32) << 16).view(numpy.float32)
    else:
        with numpy.errstate(over="ignore"):  # of float64, which becomes Inf as PyTorch makes it
            out[...] = values


def concatenated(pieces: Iterable[tuple[Tensor, int, int]], out: Float32Array) -> None:
    """Of each tensor count elements from first on, in row-major order, one after the other into a 1-D array."""
    at = 0
    for tensor, first, count in pieces:
        convert(tensor.flat(first, count), tensor.dtype, out[at:at + count])
        at += count


def cut(parts: Sequence[Any], at: int, count: int) -> list[tuple[Tensor, int, int]]:
    """Elements [at, at + count) of tensors that follow each other, as far as they are there."""
    pieces: list[tuple[Tensor, int, int]] = []
    begin = 0
    for tensor in parts:
        size = tensor.count if isinstance(tensor, Tensor) else 0
        first, last = max(at, begin), min(at + count, begin + size)
        if last > first:
            pieces.append((tensor, first - begin, last - first))
        begin += size
    return pieces


def rounded(values: Float32Array, dtype: str) -> Float32Array:
    """As PyTorch makes them of that dtype, to nearest even, in float32 again."""
    if dtype == "bfloat16":
        bits = values.view(numpy.uint32)
        return ((bits + (0x7FFF + ((bits >> 16) & 1))) & numpy.uint32(0xFFFF0000)).astype(numpy.uint32).view(numpy.float32)
    with numpy.errstate(over="ignore"):
        return values.astype(dtype).astype(numpy.float32) if dtype in ("float16", "float64") else values
