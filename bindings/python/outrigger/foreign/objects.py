# SPDX-License-Identifier: Apache-2.0
"""What pickles of torch.save hold: tensors as references to their file, everything else as plain data or as placeholders."""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import numpy

from .files import Archive, ForeignError, mapped
from .pickles import Global, Made, Opaque, interpreted
from .tensors import STORAGES, Storage, Tensor

_DEEPEST = 64
_SCALARS = "biufc"  # kinds of NumPy's dtypes


def opened(path: str) -> Any:
    """The object of a file of torch.save. ForeignError."""
    return loaded(Archive(mapped(path), path))


def loaded(archive: Archive) -> Any:
    return interpreted(archive.pickle(), archive.name, _MAKERS, _storages(archive))


def metadata(data: memoryview, name: str) -> Any:
    """Of a pickle that has no tensors."""
    return interpreted(data, name, _MAKERS, lambda _: None)


def _storages(archive: Archive) -> Callable[[Any], Storage]:
    known: dict[str, Storage] = {}

    def persistent(identity: Any) -> Storage:
        kind, of, key, _, count = identity
        if kind != "storage" or not isinstance(of, Global) or type(key) is not str or type(count) is not int:
            raise ForeignError(f"{archive.name}: refers to {identity!r}, and should to a storage")
        found = STORAGES.get(of.name) if of.module in ("torch", "torch.storage") else None
        if found is None:
            raise ForeignError(f"{archive.name}: has a {of.text}, which is not read; legal are {', '.join(STORAGES)}: convert the tensor and save it again")
        if key not in known:
            known[key] = Storage(archive, key, *found, count)
        if known[key].dtype != found[0] or known[key].count != count:
            raise ForeignError(f"{archive.name}: says two things of the storage {key!r}; the file is damaged")
        return known[key]
    return persistent


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
    """torch._utils._rebuild_tensor_v2: then requires_grad, hooks and metadata."""
    if not isinstance(storage, Storage) or type(shape) is not tuple or type(strides) is not tuple:
        raise TypeError("a tensor has no storage, or no shape")
    return Tensor(storage, offset, shape, strides)


def _parameter(tensor: Any, *_: Any) -> Any:
    return tensor


def _of_type(make: Any, kind: Any, arguments: Any, *_: Any) -> Any:
    """torch._tensor._rebuild_from_type_v2, of a tensor with attributes of Python."""
    if isinstance(make, Global) and make.text in _MAKERS and type(arguments) is tuple:
        return _MAKERS[make.text](*arguments)
    return Opaque(kind, arguments) if isinstance(kind, Global) and type(arguments) is tuple else None


def _ordered(*items: Any) -> dict[Any, Any]:
    if items and items != ([],):  # torch.save sets them one by one
        raise TypeError("an OrderedDict is made of a list")
    return {}


def _size(items: Any = ()) -> tuple[Any, ...]:
    return tuple(items)


def _set(items: Any = ()) -> Any:
    if any(type(each) not in (str, int, float, bool, bytes, type(None)) for each in items):
        raise TypeError("a set is not of plain values")
    return set(items)


def _encoded(text: str, encoding: str = "latin1") -> bytes:
    """How protocol 2 writes bytes."""
    if encoding != "latin1":
        raise TypeError(f"bytes have the encoding {encoding!r}")
    return text.encode("latin1")


def _dtype(text: Any, *_: Any) -> numpy.dtype[Any] | str:
    """Of a number; of others the text."""
    if type(text) is str and len(text) <= 3 and text[:1] in _SCALARS:
        return numpy.dtype(text)
    return str(text)


def _scalar(dtype: Any, data: Any) -> Any:
    """A number of NumPy, as one of Python."""
    if not isinstance(dtype, numpy.dtype) or type(data) is not bytes:
        raise TypeError("a number of NumPy has no dtype of a number")
    return numpy.frombuffer(data, dtype, 1)[0].item()


_MAKERS: Mapping[str, Made] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter, "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _of_type,
    "torch.Size": _size,
    "collections.OrderedDict": _ordered,
    "builtins.set": _set, "__builtin__.set": _set,
    "_codecs.encode": _encoded,
    "numpy.dtype": _dtype,
    "numpy.core.multiarray.scalar": _scalar, "numpy._core.multiarray.scalar": _scalar,
}


def plain(value: Any, tensor: Callable[[Tensor], Any] | None = None) -> Any:
    """A copy for the user: an enumeration's member as its value, an argparse.Namespace as one, tensors as NumPy arrays (bfloat16 as float32)
    or as `tensor` makes them. What is not known stays an Opaque. ForeignError: it goes deeper than 64 levels."""
    return _plain(value, tensor or _array, {}, 0)


def _array(tensor: Tensor) -> Any:
    tensor.check()
    return tensor.float32() if tensor.dtype == "bfloat16" else tensor.array().copy()


def _plain(value: Any, tensor: Callable[[Tensor], Any], done: dict[int, Any], depth: int) -> Any:
    if depth > _DEEPEST:
        raise ForeignError(f"a value of the checkpoint goes deeper than {_DEEPEST} levels, which none of a training does")
    if isinstance(value, (str, bytes, int, float, complex, bool, type(None))):
        return value
    if id(value) not in done:  # one that is in several places is taken once, however often these are again
        done[id(value)] = _copied(value, lambda each: _plain(each, tensor, done, depth + 1), tensor)
    return done[id(value)]


def _copied(value: Any, each: Callable[[Any], Any], tensor: Callable[[Tensor], Any]) -> Any:
    if isinstance(value, Tensor):
        return tensor(value)
    if isinstance(value, dict):
        return {key: each(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value)(each(item) for item in value)
    if isinstance(value, Opaque):
        if value.name == "argparse.Namespace" and isinstance(value.state, dict) and all(type(key) is str for key in value.state):
            return argparse.Namespace(**each(value.state))
        if value.name.startswith("deepspeed.") and value.state is None and len(value.arguments) == 1 and type(value.arguments[0]) in (int, str):
            return value.arguments[0]  # an enumeration
    return value
