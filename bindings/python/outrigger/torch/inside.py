# SPDX-License-Identifier: Apache-2.0
"""What is inside of an engine that scales its loss: what this thread computes in its calls, and the nodes of autograd that they
made."""
import contextlib
import threading
import weakref

import torch

from .pytorch import in_backward

_thread = threading.local()


def _open_calls():
    if not hasattr(_thread, "calls"):
        _thread.calls = []
    return _thread.calls


def any_is_open():
    """Whether this thread is in a call, or in a backward, which computes again what was checkpointed in one."""
    return bool(_open_calls()) or in_backward()


def around(engine):
    """The other engine in whose call this thread is; None: in no other's."""
    return next((each for each in reversed(_open_calls()) if each is not engine), None)


def is_inside(engine):
    return engine in _open_calls() or in_backward()


class Inside:
    """Of one engine. engine(): None once it is gone. made: (first, last, thread) of the numbers that autograd gave to the nodes
    of each call since the last step."""

    def __init__(self, engine):
        self.made = []
        self.engine = weakref.ref(engine)
        _insides.add(self)

    def begin(self):
        _open_calls().append(self.engine())
        self._first = torch.autograd._get_sequence_nr()

    def end(self):
        _open_calls().pop()
        self.made.append((self._first, torch.autograd._get_sequence_nr(), threading.get_ident()))

    def is_open(self):
        return self.engine() in _open_calls()

    @contextlib.contextmanager
    def outside(self):
        """While it is entered, a call that is open does not count."""
        self.end()
        try:
            yield
        finally:
            self.begin()

    def forget(self):
        """After a step: graphs from before it are stale."""
        self.made.clear()

    def has_made(self, number, thread):
        return any(first <= number < last and thread == where for first, last, where in self.made)


_insides: weakref.WeakSet[Inside] = weakref.WeakSet()  # of the engines that scale their loss


def engine_of_node(node):
    """The engine in one of whose calls this thread made the node; None: outside."""
    number, thread = node._sequence_nr(), threading.get_ident()
    for each in _insides:
        engine = each.engine()
        if engine is not None and each.has_made(number, thread):
            return engine
    return None
