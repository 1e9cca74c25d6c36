# SPDX-License-Identifier: Apache-2.0
"""Where autograd meets a pass.

Gradients inside an engine that scales its loss carry its factor: loss scale / accumulation steps. Gradients outside are the
true ones. One autograd node over the outputs of a call multiplies what comes in by the factor, one over its inputs divides
what goes out by it, and a parameter that is used outside of a call is an output, too (direct.py). So each form of backward
gives the same gradients, each factor applied once. An engine that scales nothing (float32, bfloat16) has no border: its
accumulation steps divide at the step. It needs one in the module of an engine that scales. factors.py has the factors' own
derivatives.

No hook marks the end of a backward: a pass is closed by engine.backward() or by the next engine.step().

torch.compile does not trace what is here, nor the engine's backward and step: they call the library.
"""
import warnings
import weakref
from typing import Any

import torch

from . import inside
from .factors import times
from .pytorch import in_reentrant_checkpoint, untraced
from .trees import map_tensors, tensors

_VIEWS = {f"{each}Backward0" for each in ("View", "Select", "Slice", "T", "Transpose", "Split", "AsStrided", "Unsqueeze", "Squeeze", "Permute")}


def _factor_in(around):
    """What gradients carry in the call of another engine that a border is in; None: in no call."""
    return 1 if around is None else around.open_pass()


class _Outputs(torch.autograd.Function):
    """All outputs of one call. float16 leaves as float32: what a loss outside computes does not underflow. What leaves is no
    view, so that it may be written into."""

    @staticmethod
    def forward(ctx, engine, *outputs):
        ctx.engine, ctx.around, ctx.entered = engine, inside.around(engine), ()
        ctx.dtypes = [each.dtype for each in outputs]
        ctx.set_materialize_grads(False)
        return tuple(each.float() if each.dtype == torch.float16 else each.detach() for each in outputs)

    @staticmethod
    def backward(ctx, *grads):
        factor = ctx.engine.enter_backward() / _factor_in(ctx.around)
        return (None, *(_enter(ctx.engine, grad, factor, dtype) for grad, dtype in zip(grads, ctx.dtypes)))


class _Inputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, engine, *inputs):
        ctx.engine, ctx.around = engine, inside.around(engine)
        ctx.dtypes = [each.dtype for each in inputs]
        ctx.set_materialize_grads(False)
        return tuple(each.to(engine.compute_dtype) if engine.casts(each) else each.detach() for each in inputs)

    @staticmethod
    def backward(ctx, *grads):
        factor = _factor_in(ctx.around) / ctx.engine.open_pass()
        return (None, *(None if grad is None else times(grad, factor, dtype) for grad, dtype in zip(grads, ctx.dtypes)))


class _Inner(torch.autograd.Function):
    """A tensor of the inside that is used outside, in its own dtype: a parameter, or what a forward hook caught. carries: a
    factor that its gradient has already."""

    @staticmethod
    def forward(ctx, engine, inner):
        ctx.engine, ctx.around, ctx.entered, ctx.carries = engine, inside.around(engine), (), 1
        return inner.detach()

    @staticmethod
    def backward(ctx, grad):
        factor = ctx.engine.enter_backward() / (ctx.carries * _factor_in(ctx.around))
        return None, _enter(ctx.engine, grad, factor, grad.dtype)


def _enter(engine, grad, factor, dtype):
    if grad is None:
        return None
    result = times(grad, factor, dtype)
    if dtype == torch.float16 and not _is_finite(result) and _is_finite(grad):
        engine.seed_overflowed()
    return result


def _is_finite(tensor):
    return bool(torch.isfinite(tensor if tensor.layout == torch.strided else tensor.to_dense()).all())


@untraced
def _border(node, engine, value):
    """value with each tensor that takes part in autograd passed through one node, and that node; None: there is none.

    A tensor that is there twice is so behind the border, and tensors that share memory do so as views of one: what is written
    into one of them changes the others, and their gradients."""
    found = {id(each): each for each in tensors(value) if each.requires_grad}  # by identity
    if not found:
        return value, None
    bases = _bases(found.values())
    roots = {id(root): root for root in (bases.get(key, each) for key, each in found.items())}
    passed = dict(zip(roots, node.apply(engine, *roots.values())))
    grad_fn = next(iter(passed.values())).grad_fn
    replaced = {key: passed[id(bases[key])].as_strided(each.size(), each.stride(), each.storage_offset())
                if key in bases and bases[key] is not each else passed[id(bases.get(key, each))] for key, each in found.items()}
    if node is _Outputs:
        for key, each in found.items():
            if each.retains_grad:
                _retain(engine, each, replaced[key])
    return map_tensors(lambda tensor: replaced.get(id(tensor), tensor), value), grad_fn


