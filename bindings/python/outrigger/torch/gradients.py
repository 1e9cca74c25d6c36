# SPDX-License-Identifier: Apache-2.0
"""`parameter.grad`: before a backward, in its hooks, and between the window's last backward and the step.

A gradient leaves its parameter as soon as autograd has put it there. Who reads `.grad` after the window's last backward gets
the mean gradient over ranks, unscaled, float32; what is changed in it, or assigned, is what the step uses. So code written for
plain PyTorch (norms, clipping, a look at a gradient) does what it says. Reading is collective on more than one rank."""
from collections import OrderedDict
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from .. import lowlevel
from . import backward
from .direct import Scaling, true
from .owned import engine_of, mixed
from .pytorch import in_backward

_Tensor: Any = torch.Tensor
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

    def register_post_accumulate_grad_hook(self, hook):
        """In the hook .grad is the true gradient of the backward that runs, this rank's; what it leaves there is used."""
        engine = engine_of(self)
        if engine is None:
            return super().register_post_accumulate_grad_hook(hook)  # type: ignore[misc]
        return engine.gradients.add_hook(self, hook)


def make_live(parameter, engine, take):
    """Gives the parameter's own class this property. take(parameter): called when autograd has put a gradient into it."""
    registered = _Tensor._post_accumulate_grad_hooks.__get__(parameter) or {}
    before = list(registered.values())
    registered.clear()
    _Tensor.register_post_accumulate_grad_hook(parameter, take)
    kind = type(parameter)
    if not issubclass(kind, _Live):
        parameter.__class__ = mixed(kind, Scaling, _Live) if engine.scales else mixed(kind, _Live)
    for hook in before:
        engine.gradients.add_hook(parameter, hook)
    if engine.scales and parameter._backward_hooks:
        for key, hook in parameter._backward_hooks.items():
            parameter._backward_hooks[key] = true(parameter, hook)


def take(parameter):
    """What autograd has left, out of the parameter."""
    grad = _raw.__get__(parameter)
    _raw.__set__(parameter, None)
    return grad


class Gradients:
    """What of an engine's gradients was read or assigned since its last step."""

    def __init__(self, engine):
        self._engine = engine
        self._readable = set(engine.parameters_of.trainable)
        self._shown = {}  # parameter: tensor, the version that the library has
        self._removed = set()  # set to None after the window's last backward
        self._assigned = {}  # parameter: tensor, before any backward
        self._carried = {}  # parameter: this rank's part, read before another backward
        self._hooks, self._coming = {}, {}  # parameter: hooks; parameter: gradient, while they run
        self._is_graph = False

    # ---- As parameter.grad ----

    def read(self, parameter):
        if parameter in self._coming:
            return self._coming[parameter]
        if in_backward() or parameter in self._removed:
            return None
        if parameter in self._assigned:
            return self._assigned[parameter]
        if parameter in self._shown:
            return self._shown[parameter][0]
        if parameter not in self._readable or not self._engine.reduce():
            return None
        if self._is_graph:
            raise RuntimeError(f"the gradient of {self._name(parameter)!r} comes from a backward with create_graph=True, and .grad of an engine's "
                               "parameter cannot be differentiated; take it by torch.autograd.grad(loss, parameters, create_graph=True), or "
                               "leave create_graph out")
        tensor = self._engine.read(parameter, lowlevel.VALUE_GRAD)
        self._shown[parameter] = tensor, tensor._version
        return tensor

    def assign(self, parameter, value):
        """False: the engine keeps no gradient of this parameter."""
        if parameter not in self._readable:
            return False
        if value is not None and value.shape != parameter.shape:
            raise RuntimeError(f"assigned grad has shape {tuple(value.shape)}, the parameter {tuple(parameter.shape)}")
        if parameter in self._coming:
            self._coming[parameter] = value
        elif in_backward():
            raise RuntimeError(f"{self._name(parameter)!r}.grad was assigned while a backward runs; assign it after the backward, or in a hook of "
                               "register_post_accumulate_grad_hook")
        elif self._engine.is_window_empty():
            self._assigned.pop(parameter, None)
            if value is not None:
                self._assigned[parameter] = value
        elif not self._engine.reduce():
            raise RuntimeError(f"{self._name(parameter)!r}.grad was assigned inside an accumulation window, whose gradients are summed in the "
                               "engine; assign it before the window's first backward, or after its last one and before step()")
        else:
            self.written(parameter)
            if value is None:
                self._removed.add(parameter)
            else:
                self._shown[parameter] = value, None
        return True

    def _name(self, parameter):
        return self._engine.parameters_of.name_of(parameter)

    # ---- Hooks on what comes ----

    def add_hook(self, parameter, hook):
        hooks = self._hooks.setdefault(parameter, OrderedDict())
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        return handle

    def seen_by_hooks(self, parameter, grad):
        """The gradient after the hooks, as it came; None: they took it away."""
        self._is_graph = self._is_graph or grad.requires_grad
        if not self._hooks.get(parameter):
            return grad
        self._coming[parameter] = backward.leaves(self._engine, grad.detach())
        try:
            for hook in list(self._hooks[parameter].values()):
                hook(parameter)
        finally:
            seen = self._coming.pop(parameter)
        return None if seen is None else backward.enters(self._engine, seen, torch.float32)

    # ---- For the engine ----

    @property
    def is_waiting(self):
        """Whether gradients are kept here that the library has not."""
        return bool(self._carried)

    def assigned(self):
        """(parameter, tensor) of those that were set before a backward, which are taken now."""
        taken, self._assigned = self._assigned, {}
        return taken.items()

    def write_back(self):
        """Before the step."""
        if self._removed:
            self.carry()
            self._engine.reduce()
        for parameter, (tensor, version) in list(self._shown.items()):
            if tensor._version != version:
                self._engine.write(parameter, tensor, lowlevel.VALUE_GRAD)
                self._shown[parameter] = tensor, tensor._version

    def written(self, parameter):
        """The library has another gradient now than what is shown."""
        self._removed.discard(parameter)
        self._shown.pop(parameter, None)

    def carry(self):
        """After gradients were read another backward comes, or some were taken away: the library forgets the window, and what
        remains of it is added when the next gradients are complete. Collective."""
        engine, kept = self._engine, {}
        removed, self._removed = self._removed, set()
        self.write_back()
        self._shown.clear()
        for parameter in self._readable:
            if parameter not in removed and engine._library.has_grad(engine.id_of(parameter)):
                kept[parameter] = engine.read_local(parameter, lowlevel.VALUE_GRAD)
        engine.forget_window()
        self._carried = kept

    def add_carried(self):
        """The window's gradients are reduced."""
        for parameter, part in self._carried.items():
            self._engine.write_local(parameter, part.add_(self._engine.read_local(parameter, lowlevel.VALUE_GRAD)), lowlevel.VALUE_GRAD)
        self._carried = {}

    def forget(self):
        self._shown.clear()
        self._removed.clear()
        self._assigned.clear()
        self._carried.clear()
        self._is_graph = False
