# SPDX-License-Identifier: Apache-2.0
"""The group of processes that the launcher started, one for all adapters of a process."""
import threading

from . import Comm, Context

_lock = threading.Lock()
_made: list[Comm] = []


def process_comm() -> Comm:
    """This process's group, made at first use from the launcher's environment. Collective at first use; OutriggerError as
    Comm.from_env."""
    with _lock:
        if not _made:
            _made.append(Comm.from_env(Context()))
        return _made[0]
