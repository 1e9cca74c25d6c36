# SPDX-License-Identifier: Apache-2.0
"""What a module has in its attributes: a tensor given to it there (a condition, a prompt) enters an engine as its inputs do, and
what it leaves there (a loss of its routers, features for a distillation) leaves the engine as its outputs do.

Outside of calls the attributes hold what has passed the border, inside of them what the module has put there."""
import weakref

import torch

from . import backward
from .trees import rebuilt

_OWN = frozenset(vars(torch.nn.Module()))  # what PyTorch keeps in a module
_DEPTH = 4  # of lists, tuples and dictionaries in each other


class Attributes:
    """Of the modules of an engine that scales its loss: tensors, also in lists, tuples and dictionaries, and buffers."""

    def __init__(self, engine, module):
        self._engine, self._module = weakref.ref(engine), module
        self._out = []  # place, tensor of the module, tensor of the outside
        self._in = []  # place, tensor of the outside, tensor of the module

    def take_in(self, is_of_call):
        """is_of_call: whether a call made a node. Returns the nodes of the border."""
        for place, own, new in self._out:
            if place.get() is new:
                place.set(own)
        self._out = []
        given = [place for place in _places(self._module) if not is_of_call(place.get().grad_fn)]
        outer = [place.get() for place in given]
        inner, entered = backward.inputs(self._engine(), outer)
        self._in = [(place, own, new) for place, own, new in zip(given, outer, inner)]
        for place, _, new in self._in:
            place.set(new)
        return entered

    def give_back(self):
        """What was given from outside, wherever the module has put it."""
        given = {id(new): own for _, own, new in self._in}
        if given:
            for place in _places(self._module):
                own = given.get(id(place.get()))
                if own is not None:
                    place.set(own)
        self._in = []

    def hand_out(self, is_of_call):
        found = [place for place in _places(self._module) if is_of_call(place.get().grad_fn)]
        inner = [place.get() for place in found]
        outer = backward.outputs(self._engine(), inner)
        self._out = [(place, own, new) for place, own, new in zip(found, inner, outer)]
        for place, _, new in self._out:
            place.set(new)


class _Place:
    """container[key], or what has the indices `path` in the tuple that is there."""

    def __init__(self, container, key, path=()):
        self._container, self._key, self._path = container, key, path

    def get(self):
        try:
            found = self._container[self._key]
            for index in self._path:
                found = found[index]
            return found
        except (KeyError, IndexError, TypeError):
            return None

    def set(self, value):
        self._container[self._key] = _replaced(self._container[self._key], self._path, value)


def _replaced(old, path, value):
    if not path:
        return value
    parts = list(old)
    parts[path[0]] = _replaced(parts[path[0]], path[1:], value)
    return rebuilt(old, parts)


def _places(root):
    for module in root.modules():
        own = [(key, value) for key, value in vars(module).items() if key not in _OWN]
        yield from _of(vars(module), own)
        yield from _of(module._buffers, list(module._buffers.items()))


def _of(container, items, depth=0):
    for key, value in items:
        yield from _at(container, key, (), value, depth)


def _at(container, key, path, value, depth):
    if isinstance(value, torch.Tensor):
        if value.requires_grad and not isinstance(value, torch.nn.Parameter):  # so of a dtype that can be differentiated
            yield _Place(container, key, path)
    elif depth == _DEPTH:
        return
    elif isinstance(value, list):
        yield from _of(value, enumerate(value), depth + 1)
    elif isinstance(value, dict):
        yield from _of(value, list(value.items()), depth + 1)
    elif isinstance(value, tuple):
        for index, each in enumerate(value):
            yield from _at(container, key, (*path, index), each, depth + 1)
