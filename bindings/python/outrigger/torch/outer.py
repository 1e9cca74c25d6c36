# SPDX-License-Identifier: Apache-2.0
"""A backward whose root an engine with a loss scale knows: engine.backward(loss), engine.scale(loss).backward().

What lies between the root and the engines' borders is looked through once. Two things in it want the factor that a border
would have given: gradients in float16, which carry the loss scale so that they do not vanish (float32 ones, leaves and hooks
on them are true), and tensors of a module that came out past its outputs, through a hook or a closure."""
import contextlib

import torch

from . import backward, inside
from .factors import is_derivative, times

_MOST = 2.0**15  # which float16 can hold


@contextlib.contextmanager
def prepared(engine, root):
    """While it is entered, a backward from root may run. Gives the factor of root's gradient."""
    graph = _Outer(min(engine.optimizer.cur_scale, _MOST))
    try:
        factor = 1
        if root.grad_fn is not None:
            factor = graph.factor_of(root.grad_fn, root.output_nr)
            graph.walk(root.grad_fn)
        yield factor
    finally:
        graph.restore()


class _Outer:
    def __init__(self, scale):
        self._scale, self._hooks, self._inner = scale, [], []

    def walk(self, root):
        seen, ahead = set(), [(root, False)]
        while ahead:
            node, leaves = ahead.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if leaves or not _ends_outside(node):
                # True gradients leave an engine.
                self._correct(node, 1 if leaves else self._factor_in(node))
                ahead.extend((child, False) for child, _ in node.next_functions)
            elif backward.is_output(node) or backward.is_inner(node):
                ahead.extend((entered, True) for entered in node.entered)

    def factor_of(self, node, index):
        """What the gradient carries that goes into the node's input of this index."""
        half = _dtypes(node)[index] == torch.float16
        if backward.is_output(node) or is_derivative(node) or not node.next_functions:  # a border, a leaf
            return 1
        if backward.is_inner(node):
            node.carries = self._scale if half else 1
            self._inner.append(node)
            return node.carries
        engine = inside.engine_of_node(node)
        if engine is not None:
            return engine.open_pass()
        return self._scale if half else 1

    def _factor_in(self, node):
        half = {dtype == torch.float16 for dtype in _dtypes(node)}
        if half == {True, False} and any(child is not None for child, _ in node.next_functions):
            raise RuntimeError(f"{node.name()} outside of the engine has outputs of float16 and of another dtype, whose gradients carry different "
                               "factors; compute it in float32, in which the engine's outputs are, or inside the module")
        return self._scale if True in half else 1

    def _correct(self, node, carried):
        factors = [1 if child is None else self.factor_of(child, index) / carried for child, index in node.next_functions]
        if any(factor != 1 for factor in factors):
            self._hooks.append(node.register_hook(lambda grads, _: tuple(
                None if grad is None else times(grad, factor) for grad, factor in zip(grads, factors, strict=True))))

    def restore(self):
        for hook in self._hooks:
            hook.remove()
        for node in self._inner:
            node.carries = 1


def _ends_outside(node):
    is_border = (backward.is_output(node) and node.engine.scales) or backward.is_inner(node) or is_derivative(node)
    return is_border or inside.engine_of_node(node) is not None


def _dtypes(node):
    return [each.dtype for each in node._input_metadata]
