# SPDX-License-Identifier: Apache-2.0
"""The group of processes that the launcher started, one for all adapters of a process."""
from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from . import Comm, Context

if TYPE_CHECKING:
    from collections.abc import Callable

_lock = threading.Lock()
_made: list[Comm] = []


def process_comm(make: Callable[[Context], Comm] = Comm.from_env) -> Comm:
    """This process's group, made at first use from the launcher's environment. make: what makes it then. Collective at first
    use; OutriggerError as Comm.from_env."""
    with _lock:
        if not _made:
            _made.append(make(Context()))
        return _made[0]
