# SPDX-License-Identifier: Apache-2.0
"""NumPy views of the library's memory. NumPy is imported when the first one is made, not with this package."""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    import numpy.typing as npt

    from .lowlevel import TensorView, _Memory, _Tensor

    Array: TypeAlias = npt.NDArray[Any]
    Float32Array: TypeAlias = npt.NDArray[np.float32]
    Memory: TypeAlias = _Memory
    Tensor: TypeAlias = _Tensor


@functools.cache
def bfloat16() -> np.dtype[Any]:
    """ml_dtypes.bfloat16 where that package is installed, else uint16."""
    import numpy as np
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        return np.dtype("uint16")
    dtype: np.dtype[Any] = np.dtype(bfloat16)
    return dtype


def view_of(tensor: TensorView) -> Array:
    """Shape and dtype of the tensor; no copy."""
    import numpy as np
    array = np.asarray(tensor)
    return array.view(bfloat16()) if tensor.dtype == "bfloat16" else array


def new_float32(shape: int | tuple[int, ...]) -> Float32Array:
    import numpy as np
    return np.empty(shape, np.float32)
