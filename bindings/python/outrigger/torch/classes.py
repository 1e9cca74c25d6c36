# SPDX-License-Identifier: Apache-2.0
"""Classes that parameters get beside their own."""
from typing import Any

_made: dict[tuple[type, ...], Any] = {}
_origins: dict[type, type] = {}


def mixed(kind: type, *mixins: type) -> Any:
    """A subclass of the parameter's class with the mixins before it; the same one each time."""
    key = kind, *mixins
    if key not in _made:
        _made[key] = type(kind.__name__, (*mixins, kind), {"__module__": kind.__module__})
        _origins[_made[key]] = origin(kind)
    return _made[key]


def origin(kind: type) -> type:
    """The class that the parameter had."""
    return _origins.get(kind, kind)
