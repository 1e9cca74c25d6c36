# SPDX-License-Identifier: Apache-2.0
"""Context: what would otherwise be global."""
from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from . import lowlevel
from .handle import Handle, options_of

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable
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

    def set_device_allocator(self, device_type: int, device_id: int, allocate: Callable[[int, int], int] | None = None,
                             release: Callable[[int, int, int], None] | None = None) -> None:
        """Has this context's engines take a device's memory from the host's own pool, as PyTorch's.

        allocate(bytes, stream) returns the address of uninitialised memory, aligned to 256 bytes, for work that comes after in
        that stream (numbered as DLPack does); what it raises, or 0, means that there is none. release(address, bytes, stream)
        takes it back: all work that uses it comes before in that stream. Both are called from any thread. Without them: the
        plugin's memory again. Raises OutriggerError: E_STATE while engines hold memory of that device."""
        if allocate is None or release is None:
            lowlevel.device_set_allocator(self.handle, device_type, device_id, 0, 0)
            return
        given = _CFunctions(allocate, release)
        lowlevel.device_set_allocator(self.handle, device_type, device_id, given.addresses[0], given.addresses[1])
        _ALLOCATORS.append(given)  # an engine may outlive this object


class _CFunctions:
    """The two as C functions, for as long as this object lives."""

    def __init__(self, allocate: Callable[[int, int], int], release: Callable[[int, int, int], None]) -> None:
        import ctypes

        pointer, number = ctypes.c_void_p, ctypes.c_uint64

        def take(_user: object, size: int, stream: int, out: ctypes._Pointer[ctypes.c_void_p]) -> int:
            try:
                out[0] = address = allocate(size, stream)  # type: ignore[assignment]
            except Exception:
                sys.excepthook(*sys.exc_info())  # no caller of Python's own is above
                return 1
            return 0 if address else 1

        def give(_user: object, address: int, size: int, stream: int) -> None:
            release(address, size, stream)

        self._functions = (ctypes.CFUNCTYPE(ctypes.c_int32, pointer, ctypes.c_size_t, number, ctypes.POINTER(pointer))(take),
                           ctypes.CFUNCTYPE(None, pointer, pointer, ctypes.c_size_t, number)(give))
        self.addresses = tuple(ctypes.cast(each, pointer).value or 0 for each in self._functions)


_ALLOCATORS: list[_CFunctions] = []
