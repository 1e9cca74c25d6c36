# SPDX-License-Identifier: Apache-2.0
"""torch.compiler.disable, which has no types: torch.compile leaves the function as it is."""
from collections.abc import Callable
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])


def untraced(function: F) -> F:
    disabled: F = torch.compiler.disable(function)
    return disabled
