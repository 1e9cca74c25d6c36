# SPDX-License-Identifier: Apache-2.0
"""The calls of an engine that scales its loss, and what passes its border in them beside inputs and outputs."""
import torch

from . import inside
from .attributes import Attributes
from .forward_hooks import ForwardHooks
from .held import Hook
from .pytorch import untraced


class Calls(inside.Inside):
    """Entered around each call of the engine's module. entered: the nodes by which gradients leave the call that is open."""

    def __init__(self, engine, module):
        super().__init__(engine)
        self.entered = []
        self._module = module
        self._attributes = Attributes(engine, module)
        self._hooks = ForwardHooks(engine, self.outside, lambda hook: isinstance(hook, Hook))

    @untraced
    def __enter__(self):
        modules = list(self._module.modules())
        for module in modules:
            self._hooks.wrap(module)
            self._require_own_weights(module)
        self.entered.extend(self._attributes.take_in(modules, self._made))
        self.begin()

    @untraced
    def __exit__(self, kind, value, traceback):
        self.end()
        self._attributes.give_back()
        if kind is None:
            self._attributes.hand_out(self._made)

    def backward_came(self):
        """What a checkpoint computes again finds in attributes what the call found there."""
        if self._attributes.turn_in():
            torch.autograd.Variable._execution_engine.queue_callback(self._attributes.turn_out)

    def _made(self, node):
        """Whether one of this engine's calls made it."""
        return node is not None and inside.engine_of_node(node) is self.engine()

    def _require_own_weights(self, module):
        """torch.func.functional_call puts other tensors there, whose gradients would come out with the engine's factor."""
        for own, each in module._parameters.items():
            if each is not None and each.grad_fn is not None:
                name = next(name for name, one in self._module.named_modules() if one is module)
                raise RuntimeError(f"{'.'.join(filter(None, (name, own)))!r} of an engine with a loss scale is a computed tensor in this call; "
                                   "call torch.func.functional_call with engine.module, whose gradients are then all true ones")