def _retain(engine, inner, outer):
    """The module called inner.retain_grad(): outer.grad is that gradient, the true one."""
    weak, around = weakref.ref(outer), inside.around(engine)

    @torch.no_grad()
    def came(grad):
        seen = weak()
        if seen is not None:
            true = times(grad, _factor_in(around) / engine.open_pass(), seen.dtype)
            with warnings.catch_warnings():  # of a read that finds none
                warnings.simplefilter("ignore")
                before = seen.grad
            seen.grad = true.clone() if before is None else before + true

    inner.register_hook(came)


def _bases(found):
    """By identity of a tensor: what it is a view of, where another of them shares that memory."""
    groups: dict[int, list[Any]] = {}
    for each in found:
        base = each._base if _is_plain_view(each) else each
        groups.setdefault(id(base), []).append((each, base))
    return {id(each): base for group in groups.values() if len(group) > 1 for each, base in group if _is_dense(base)}


def _is_plain_view(tensor):
    """Of a base that takes part in autograd, by views of PyTorch alone: no function of a script and no hook is between."""
    base = tensor._base
    if base is None or not base.requires_grad or base.dtype != tensor.dtype or tensor._backward_hooks or tensor.retains_grad:
        return False
    node = tensor.grad_fn
    while node is not None and node is not base.grad_fn:
        if node.name() not in _VIEWS:
            return False
        node = node.next_functions[0][0]
    return node is not None


def _is_dense(tensor):
    """A copy in another dtype has its strides, and begins where it does."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride()))
    return tensor.storage_offset() == 0 and tensor.numel() == last + 1


def outputs(engine, value, entered=()):
    """What a call returns, as the outside has it. entered: a list of the nodes of inputs() in the call."""
    if not engine.scales and inside.around(engine) is None:
        _note_backwards(engine, value)
        return value
    if engine.scales and in_reentrant_checkpoint():  # in the dtypes that they have when it is computed again
        return map_tensors(lambda tensor: tensor.float() if tensor.dtype == torch.float16 else tensor, value)
    value, node = _border(_Outputs, engine, value)
    if node is not None:
        node.entered = entered
    return value


@untraced
def _note_backwards(engine, value):
    """Outputs that need no border: the engine hears of a backward that comes to them."""
    weak = weakref.ref(engine)

    def came(_):
        owner = weak()
        if owner is not None:
            owner.enter_backward()

    for node in {each.grad_fn for each in tensors(value) if each.requires_grad} - {None}:
        heard = node.metadata.setdefault("outrigger", [])  # by which engines: a tensor may be returned again and again
        if not any(each() is engine for each in heard):
            heard.append(weak)
            node.register_prehook(came)


def inputs(engine, value):
    """What a call takes, as the inside has it, and a list of the border's node, or of none."""
    if not engine.scales and inside.around(engine) is None:
        return value, []
    value, node = _border(_Inputs, engine, value)
    return value, [] if node is None else [node]


def versions(value):
    """Of the tensors in it that take part in autograd, to see whether they are written into."""
    return [(each, each._version) for each in tensors(value) if each.requires_grad]


def is_written(given):
    """Whether one of versions() was written into."""
    return any(tensor._version != version for tensor, version in given)


def require_unwritten(given):
    """given: of versions(), before the module was called."""
    for tensor, version in given:
        if tensor._version != version:
            raise RuntimeError(f"the module wrote into an input of shape {tuple(tensor.shape)} that takes part in autograd outside of the engine, "
                               "whose graph does not see it; give the module a clone(), or write out of place")


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


def is_hooked(value):
    """Whether gradients of a tensor in it are looked at."""
    return any(each._backward_hooks or each.retains_grad for each in tensors(value))


def leaves(engine, grad):
    """A gradient of one of the engine's parameters, as the outside sees it: the true one, in float32."""
    return times(grad, 1 / engine.open_pass(), torch.float32)


def enters(engine, grad, dtype):
    """The way back of leaves()."""
    return times(grad, engine.open_pass(), dtype)


def is_output(node):
    return isinstance(node, _Outputs._backward_cls)


def is_inner(node):
    return isinstance(node, _Inner._backward_cls)
