# SPDX-License-Identifier: Apache-2.0
"""A step that the library makes beside the next forward. What depends on it waits for it when it is asked for."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from .. import lowlevel

if TYPE_CHECKING:
    from typing import Self

    from .. import Engine as LibraryEngine

T = TypeVar("T")


class Settled(Generic[T]):
    """An attribute of an engine. Who reads it waits for a step that is under way."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, engine: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, engine: Unfinished, owner: type | None = None) -> T: ...

    def __get__(self, engine: Unfinished | None, owner: type | None = None) -> Self | T:
        if engine is None:
            return self
        engine.wait_step()
        value: T = engine.__dict__[self._name]
        return value

    def __set__(self, engine: Unfinished, value: T) -> None:
        engine.__dict__[self._name] = value


class Unfinished:
    """Of an engine."""

    handle: Settled[lowlevel.Engine] = Settled()
    _library: Settled[LibraryEngine] = Settled()
    report: Settled[lowlevel.StepReport | None] = Settled()
    skipped_steps: Settled[int] = Settled()
    lr_scheduler: Settled[Any] = Settled()
    _grad_norm: Settled[float | None] = Settled()
    _step_applied: Settled[bool] = Settled()
    _unfinished: tuple[dict[str, Any] | None] | None = None  # lr_kwargs of the step that is under way

    if TYPE_CHECKING:  # of the engine
        def _heard(self, report: lowlevel.StepReport, lr_kwargs: dict[str, Any] | None) -> None: ...

    def _begin_step(self, lr_kwargs: dict[str, Any] | None) -> None:
        self._library.step_begin()
        self._unfinished = lr_kwargs,

    def wait_step(self) -> None:
        """Waits for the step of `step(wait=False)`, if it is under way. Raises what that would have raised. Another exception, such as
        KeyboardInterrupt: the step goes on."""
        if self._unfinished is None:
            return
        unfinished, self._unfinished = self._unfinished, None
        try:
            report = self._library.report()
        except lowlevel.OutriggerError:
            raise
        except BaseException:  # of a signal's handler
            self._unfinished = unfinished
            raise
        self._heard(report, *unfinished)
