# SPDX-License-Identifier: Apache-2.0
"""Context: what would otherwise be global."""
from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from . import lowlevel
from .handle import Handle, options_of

if TYPE_CHECKING:
    from typing import Unpack

# Python's levels from the most verbose on; logging itself need not be imported.
_LEVELS = ((10, lowlevel.LOG_DEBUG), (20, lowlevel.LOG_INFO), (30, lowlevel.LOG_WARNING))


def _level_of_logger() -> int:
    """The library's level for what the logger "outrigger" lets through now."""
    logging = sys.modules.get("logging")
    if logging is None:  # nobody has set a level: the root's
        return lowlevel.LOG_WARNING
    effective = logging.getLogger("outrigger").getEffectiveLevel()
    return next((level for number, level in _LEVELS if effective <= number), lowlevel.LOG_ERROR)


class Context(Handle[lowlevel.Context]):
    """What would otherwise be global: the sink of log lines, the number of worker threads.

    Options: workers (threads per engine; 0: this rank's share of the cores), log_level (lowlevel.LOG_…; default: what the
    logger "outrigger" lets through at this moment). Log lines go to logging.getLogger("outrigger"). Ctrl-C ends calls of the
    main thread that wait for other ranks. Raises OutriggerError (E_ARGUMENT) for a value outside its range, TypeError for
    another option."""

    def __init__(self, **options: Unpack[lowlevel._ContextOptions]) -> None:
        options.setdefault("log_level", _level_of_logger())
        super().__init__(lowlevel.context_create(options_of(lowlevel.ContextOptions, options)))

    def load_plugin(self, name: str) -> None:
        """Loads a device's plugin by its name ("simulated") or by a path with a slash. Raises OutriggerError: E_NOT_FOUND
        lists every path tried, E_ABI: a plugin of another release."""
        lowlevel.context_load_plugin(self.handle, name)
