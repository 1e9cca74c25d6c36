# SPDX-License-Identifier: Apache-2.0
"""Parameters of an engine that scales its loss, used outside of its calls: in a penalty, by another model, in a functional call.

Their gradients carry the engine's factor. What a use outside adds to them is multiplied by it, and what leaves by
torch.autograd.grad or a hook is the true gradient, in float32."""
import sys
from typing import Any

import torch

from . import backward, inside
from .owned import engine_of
from .pytorch import ALIASES, METADATA, in_reentrant_checkpoint, untraced
from .trees import among

_Tensor: Any = torch.Tensor
_UNTOUCHED = METADATA | ALIASES | {_Tensor.__deepcopy__, _Tensor.__repr__, _Tensor.__format__, _Tensor.retain_grad, _Tensor.backward,
                                  torch.autograd.backward}
_AUGMENTED = ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__", "__iand__", "__ior__", "__ixor__",
              "__setitem__")
_EDGES = {each.__code__ for each in vars(torch.autograd.graph).values() if getattr(each, "__name__", "").startswith("_get_grad_fn_or")}


class Scaling:
    """A parameter's class has this beside the rest (gradients.py)."""

    requires_grad: bool

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if torch.compiler.is_compiling():
            call = _plain if _traced_inside() else _call
        else:
            call = _plain if function in _UNTOUCHED else _call_now
        return call(function, args, kwargs or {})

    def register_hook(self, hook):
        """hook sees the true gradient, in float32."""
        return super().register_hook(true(self, hook))  # type: ignore[misc]


def true(parameter, hook):
    """A hook on the parameter's gradient as the outside means it."""
    engine = engine_of(parameter)

    def scaled(grad):
        result = hook(backward.leaves(engine, grad))
        return None if result is None else backward.enters(engine, result, grad.dtype)

    return scaled


def _plain(function, args, kwargs):
    return _Tensor.__torch_function__(function, (), args, kwargs)


# While it traces the module torch.compile calls this and keeps the answer.
_traced_inside = torch.compiler.assume_constant_result(inside.any_is_open)


def _call_now(function, args, kwargs):
    if function is _Tensor.view_as and sys._getframe(2).f_code in _EDGES:
        raise RuntimeError("a gradient edge of a parameter of an engine with a loss scale (register_multi_grad_hook, get_gradient_edge) would see "
                           "scaled gradients; use parameter.register_hook or register_post_accumulate_grad_hook, which see the true ones")
    if function is torch.autograd.grad:
        return _grad(*args, **kwargs)
    if torch.is_grad_enabled():
        kept = args[:1] if _writes(function) else ()  # PyTorch says what may not be written into
        args, kwargs = (*kept, *_outside(args[len(kept):])), _outside(kwargs)
    elif any(_is_outside(each) for each in among(Scaling, (args, kwargs))) and in_reentrant_checkpoint():
        raise RuntimeError("a parameter of an engine with a loss scale is used in a reentrant checkpoint outside of the engine's call, where "
                           "its gradient cannot be scaled; checkpoint with use_reentrant=False")
    return _plain(function, args, kwargs)


_call = untraced(_call_now)


def _writes(function):
    name = getattr(function, "__name__", "")
    return name in _AUGMENTED or (name.endswith("_") and not name.endswith("__"))


def _outside(value: Any) -> Any:
    if isinstance(value, Scaling):
        return backward.parameter(engine_of(value), value) if value.requires_grad and _is_outside(value) else value
    if type(value) in (tuple, list):
        return type(value)(_outside(each) for each in value)
    if type(value) is dict:
        return {key: _outside(each) for key, each in value.items()}
    return value


def _is_outside(parameter):
    engine = engine_of(parameter)
    return engine is not None and not inside.is_inside(engine)


def _grad(outputs, inputs, *more, **options):
    """torch.autograd.grad."""
    results = _plain(torch.autograd.grad, (outputs, inputs, *more), options)
    inputs = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    return tuple(backward.leaves(engine_of(each), grad) if isinstance(each, Scaling) and _is_outside(each) and grad is not None else grad
                 for each, grad in zip(inputs, results))
