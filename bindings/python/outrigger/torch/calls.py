# SPDX-License-Identifier: Apache-2.0
"""What is inside of an engine that scales its loss: what this thread computes in its calls, and the nodes of autograd that they
made."""
import threading
import weakref

import torch

from . import backward
from .attributes import Attributes
from .untraced import untraced

_thread = threading.local()
_scaling = weakref.WeakSet()  # engines that are inside of themselves only


def _open_calls():
    if not hasattr(_thread, "calls"):
        _thread.calls = []
    return _thread.calls


def any_is_open():
    """Whether this thread is in a call, or in a backward, which computes again what was checkpointed in one."""
    return bool(_open_calls()) or backward.in_backward()


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
    to the nodes of each call since the last step."""

    def __init__(self, engine, module):
        self.made = []
        self._engine = weakref.ref(engine)
        self._attributes = Attributes(engine, module)
        _scaling.add(engine)

    @untraced
    def __enter__(self):
        self._attributes.take_in()
        _open_calls().append(self._engine())
        self._first = torch.autograd._get_sequence_nr()

    @untraced
    def __exit__(self, kind, value, traceback):
        _open_calls().pop()
        made = self._first, torch.autograd._get_sequence_nr(), threading.get_ident()
        self.made.append(made)
        if kind is None:
            self._attributes.hand_out(lambda node: made[0] <= node._sequence_nr() < made[1])

    def forget(self):
        """After a step: graphs from before it are stale."""
        self.made.clear()
