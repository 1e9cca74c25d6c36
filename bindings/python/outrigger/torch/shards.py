# SPDX-License-Identifier: Apache-2.0
"""What optimizers of PyTorch over the library's shards have in common."""
from collections.abc import Callable
from typing import Any

import torch

from .. import Shard, lowlevel

MOMENTS = {"exp_avg": lowlevel.VALUE_EXP_AVG, "exp_avg_sq": lowlevel.VALUE_EXP_AVG_SQ}


def moment_view(shard: Shard, name: str) -> torch.Tensor:
    """A moment as it is stored, 1-D, in the library's memory; not of 8-bit blocks."""
    return torch.from_dlpack(lowlevel.shard_state(shard.handle, MOMENTS[name]))


def loss_of(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()
