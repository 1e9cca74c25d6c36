# SPDX-License-Identifier: Apache-2.0
"""Where autograd meets a pass.

Gradients inside an engine that scales its loss carry its factor: loss scale / accumulation steps. Gradients outside are the
true ones. One autograd node over the outputs of a call multiplies what comes in by the factor, one over its inputs divides
what goes out by it, and a parameter that is used outside of a call is an output, too (direct.py). So each form of backward
gives the same gradients, each factor applied once. An engine that scales nothing (float32, bfloat16) has the factor 1: its
accumulation steps divide at the step.

Second order: of two quantities that belong together in a derivative, one carries the factor and the other does not. A value
carries none and its gradient carries it; so the gradient of that gradient carries none, on either side of a border, and
crosses it unchanged. The next derivative is multiplied again, and so on in turn (_Scale, _Same).

No hook marks the end of a backward: a pass is closed by engine.backward() or by the next engine.step().

torch.compile does not trace what is here, nor the engine's backward and step: they call the library.
"""
import torch

from .trees import map_tensors
from .untraced import untraced


def in_backward():
    """Whether this thread runs a backward."""
    return torch._C._current_graph_task_id() != -1


class _Scale(torch.autograd.Function):
    """A gradient times factor, in another dtype."""

    @staticmethod
    def forward(ctx, grad, factor, dtype):
        ctx.factor, ctx.dtype, ctx.into = factor, grad.dtype, dtype
        return _product(grad, factor, dtype)

    @staticmethod
    def backward(ctx, cotangent):
        return _Same.apply(cotangent, ctx.factor, ctx.dtype, ctx.into), None, None


class _Same(torch.autograd.Function):
    """The derivative of _Scale: the same value. Its own derivative is _Scale again."""

    @staticmethod
    def forward(ctx, cotangent, factor, dtype, into):
        ctx.factor, ctx.into = factor, into
        return cotangent.to(dtype)

    @staticmethod
    def backward(ctx, grad):
        return _Scale.apply(grad, ctx.factor, ctx.into), None, None, None


def _product(grad, factor, dtype):
    """In float32 where that is wider: a float16 product would round twice, or overflow."""
    if factor == 1:
        return grad.to(dtype)
    wide = grad.float() if grad.dtype in (torch.float16, torch.bfloat16) else grad
    return (wide * factor).to(dtype)


def times(grad, factor, dtype=None):
    """A gradient that crosses a border; differentiable."""
    dtype = dtype or grad.dtype
    if factor == 1 and dtype == grad.dtype:
        return grad
    if torch.is_grad_enabled() and grad.requires_grad:
        return _Scale.apply(grad, factor, dtype)
    return _product(grad, factor, dtype)


class _Outputs(torch.autograd.Function):
    """All outputs of one call. float16 leaves as float32: what a loss outside computes does not underflow. What leaves is no
    view, so that it may be written into."""

    @staticmethod
    def forward(ctx, engine, *outputs):
        ctx.engine, ctx.entered = engine, ()
        ctx.dtypes = [each.dtype for each in outputs]
        ctx.set_materialize_grads(False)
        return tuple(each.float() if each.dtype == torch.float16 else each.detach() for each in outputs)

    @staticmethod
    def backward(ctx, *grads):
        factor = ctx.engine.enter_backward()
        return (None, *(_enter(ctx.engine, grad, factor, dtype) for grad, dtype in zip(grads, ctx.dtypes)))


class _Inputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, engine, *inputs):
        ctx.engine = engine
        ctx.dtypes = [each.dtype for each in inputs]
        ctx.set_materialize_grads(False)
        return tuple(each.to(engine.compute_dtype) if engine.casts(each) else each.detach() for each in inputs)

    @staticmethod
    def backward(ctx, *grads):
        factor = 1 / ctx.engine.open_pass()
        return (None, *(None if grad is None else times(grad, factor, dtype) for grad, dtype in zip(grads, ctx.dtypes)))


class _Inner(torch.autograd.Function):
    """A tensor of the inside that is used outside, in its own dtype: a parameter, or what a forward hook caught. carries: a
    factor that its gradient has already."""

    @staticmethod
    def forward(ctx, engine, inner):
        ctx.engine, ctx.entered, ctx.carries = engine, (), 1
        return inner.detach()

    @staticmethod
    def backward(ctx, grad):
        factor = ctx.engine.enter_backward() / ctx.carries
        return None, _enter(ctx.engine, grad, factor, grad.dtype)


def _enter(engine, grad, factor, dtype):
    if grad is None:
        return None
    result = times(grad, factor, dtype)
    if dtype == torch.float16 and not torch.isfinite(result).all() and torch.isfinite(grad).all():
        engine.seed_overflowed()
    return result


@untraced
def _border(node, engine, value):
    """value with each tensor that takes part in autograd passed through one node, and that node; None: there is none."""
    found = []

    def note(tensor):
        if tensor.requires_grad:
            found.append(tensor)
        return tensor

    map_tensors(note, value)
    if not found:
        return value, None
    passed = node.apply(engine, *found)
    replaced = iter(passed)
    return map_tensors(lambda tensor: next(replaced) if tensor.requires_grad else tensor, value), passed[0].grad_fn


def outputs(engine, value, entered=()):
    """What a call returns, as the outside has it. entered: a list of the nodes of inputs() in the call."""
    value, node = _border(_Outputs, engine, value)
    if node is not None:
        node.entered = entered
    return value


def inputs(engine, value):
    """What a call takes, as the inside has it, and a list of the border's node, or of none."""
    if not engine.scales:
        return value, []
    value, node = _border(_Inputs, engine, value)
    return value, [] if node is None else [node]


def parameter(engine, value):
    """A parameter of the engine as the outside has it."""
    return _Inner.apply(engine, value)


@untraced
def caught(engine, value, entered):
    """What a forward hook sees of a module inside, as the outside has it. entered: as of the call's outputs()."""
    def one(tensor):
        if not tensor.requires_grad:
            return tensor
        outer = parameter(engine, tensor)
        outer.grad_fn.entered = entered
        return outer

    return map_tensors(one, value)


def leaves(engine, grad):
    """A gradient of one of the engine's parameters, as the outside sees it: the true one, in float32."""
    return times(grad, 1 / engine.open_pass(), torch.float32)


def enters(engine, grad, dtype):
    """The way back of leaves()."""
    return times(grad, engine.open_pass(), dtype)


def is_output(node):
    return isinstance(node, _Outputs._backward_cls)


def is_derivative(node):
    """Of a border: behind it is the inside of the gradients of gradients."""
    return isinstance(node, (_Scale._backward_cls, _Same._backward_cls))


def is_inner(node):
    return isinstance(node, _Inner._backward_cls)
