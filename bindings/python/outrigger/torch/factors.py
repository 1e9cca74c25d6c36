# SPDX-License-Identifier: Apache-2.0
"""A gradient times a factor, as it crosses the border of an engine (backward.py).

Second order: of two quantities that belong together in a derivative, one carries the factor and the other does not. A value
carries none and its gradient carries it; so the gradient of that gradient carries none, on either side of a border, and
crosses it unchanged. The next derivative is multiplied again, and so on in turn (_Scale, _Same)."""
import torch


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


def is_derivative(node):
    """Of a border: behind it is the inside of the gradients of gradients."""
    return isinstance(node, (_Scale._backward_cls, _Same._backward_cls))
