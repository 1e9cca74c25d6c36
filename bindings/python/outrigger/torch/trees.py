# SPDX-License-Identifier: Apache-2.0
"""Tensors inside of what modules take and give."""
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
    """value with each floating tensor in its tuples, lists and dictionaries replaced by function(tensor)."""
    if isinstance(value, torch.Tensor):
        return function(value) if value.is_floating_point() else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(function, each) for each in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(function, each) for each in value)
    if isinstance(value, dict):
        return _map_dict(function, value)
    return value


def _map_dict(function, value):
    changed = {}
    for key, each in value.items():
        new = map_tensors(function, each)
        if new is not each:
            changed[key] = new
    if not changed:
        return value
    result = value.copy()  # keeps the class: an OrderedDict, a model's output
    for key, each in changed.items():
        result[key] = each
    return result
