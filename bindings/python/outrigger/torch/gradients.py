# SPDX-License-Identifier: Apache-2.0
"""`parameter.grad` between the window's last backward and the step.

A gradient leaves its parameter as soon as autograd has put it there. Who reads `.grad` afterwards gets the mean gradient
over ranks, unscaled, float32; what is changed in it, or assigned, is what the step uses. So code written for plain PyTorch
(norms, clipping, a look at a gradient) does what it says. Reading is collective on more than one rank."""
from typing import Any

import torch

from .. import lowlevel
from .registry import engine_of

_raw: Any = torch.Tensor.grad  # a property


class _Live:
    @property
    def grad(self):
        own = _raw.__get__(self)
        if own is not None:
            return own
        engine = engine_of(self)
        # torch.compile looks at every parameter when it traces, which each rank does in its own time.
        return None if engine is None or torch.compiler.is_compiling() else engine.gradients.read(self)

    @grad.setter
    def grad(self, value):
        engine = engine_of(self)
        if engine is None or not engine.gradients.assign(self, value):
            _raw.__set__(self, value)

    @grad.deleter
    def grad(self):
        self.grad = None


_classes: dict[type, type] = {}


def make_live(parameter):
    """Gives the parameter's own class this property."""
    kind = type(parameter)
    if issubclass(kind, _Live):
        return
    if kind not in _classes:
        _classes[kind] = type(kind.__name__, (_Live, kind), {"__module__": kind.__module__})
    parameter.__class__ = _classes[kind]


def take(parameter):
    """What autograd has left, out of the parameter."""
    grad = _raw.__get__(parameter)
    _raw.__set__(parameter, None)
    return grad


class Gradients:
    """What of an engine's gradients was read or assigned since its last step."""

    def __init__(self, engine):
        self._engine = engine
        self._shown = {}  # parameter: tensor, the version that the library has
        self._readable = set(engine.parameters_of.trainable)

    def read(self, parameter):
        if parameter in self._shown:
            return self._shown[parameter][0]
        if parameter not in self._readable or not self._engine.reduce():
            return None
        tensor = self._engine.read(parameter, lowlevel.VALUE_GRAD)
        self._shown[parameter] = tensor, tensor._version
        return tensor

    def assign(self, parameter, value):
        """False: there is no gradient of the engine that this would replace."""
        if parameter not in self._readable or not self._engine.reduce():
            return False
        value = torch.zeros(parameter.shape) if value is None else value
        if value.shape != parameter.shape:
            raise RuntimeError(f"assigned grad has shape {tuple(value.shape)}, the parameter {tuple(parameter.shape)}")
        self._shown[parameter] = value, None
        return True

    def write_back(self):
        """Before the step."""
        for parameter, (tensor, version) in self._shown.items():
            if tensor._version != version:
                self._engine.write(parameter, tensor, lowlevel.VALUE_GRAD)

    def forget(self):
        self._shown.clear()
