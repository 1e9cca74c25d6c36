# SPDX-License-Identifier: Apache-2.0
"""Which parameters and buffers a load_checkpoint takes, and what they are called in the checkpoint. Patterns and renamings are those of
outrigger.Engine.load; here they are about the module's names, among them buffers and further names of a tied parameter, which the library has not."""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..checkpoint import Patterns


class Choice:
    """ValueError: include has no pattern."""

    def __init__(self, include: Patterns | None = None, exclude: Patterns = (), renamed: Mapping[str, str] | None = None, resized: Patterns = ()) -> None:
        self._include = None if include is None else _listed(include)
        self._exclude, self._renamed, self._resized = _listed(exclude), dict(renamed or {}), _listed(resized)
        if self._include == []:
            raise ValueError("include has no pattern, and would take nothing; None takes all parameters and buffers")

    @property
    def given(self) -> list[str]:
        """The arguments that are not their defaults."""
        return [name for name in ("include", "exclude", "renamed", "resized") if getattr(self, f"_{name}") not in (None, [], {})]

    @property
    def chooses(self) -> bool:
        return self._include is not None or bool(self._exclude)

    def takes(self, *names: str) -> bool:
        """All names of one value."""
        return (self._include is None or _mean(self._include, names)) and not _mean(self._exclude, names)

    def there(self, name: str) -> str:
        """What a name here is in the checkpoint."""
        by = self._by(name)
        if by is None or by == name:
            return self._renamed.get(name, name)
        return self._renamed[by].removesuffix("*") + name[len(by) - 1:]

    def _by(self, name: str) -> str | None:
        """The renaming that it follows."""
        beginnings = (here for here in self._renamed if here.endswith("*") and name.startswith(here[:-1]))
        return name if name in self._renamed else next(beginnings, None)

    def for_library(self, parameters: Mapping[str, list[str]], others: Iterable[str], renamed: Mapping[str, str], more: bool) -> dict[str, Any] | None:
        """Arguments of outrigger.Engine.load, which refuses what means nothing; None: no parameter is taken. parameters: of each that the library
        has all names, by the library's; others: of buffers and extra states; renamed: further ones, which go before; more: the checkpoint may have others."""
        others = list(others)

        def known(patterns: list[str]) -> list[str]:
            found = []
            for pattern in patterns:
                meant = [name for name, names in parameters.items() if _mean([pattern], names)]
                own = [name for name in meant if _mean([pattern], [name])]
                if own or not (meant or _mean([pattern], others)):
                    found.append(pattern)
                found.extend(name for name in meant if name not in own)
            return found

        include = None if self._include is None else known(self._include)
        if include == []:
            return None
        # What renames nothing is the library's to refuse, unless it renames one of the others.
        used = {self._by(name) for name in others if self.takes(name)} - {self._by(name) for name, names in parameters.items() if self.takes(*names)}
        means = {here: there for here, there in self._renamed.items() if here not in used and here in known([here])}
        return {"include": "*" if include is None and more else include, "exclude": known(self._exclude), "resized": known(self._resized),
                "renamed": {**means, **renamed}}


def _listed(patterns: Patterns) -> list[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns)


def _mean(patterns: Iterable[str], names: Iterable[str]) -> bool:
    """Whether one of the patterns means one of the names: * is any characters, ? is one."""
    names = list(names)
    return any(_matcher(pattern)(name) for pattern in patterns for name in names)


def _matcher(pattern: str) -> Callable[[str], Any]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(each, re.escape(each)) for each in pattern), re.DOTALL).fullmatch


EVERYTHING = Choice()
