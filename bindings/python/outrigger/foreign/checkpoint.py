# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint of another library has, in one form for all of them."""
from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy

from .files import ForeignError
from .objects import plain
from .tensors import Tensor, concatenated

if TYPE_CHECKING:
    from .tensors import Float32Array

Piece = tuple[Tensor, int, int]  # elements [first, first + count) of a tensor, row-major
VALUES = ("master", "exp_avg", "exp_avg_sq", "published")


@dataclasses.dataclass
class Progress:
    """How far the training is. updates: of each parameter, steps of its optimizer. loss_scale: scale, windows, last_overflow, hysteresis_left, as far as
    they are known, or None. groups: the optimizer's groups as plain data, names: which parameters are in each, where it is known."""

    global_steps: int = 0
    skipped_steps: int = 0
    updates: dict[str, int] = dataclasses.field(default_factory=dict)
    loss_scale: dict[str, float] | None = None
    groups: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    names: list[list[str]] = dataclasses.field(default_factory=list)


class Foreign:
    """A checkpoint that is looked at. kind: of which library and form. parameters: shapes by name. aliases: of a parameter with several names the
    others, and under which it is in parameters. Values are read from the mapped files when they are asked for. Local; one thread at a time."""

    def __init__(self, kind: str, path: str) -> None:
        self.kind, self.path = kind, path
        self.parameters: dict[str, tuple[int, ...]] = {}
        self.aliases: dict[str, str] = {}
        self.progress = Progress()
        self._buffers: dict[str, Tensor] = {}
        self._scheduler: Any = None
        self._client: dict[str, Any] = {}
        self._pieces: dict[tuple[str, str], list[Piece]] = {}

    @property
    def buffers(self) -> dict[str, Any]:
        """The module's buffers by name, as NumPy arrays (bfloat16 as float32)."""
        return dict(plain(self._buffers))

    @property
    def scheduler(self) -> Any:
        """The schedule's state_dict; None: there is none."""
        return plain(self._scheduler)

    @property
    def client_state(self) -> dict[str, Any]:
        """What the script gave to the save, as plain data; a placeholder for what is not."""
        return dict(plain(self._client))

    def values(self, name: str) -> list[str]:
        """Which of "master", "exp_avg", "exp_avg_sq" and "published" (of a frozen parameter) it has."""
        return [value for value in VALUES if (self.aliases.get(name, name), value) in self._pieces]

    def read(self, name: str, value: str = "master") -> Float32Array:
        """A value of a whole parameter, a new array of its shape. exp_avg is also the momentum of SGD. ForeignError: it has no such value, or
        the file is damaged."""
        root = self.aliases.get(name, name)
        pieces = self._pieces.get((root, value))
        if pieces is None:
            has = f"of it there are {', '.join(self.values(root))}" if root in self.parameters else "there is no such parameter"
            raise ForeignError(f"{self.path}: the checkpoint has no {value} of {name!r}; {has}")
        for tensor, _, _ in pieces:
            tensor.check()
        out = numpy.zeros(self.parameters[root], numpy.float32)
        concatenated(pieces, out.reshape(-1))
        return out

    def verify(self, part: int = 0, of: int = 1) -> None:
        """Compares the bytes of all values with their checksums; of: with others, of which this is number `part`. ForeignError names the file."""
        for index, key in enumerate(sorted(self._pieces)):
            if index % of == part:
                for tensor, _, _ in self._pieces[key]:
                    tensor.check()

    def _add(self, name: str, value: str, shape: tuple[int, ...], pieces: list[Piece]) -> None:
        count = sum(each[2] for each in pieces)
        known = self.parameters.setdefault(name, shape)
        if known != shape or count != math.prod(shape):
            raise ForeignError(f"{self.path}: the {value} of {name!r} has {count} elements in its files, and its shape is {known}; a file is missing, damaged "
                               "or of another save")
        if (name, value) in self._pieces:
            raise ForeignError(f"{self.path}: there are two {value} of {name!r}")
        self._pieces[name, value] = pieces

    def _begin_moments(self, name: str) -> None:
        """Gives a parameter that had no gradient yet what its optimizer begins with, which PyTorch makes with the first one: zeros, which are no pieces of
        files. After all others are added."""
        for value in {value for _, value in self._pieces if value in ("exp_avg", "exp_avg_sq")}:
            self._pieces.setdefault((name, value), [])
        if self.progress.updates:  # else it is not known how many the others had
            self.progress.updates[name] = 0


def member(container: Any, key: str, kind: type | tuple[type, ...], path: str) -> Any:
    """container[key]. ForeignError: it is not there, or of another type."""
    if not isinstance(container, dict) or not isinstance(container.get(key), kind):
        found = "nothing" if not isinstance(container, dict) or key not in container else f"a {type(container[key]).__name__}"
        raise ForeignError(f"{path}: has {found} as {key!r}, which a checkpoint of this kind has; the file is damaged, or of another release")
    return container[key]


def number(value: Any, path: str) -> int:
    """A count, from an int or a tensor of one element."""
    found = value.scalar() if isinstance(value, Tensor) else value
    if not isinstance(found, (int, float)) or isinstance(found, bool) or not 0 <= found < 2**53 or found != int(found):
        raise ForeignError(f"{path}: a count of steps is {found!r}; the file is damaged")
    return int(found)


def shape_of(shape: Any, path: str) -> tuple[int, ...]:
    if type(shape) is not tuple or not all(type(each) is int and each >= 0 for each in shape):
        raise ForeignError(f"{path}: {shape!r} is no shape; the file is damaged")
    return tuple(shape)
