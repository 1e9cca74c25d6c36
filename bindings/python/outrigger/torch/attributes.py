# SPDX-License-Identifier: Apache-2.0
"""What a module leaves in its attributes (a loss of its routers, features for a distillation) leaves the engine as its outputs do.

Outside of calls the attributes hold what has passed the border, inside of them what the module has put there."""
import weakref

import torch

from . import backward

_OWN = frozenset(vars(torch.nn.Module()))  # what PyTorch keeps in a module


class Attributes:
    """Of the modules of an engine that scales its loss: tensors, and tensors in lists and dictionaries."""

    def __init__(self, engine, module):
        self._engine, self._module = weakref.ref(engine), module
        self._out = []  # container, key, tensor of the module, tensor of the outside

    def take_in(self):
        for container, key, inner, outer in self._out:
            if _get(container, key) is outer:
                container[key] = inner
        self._out = []

    def hand_out(self, is_of_call):
        """is_of_call: whether the call made a node."""
        found = [(container, key, each) for container, key, each in _tensors(self._module) if is_of_call(each.grad_fn)]
        if not found:
            return
        passed = backward.outputs(self._engine(), [each for _, _, each in found])
        for (container, key, inner), outer in zip(found, passed):
            container[key] = outer
            self._out.append((container, key, inner, outer))


def _tensors(root):
    for module in root.modules():
        own = {key: value for key, value in vars(module).items() if key not in _OWN}
        yield from _of(vars(module), own.items())
        for value in own.values():
            if type(value) is list:
                yield from _of(value, enumerate(value))
            elif type(value) is dict:
                yield from _of(value, value.items())


def _of(container, items):
    for key, value in items:
        if isinstance(value, torch.Tensor) and value.grad_fn is not None and value.is_floating_point():
            yield container, key, value


def _get(container, key):
    try:
        return container[key]
    except (KeyError, IndexError):
        return None
