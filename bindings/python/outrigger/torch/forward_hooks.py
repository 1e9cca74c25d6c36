# SPDX-License-Identifier: Apache-2.0
"""Forward hooks on modules inside of an engine that scales its loss are outside: what they catch leaves the engine as its outputs
do, and what they return enters again as its inputs do. Pre-hooks stay inside, where weight_norm makes weights."""
import functools
import weakref

from . import backward
from .pytorch import untraced


class ForwardHooks:
    """outside: a context, entered while a hook runs. is_own: whether a hook is not the user's."""

    def __init__(self, engine, outside, is_own):
        self._engine, self._outside, self._is_own = weakref.ref(engine), outside, is_own

    def wrap(self, module):
        """Those that came since the last call."""
        for key, hook in module._forward_hooks.items():
            if not isinstance(hook, _Wrapped) and not self._is_own(hook):
                module._forward_hooks[key] = _Wrapped(hook, self._engine, self._outside)


def _itself(hook):
    return hook


class _Wrapped:
    def __init__(self, hook, engine, outside):
        self._hook, self._engine, self._outside = hook, engine, outside
        functools.update_wrapper(self, hook, updated=())

    def __reduce__(self):
        """A copy of the module is outside of engines."""
        return _itself, (self._hook,)

    @untraced
    def __call__(self, module, *given):
        engine = self._engine()
        if engine is None or not engine.calls.is_open():
            return self._hook(module, *given)
        *before, output = given
        with self._outside():
            seen = backward.caught(engine, output, engine.calls.entered)
            versions = backward.versions(seen)
            result = self._hook(module, *before, seen)
        if result is None and (backward.is_hooked(seen) or backward.is_written(versions)):
            result = seen  # what the hook wants to see of gradients, or changes in them, is on this way
        if result is None:
            return None
        result, entered = backward.inputs(engine, result)
        engine.calls.entered.extend(entered)
        return result
