# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's names on a parameter that is in slices on the ranks."""
import enum
import itertools
from typing import Any

_numbers = itertools.count()


class ZeroParamStatus(enum.Enum):
    AVAILABLE, NOT_AVAILABLE, INFLIGHT = 1, 2, 3


def next_id():
    """A ds_id: the same on all ranks, which make their parameters alike."""
    return next(_numbers)


class Partitioned:
    """Beside a parameter's own class; `_where` is what gathers it and knows its state."""

    _where: Any
    shape: Any
    numel: Any

    @property
    def ds_id(self):
        return self._where.id_of(self)

    @property
    def ds_status(self):
        """Whether its values can be read now."""
        return ZeroParamStatus.AVAILABLE if self._where.has(self) else ZeroParamStatus.NOT_AVAILABLE

    @property
    def ds_shape(self):
        return self.shape

    @property
    def ds_numel(self):
        return self.numel()
