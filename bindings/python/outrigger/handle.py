# SPDX-License-Identifier: Apache-2.0
"""What all objects of this package have in common."""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self, TypeAlias

    Config: TypeAlias = dict[str, Any] | str | None  # None: all defaults

H = TypeVar("H")


@overload
def text_of(config: dict[str, Any] | str) -> str: ...
@overload
def text_of(config: Config) -> str | None: ...


def text_of(config: Config) -> str | None:
    """A configuration as the library takes it: JSON."""
    return config if config is None or isinstance(config, str) else json.dumps(config)


def options_of(kind: type[H], values: Mapping[str, Any]) -> H | None:
    """An option object of outrigger.lowlevel with some fields set; None for all defaults."""
    if not values:
        return None
    options = kind()
    for name, value in values.items():
        if not hasattr(options, name):
            raise TypeError(f"{kind.__name__} has no field {name!r}")
        setattr(options, name, value)
    return options


class Handle(Generic[H]):
    """Holds a handle of outrigger.lowlevel. close(), or the end of a with block, gives it back; views that were handed
    out keep it until they go. Afterwards every call raises ValueError."""

    def __init__(self, handle: H) -> None:
        self._handle: H | None = handle

    @property
    def handle(self) -> H:
        """For functions of outrigger.lowlevel."""
        if self._handle is None:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._handle

    def close(self) -> None:
        """Gives the handle back. Local; again: nothing."""
        self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()
