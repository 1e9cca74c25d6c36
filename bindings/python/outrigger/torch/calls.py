# SPDX-License-Identifier: Apache-2.0
"""What is inside of an engine that scales its loss: what this thread computes in its calls, and the nodes of autograd that they
made."""
import contextlib
import threading
import weakref
from typing import Any

import torch

from . import backward
from .attributes import Attributes
from .forward_hooks import ForwardHooks
from .held import Hook
from .pytorch import untraced

_thread = threading.local()
_scaling: weakref.WeakSet[Any] = weakref.WeakSet()  # engines that are inside of themselves only


def _open_calls():
    if not hasattr(_thread, "calls"):
        _thread.calls = []
    return _thread.calls


def any_is_open():
    """Whether this thread is in a call, or in a backward, which computes again what was checkpointed in one."""
    return bool(_open_calls()) or backward.in_backward()


def around(engine):
    """The other engine in whose call this thread is; None: in no other's."""
    return next((each for each in reversed(_open_calls()) if each is not engine), None)


def is_inside(engine):
    return engine in _open_calls() or backward.in_backward()


def engine_of_node(node):
    """The engine in one of whose calls this thread made the node; None: outside."""
    number, thread = node._sequence_nr(), threading.get_ident()
    for engine in _scaling:
        if any(first <= number < last and thread == where for first, last, where in engine.calls.made):
            return engine
    return None


class Calls:
    """Of one engine, entered around each call of its module. made: (first, last, thread) of the numbers that autograd gave
    to the nodes of each call since the last step. entered: the nodes by which gradients leave the call that is open."""

    def __init__(self, engine, module):
        self.made, self.entered = [], []
        self._engine, self._module = weakref.ref(engine), module
        self._attributes = Attributes(engine, module)
        self._hooks = ForwardHooks(engine, self.outside, lambda hook: isinstance(hook, Hook))
        _scaling.add(engine)

    @untraced
    def __enter__(self):
        modules = list(self._module.modules())
        for module in modules:
            self._hooks.wrap(module)
            self._require_own_weights(module)
        self.entered.extend(self._attributes.take_in(modules, self._made))
        self._begin()

    @untraced
    def __exit__(self, kind, value, traceback):
        self._end()
        self._attributes.give_back()
        if kind is None:
            self._attributes.hand_out(self._made)

    def backward_came(self):
        """What a checkpoint computes again finds in attributes what the call found there."""
        if self._attributes.turn_in():
            torch.autograd.Variable._execution_engine.queue_callback(self._attributes.turn_out)

    def _made(self, node):
        """Whether one of this engine's calls made it."""
        return node is not None and engine_of_node(node) is self._engine()

    def _require_own_weights(self, module):
        """torch.func.functional_call puts other tensors there, whose gradients would come out with the engine's factor."""
        for own, each in module._parameters.items():
            if each is not None and each.grad_fn is not None:
                name = next(name for name, one in self._module.named_modules() if one is module)
                raise RuntimeError(f"{'.'.join(filter(None, (name, own)))!r} of an engine with a loss scale is a computed tensor in this call; "
                                   "call torch.func.functional_call with engine.module, whose gradients are then all true ones")

    def _begin(self):
        _open_calls().append(self._engine())
        self._first = torch.autograd._get_sequence_nr()

    def _end(self):
        _open_calls().pop()
        self.made.append((self._first, torch.autograd._get_sequence_nr(), threading.get_ident()))

    def is_open(self):
        return self._engine() in _open_calls()

    @contextlib.contextmanager
    def outside(self):
        """While it is entered, a call that is open does not count."""
        self._end()
        try:
            yield
        finally:
            self._begin()

    def forget(self):
        """After a step: graphs from before it are stale."""
        self.made.clear()
