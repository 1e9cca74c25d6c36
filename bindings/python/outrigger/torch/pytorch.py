# SPDX-License-Identifier: Apache-2.0
"""What PyTorch does not say itself: which of its functions look at a tensor and not at its values, what autograd does in this thread,
and types."""
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils.checkpoint import CheckpointFunction

_Tensor: Any = torch.Tensor  # with its slots and properties
# Which of them there are depends on PyTorch's version.
_GET = ("shape", "dtype", "device", "layout", "requires_grad", "grad", "grad_fn", "is_leaf", "ndim", "itemsize", "nbytes", "_version",
        "_base", "is_sparse", "is_cuda", "is_meta", "is_quantized", "is_nested", "retains_grad", "output_nr", "_backward_hooks",
        "_post_accumulate_grad_hooks")
_CALL = ("size", "stride", "dim", "ndimension", "numel", "nelement", "element_size", "is_contiguous", "is_floating_point", "is_complex",
         "requires_grad_", "register_hook", "register_post_accumulate_grad_hook", "data_ptr", "storage_offset", "untyped_storage",
         "__len__", "new_empty", "new_zeros", "new_ones", "new_full", "is_pinned", "is_shared")
METADATA = {getattr(_Tensor, name).__get__ for name in _GET if hasattr(_Tensor, name)}
METADATA |= {getattr(_Tensor, name).__set__ for name in ("requires_grad", "grad", "data")}
METADATA |= {getattr(_Tensor, name) for name in _CALL if hasattr(_Tensor, name)}
METADATA |= {torch.numel, torch.is_floating_point, torch.is_complex, torch.empty_like, torch.zeros_like, torch.ones_like, torch.full_like,
             torch.rand_like, torch.randn_like, torch.is_same_size}
# The same memory as a tensor that takes no part in autograd.
ALIASES = {_Tensor.detach, torch.detach, _Tensor.data.__get__}
_FRAMES = 30  # between a use and the checkpoint that it is in


def in_backward():
    """Whether this thread runs a backward."""
    return torch._C._current_graph_task_id() != -1


def in_reentrant_checkpoint():
    """A checkpoint of this kind runs without gradients first, and computes again in the backward."""
    if torch.is_grad_enabled():
        return False
    frame: Any = sys._getframe()
    for _ in range(_FRAMES):
        frame = frame.f_back
        if frame is None:
            return False
        if frame.f_code is CheckpointFunction.forward.__code__ and any(frame.f_locals["ctx"].needs_input_grad):
            return True
    return False


F = TypeVar("F", bound=Callable[..., Any])


def untraced(function: F) -> F:
    disabled: F = torch.compiler.disable(function)
    return disabled
