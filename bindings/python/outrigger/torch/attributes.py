# SPDX-License-Identifier: Apache-2.0
"""What a module has in its attributes: a tensor given to it there (a condition, a prompt) enters an engine as its inputs do, and
what it leaves there (a loss of its routers, features for a distillation) leaves the engine as its outputs do.

Outside of calls the attributes hold what has passed the border, inside of them what the module has put there."""
import weakref

import torch

from . import backward
from .trees import may_hold_tensors, part, parts_of, put, rebuilt

_OWN = frozenset(vars(torch.nn.Module()))  # what PyTorch keeps in a module
_DEPTH = 4  # of containers in each other


class Attributes:
    """Of the modules of an engine that scales its loss: tensors, also in the containers that trees.py knows, and buffers."""

    def __init__(self, engine, module):
        self._engine, self._module = weakref.ref(engine), module
        self._out = []  # place, tensor of the module, tensor of the outside
        self._in = []  # place, tensor of the outside, tensor of the module
        self._given = []  # _in of the last call
        self._is_turned = False
        self._leaves: frozenset[int] = frozenset()  # by identity: given ones that are leaves of autograd

    def take_in(self, modules, is_of_call):
        """is_of_call: whether a call made a node. Returns the nodes of the border."""
        self.turn_out()  # of a backward that raised
        _swap(self._out)
        if torch.is_grad_enabled():
            self._out = []
        found = list(_places(modules))
        self._leaves = frozenset(id(place.get()) for place in found if place.get().is_leaf)
        given = [place for place in found if not is_of_call(place.get().grad_fn)]
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
            for place in list(_places(self._module.modules())):
                own = given.get(id(place.get()))
                if own is not None:
                    place.set(own)
        if torch.is_grad_enabled():
            self._given = self._in
        self._in = []

    def turn_in(self):
        """For a backward the attributes hold what they held in the call. False: they hold it already, or there is no difference."""
        if self._is_turned or self._in or not (self._given or self._out):
            return False
        _swap(self._out)
        _swap(_turned(self._given))
        self._is_turned = True
        return True

    def turn_out(self):
        if self._is_turned:
            _swap(self._given)
            _swap(_turned(self._out))
        self._is_turned = False

    def hand_out(self, is_of_call):
        if not torch.is_grad_enabled():
            _swap(_turned(self._out))
            return
        places = list(_places(self._module.modules()))
        for place in places:
            if place.get().is_leaf and id(place.get()) not in self._leaves:
                raise RuntimeError(f"the module made a tensor of shape {tuple(place.get().shape)} that requires a gradient in its forward and left it in "
                                   f"its attribute {place.name!r}, where its .grad would carry the loss scale of this engine; give the tensor to "
                                   "the engine as an input, or take its gradient in the forward by torch.autograd.grad")
        found = [place for place in places if is_of_call(place.get().grad_fn)]
        inner = [place.get() for place in found]
        outer = backward.outputs(self._engine(), inner)
        self._out = [(place, own, new) for place, own, new in zip(found, inner, outer)]
        for place, _, new in self._out:
            place.set(new)


def _swap(places):
    """(place, tensor that shall be there, tensor that is, unless the script has put another there)"""
    for place, own, new in places:
        if place.get() is new:
            place.set(own)


def _turned(places):
    return [(place, new, own) for place, own, new in places]


class _Place:
    """container[key], or what has the indices `path` in the tuple that is there. name: of the module's attribute."""

    def __init__(self, name, container, key, path=()):
        self.name = name
        self._container, self._key, self._path = container, key, path

    def get(self):
        try:
            found = part(self._container, self._key)
            for index in self._path:
                found = found[index]
            return found
        except (KeyError, IndexError, AttributeError, TypeError):
            return None

    def set(self, value):
        put(self._container, self._key, _replaced(part(self._container, self._key), self._path, value))


def _replaced(old, path, value):
    if not path:
        return value
    parts = list(old)
    parts[path[0]] = _replaced(parts[path[0]], path[1:], value)
    return rebuilt(old, parts)


def _places(modules):
    for module in modules:
        for key, value in list(vars(module).items()):
            if key not in _OWN and may_hold_tensors(value):
                yield from _at(key, vars(module), key, (), value, 0)
        for key, value in list(module._buffers.items()):
            yield from _at(key, module._buffers, key, (), value, 0)


def _at(name, container, key, path, value, depth):
    if isinstance(value, torch.Tensor):
        if value.requires_grad and not isinstance(value, torch.nn.Parameter):  # so of a dtype that can be differentiated
            yield _Place(name, container, key, path)
    elif depth < _DEPTH:
        for index, each in parts_of(value) or ():
            if isinstance(value, tuple):
                yield from _at(name, container, key, (*path, index), each, depth + 1)
            else:
                yield from _at(name, value, index, (), each, depth + 1)
