# SPDX-License-Identifier: Apache-2.0
"""Where autograd meets a pass.

Gradients inside an engine carry its factor: loss scale / accumulation steps. Gradients outside carry 1, or the factor
that some engine's backward() or scale() multiplied at the root. An engine's outputs and inputs are the borders: one
autograd node over all outputs of a call multiplies what comes in by inside / outside, one over its inputs multiplies
what goes out by outside / inside. So `loss.backward()`, `output.backward(grad)`, `engine.backward(loss)` and engines in
a chain give the same gradients, each factor applied once.

No hook marks the end of a backward: a pass is closed by engine.backward() or by the next engine.step().

torch.compile does not trace what is here, nor the engine's backward and step: they call the library.
"""
import threading

import torch

from .trees import map_tensors
from .untraced import untraced

_thread = threading.local()


def _root():
    """The Root that this thread is in, or None."""
    return getattr(_thread, "root", None)


def outside():
    """The factor that gradients outside of all engines carry in the backward that runs on this thread."""
    root = _root()
    return 1.0 if root is None else root.factor


class Root:
    """While it is entered, the gradient of what scaled() returned may pass, times factor and times extra; everything
    outside of engines then carries factor."""

    def __init__(self, factor, extra=1):
        self.factor, self.at_root = factor, factor * extra

    def __enter__(self):
        if _root() is not None:
            raise RuntimeError("a scaled backward runs inside another one; scale the outermost loss only")
        _thread.root = self

    def __exit__(self, kind, value, traceback):
        _thread.root = None


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss):
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx, grad):
        root = _root()
        if root is None:
            raise RuntimeError("call backward() on what engine.scale() returned as it is: neither a tensor computed from it, nor "
                               "torch.autograd.backward or torch.autograd.grad, can tell the engine that the root is scaled")
        return _times(grad, root.at_root)


def scaled(loss, run=None):
    """loss, whose backward(...) calls run(tensor, arguments, options)."""
    result = _Scaled.apply(loss)
    if run is not None:
        result.backward = lambda *arguments, **options: run(result, arguments, options)
    return result


class _Outputs(torch.autograd.Function):
    """All outputs of one call. float16 leaves as float32: what a loss outside computes does not underflow."""

    @staticmethod
    def forward(ctx, engine, *outputs):
        ctx.engine = engine
        ctx.dtypes = [each.dtype for each in outputs]
        ctx.set_materialize_grads(False)
        return tuple(each.float() if each.dtype == torch.float16 else each.view_as(each) for each in outputs)

    @staticmethod
    def backward(ctx, *grads):
        factor = ctx.engine.open_pass() / outside()
        return (None, *(_cross(ctx.engine, grad, factor, dtype) for grad, dtype in zip(grads, ctx.dtypes)))


class _Inputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, engine, *inputs):
        ctx.engine = engine
        ctx.dtypes = [each.dtype for each in inputs]
        ctx.set_materialize_grads(False)
        return tuple(each.to(engine.compute_dtype) if engine.casts(each) else each.view_as(each) for each in inputs)

    @staticmethod
    def backward(ctx, *grads):
        factor = outside() / ctx.engine.open_pass()
        return (None, *(None if grad is None else _times(grad.to(dtype), factor) for grad, dtype in zip(grads, ctx.dtypes)))


def _times(grad, factor):
    return grad if factor == 1 else grad * factor


def _cross(engine, grad, factor, dtype):
    if grad is None:
        return None
    result = _times(grad, factor).to(dtype)
    if dtype == torch.float16 and not torch.isfinite(result).all() and torch.isfinite(grad).all():
        engine.seed_overflowed()
    return result


@untraced
def border(node, engine, value):
    """value with each tensor that takes part in autograd passed through one node."""
    found = []

    def note(tensor):
        if tensor.requires_grad:
            found.append(tensor)
        return tensor

    map_tensors(note, value)
    if not found:
        return value
    replaced = iter(node.apply(engine, *found))
    return map_tensors(lambda tensor: next(replaced) if tensor.requires_grad else tensor, value)


def outputs(engine, value):
    return border(_Outputs, engine, value)


def inputs(engine, value):
    return border(_Inputs, engine, value)
