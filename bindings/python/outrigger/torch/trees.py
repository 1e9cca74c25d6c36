# SPDX-License-Identifier: Apache-2.0
"""Tensors inside of what modules take and give: in tuples, lists, dictionaries, data classes and distributions."""
import copy
import dataclasses

import torch


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
    """value with each floating or complex tensor in it replaced by function(tensor); without a change, itself."""
    if isinstance(value, torch.Tensor):
        return function(value) if value.is_floating_point() or value.is_complex() else value
    if isinstance(value, (tuple, list)):
        return _map_sequence(function, value)
    if isinstance(value, dict):
        return _map_dict(function, value)
    if _has_fields(value):
        return _map_fields(function, value)
    return value


def tensors(value):
    """Those that map_tensors replaces."""
    found = []

    def note(tensor):
        found.append(tensor)
        return tensor

    map_tensors(note, value)
    return found


def _map_sequence(function, value):
    new = [map_tensors(function, each) for each in value]
    if all(one is other for one, other in zip(new, value)):
        return value
    return rebuilt(value, new)


def rebuilt(sequence, parts):
    """One of its class, named tuples too, with these parts."""
    kind = type(sequence)
    return kind(*parts) if hasattr(sequence, "_fields") else kind(parts)


def _has_fields(value):
    if isinstance(value, type):
        return False
    return dataclasses.is_dataclass(value) or isinstance(value, torch.distributions.Distribution)


def _changes(function, fields):
    changed = {}
    for key, each in fields.items():
        new = map_tensors(function, each)
        if new is not each:
            changed[key] = new
    return changed


def _map_dict(function, value):
    changed = _changes(function, value)
    if not changed:
        return value
    result = copy.copy(value)  # keeps the class: an OrderedDict, a model's output
    for key, new in changed.items():
        if getattr(result, "__dict__", {}).get(key) is value[key]:  # its items are attributes, too
            vars(result)[key] = new
        result[key] = new
    return result


def _map_fields(function, value):
    names = vars(value) if hasattr(value, "__dict__") else [each.name for each in dataclasses.fields(value)]
    changed = _changes(function, {name: getattr(value, name, None) for name in names})
    if not changed:
        return value
    result = copy.copy(value)
    for name, new in changed.items():
        object.__setattr__(result, name, new)  # of a frozen one, too
    return result
