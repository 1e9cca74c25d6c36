# SPDX-License-Identifier: Apache-2.0
"""Tensors inside of what modules take and give: in tuples, lists, dictionaries, data classes and distributions."""
import copy
import dataclasses
import types
from collections.abc import Iterable
from typing import Any

import torch

_LEAVES = frozenset((int, float, bool, complex, str, bytes, type(None), type, torch.device, torch.dtype, torch.Size))
_OBJECTS = (torch.distributions.Distribution, torch.distributions.transforms.Transform, types.SimpleNamespace)


def among(kind, value):
    """The objects of a class in tuples, lists and dictionaries."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from among(kind, each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from among(kind, each)


def map_tensors(function, value):
    """value with each floating or complex tensor in it replaced by function(tensor); without a change, itself. What is there
    twice, or contains itself, does so in the result."""
    return _Map(function).of(value)


def tensors(value):
    """Those that map_tensors replaces."""
    found = []

    def note(tensor):
        found.append(tensor)
        return tensor

    map_tensors(note, value)
    return found


class _Map:
    def __init__(self, function):
        self._function = function
        self._results, self._open = {}, set()  # by identity of a container

    def of(self, value):
        if isinstance(value, torch.Tensor):
            return self._function(value) if value.is_floating_point() or value.is_complex() else value
        parts = parts_of(value)
        if not parts:
            return value
        key = id(value)
        if key in self._open:
            return self._results.setdefault(key, copied(value))
        if key not in self._results:
            self._open.add(key)
            changed = self._changed(parts)
            self._open.remove(key)
            self._results[key] = self._with(value, parts, changed)
        return self._results[key]

    def _changed(self, parts):
        changed = {}
        for name, each in parts:
            new = self.of(each)
            if new is not each:
                changed[name] = new
        return changed

    def _with(self, value, parts, changed):
        result = self._results.get(id(value), value)  # made already where it contains itself
        if not changed:
            return result
        if isinstance(value, tuple):
            return rebuilt(value, [changed.get(index, each) for index, each in enumerate(tuple(value))])
        if result is value:
            result = copied(value)
        for name, new in changed.items():
            put(result, name, new)
        return result


def parts_of(value):
    """[(name, part)] of a container; None: it is none, or has nothing that could hold a tensor."""
    if type(value) in _LEAVES or isinstance(value, (torch.nn.Module, torch.Tensor)):
        return None
    found: Iterable[tuple[Any, Any]]
    if isinstance(value, (tuple, list)):
        found = enumerate(tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value))
    elif isinstance(value, dict):
        found = dict.items(value)
    elif not isinstance(value, type) and (dataclasses.is_dataclass(value) or isinstance(value, _OBJECTS)):
        found = _fields(value).items()
    else:
        return None
    return [(name, part) for name, part in found if may_hold_tensors(part)]


def may_hold_tensors(value):
    return type(value) not in _LEAVES


def _fields(value):
    found = dict(getattr(value, "__dict__", {}))
    if dataclasses.is_dataclass(value):
        found.update((each.name, getattr(value, each.name)) for each in dataclasses.fields(value) if hasattr(value, each.name))
    return found


def part(container, name):
    """Raises KeyError, IndexError or AttributeError where there is none."""
    if isinstance(container, dict):
        return dict.__getitem__(container, name)
    if isinstance(container, (tuple, list)):
        return container[name]
    return getattr(container, name)


def put(container, name, value):
    """Past what its class does when it is written into, which may refuse it."""
    if isinstance(container, dict):
        own = getattr(container, "__dict__", {})
        if own.get(name) is dict.__getitem__(container, name):  # its items are attributes, too
            own[name] = value
        dict.__setitem__(container, name, value)
    elif isinstance(container, list):
        list.__setitem__(container, name, value)
    else:
        object.__setattr__(container, name, value)  # of a frozen one, too


def copied(container):
    """One of its class with the same parts; a tuple itself."""
    if isinstance(container, tuple):
        return container
    if isinstance(container, list):
        result = list.__new__(type(container))
        list.extend(result, list.__iter__(container))
        return _with_attributes(result, container)
    try:
        return copy.copy(container)
    except Exception as error:
        raise TypeError(f"an object of {type(container).__qualname__} with tensors comes to an engine's border, where it is copied, and it "
                        f"refuses that ({error}); give and return the tensors in a tuple, list or dictionary") from error


def rebuilt(sequence, parts):
    """A tuple of its class, named ones too, with these parts."""
    kind = type(sequence)
    try:
        result = tuple.__new__(kind, parts)
    except TypeError:  # one of PyTorch's own
        return kind(parts)
    return _with_attributes(result, sequence)


def _with_attributes(result, original):
    if hasattr(original, "__dict__"):
        vars(result).update(vars(original))
    return result
