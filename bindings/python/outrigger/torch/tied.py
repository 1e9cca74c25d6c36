# SPDX-License-Identifier: Apache-2.0
"""Parameters that are tied here, in checkpoints of other programs. The engine declares the first of their names; there they may be under another
one, or under several, whose values must then be equal."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy

from .. import Checkpoint, lowlevel
from . import riders
from .partial import Choice

MOMENTS = {"exp_avg": lowlevel.VALUE_EXP_AVG, "exp_avg_sq": lowlevel.VALUE_EXP_AVG_SQ}


def names_of(module: Any) -> dict[str, list[str]]:
    """Of each parameter with several names all of them, by the first."""
    found: dict[str, list[str]] = {}
    for other, first in riders._tied(module).items():
        found.setdefault(first, [first]).append(other)
    return found


def require_equal(read: Callable[[str], Any], name: str, others: Iterable[str]) -> None:
    """ValueError: one of the others has not the bits of `name`."""
    for other in others:
        if not numpy.array_equal(read(name).view(numpy.uint32), read(other).view(numpy.uint32)):
            raise ValueError(f"load_checkpoint: {name!r} and {other!r} are one parameter here, and two in the checkpoint, with different values; load it "
                             "into a module in which they are not tied")


def moments_of(engine: Any, parameter: Any) -> dict[str, int]:
    """Those that the engine keeps."""
    return {name: value for name, value in MOMENTS.items() if engine.parameters_of.learns(parameter) and _keeps(engine, parameter, value)}


def _keeps(engine: Any, parameter: Any, value: int) -> bool:
    try:
        engine.read_local(parameter, value)
    except lowlevel.OutriggerError as error:
        if error.name != "OTR_E_NOT_FOUND":
            raise
        return False
    return True


def no_moment(engine: Any, moment: str, name: str) -> ValueError:
    return ValueError(f"load_checkpoint: the checkpoint has no {moment} of {name!r}, which {engine.optimizer_name()} keeps; use the optimizer that it was made "
                      "with, or load with load_optimizer_states=False")


def set_updates(progress: dict[str, Any], updates: dict[str, int]) -> None:
    """Gives a progress of the library counts of updates, by name."""
    usual = max(updates.values(), default=0)
    progress["parameters"].update(updates=usual, other_updates=[[name, count] for name, count in updates.items() if count != usual])


class Match:
    """What the parameters are called in a checkpoint. more: further names there, of parameters here or of what is a buffer here; fits: it has these and no
    others, in the same shapes; is_apart: one that fits has more names that are no aliases there. Local. ValueError, on rank 0: names of one parameter here
    have different values."""

    def __init__(self, engine: Any, checkpoint: Checkpoint, choice: Choice) -> None:
        parameters = checkpoint.description["parameters"]
        self._engine, self._progress = engine, checkpoint.progress
        self._roots = {each["name"]: parameters[each["root"]] for each in parameters}
        self._names = {parameter: engine.parameters_of.name_of(parameter) for parameter in engine.parameters_of.ids}
        self._choice = choice
        self._renamed: dict[str, str] = {}  # of some, by their names here
        self.more: set[str] = set()
        self._several = names_of(engine.module)
        apart: list[str] = []
        for name in self._names.values():
            names = self._several.get(name, ())
            there = [each for each in dict.fromkeys(map(choice.there, names)) if each in self._roots]
            if not there or not choice.takes(*names):
                continue
            best = max(there, key=lambda each: len(self._roots[each]["states"]))  # the one that was trained
            if best != choice.there(name):
                self._renamed[name] = best
            self.more.update(each for each in there if each != best)
            own = [each for each in there if self._roots[each] is not self._roots[best]]
            apart.extend(own)
            if engine.global_rank == 0:
                require_equal(lambda each: checkpoint.read(each, self._weight(each)), best, own)
        shapes = {self.there(parameter): list(parameter.shape) for parameter in self._names}
        places = [name for name, _ in riders._places(engine)]
        self._others = [*places, *riders.extra_keys(engine.module)]
        buffers = {choice.there(name) for name in places} & self._roots.keys() - shapes.keys()
        self.more |= buffers
        self.fits = shapes == {name: root["shape"] for name, root in self._roots.items() if name not in self.more}
        self.is_apart = self.fits and bool(apart or buffers)

    def there(self, parameter: Any) -> str:
        name = self._names[parameter]
        return self._renamed.get(name, self._choice.there(name))

    def arguments(self) -> dict[str, Any] | None:
        """What the library is told of names; None: it has nothing to load."""
        own = {name: self._several.get(name, [name]) for name in self._names.values()}
        return self._choice.for_library(own, self._others, self._renamed, self.is_apart)

    def _weight(self, name: str) -> int:
        return lowlevel.VALUE_MASTER if self._roots[name]["trainable"] else lowlevel.VALUE_PUBLISHED

    def progress(self) -> dict[str, Any]:
        """The library's, as it is after the load. ValueError: the checkpoint does not tell it, or lacks a moment."""
        for parameter in self._names:
            for moment in moments_of(self._engine, parameter):
                if moment not in self._roots[self.there(parameter)]["states"]:
                    raise no_moment(self._engine, moment, self.there(parameter))
        if "imported" not in self._progress:
            return self._progress
        counts = self._progress["imported"]
        if counts is None:
            raise ValueError("load_checkpoint: the checkpoint does not say how many updates were made; load with load_optimizer_states=False")
        progress: dict[str, Any] = self._engine._library.get_progress()
        progress["steps"] = {"micro": counts["applied"], "applied": counts["applied"], "skipped": 0}
        others = dict(counts["other_updates"])
        set_updates(progress, {name: others.get(self.there(parameter), counts["applied"]) for parameter, name in self._names.items()
                               if self._engine.parameters_of.learns(parameter)})
        return progress

    def load(self, directory: Any, tag: str, progress: dict[str, Any]) -> None:
        """All of a checkpoint that is_apart, of which the library loads weights only. Rank 0 reads the moments, the library gives each rank its part.
        Collective."""
        engine, library = self._engine, self._engine._library
        library.set_progress(progress)
        library.load(directory, tag, weights_only=True, **self.arguments() or {})
        with Checkpoint(directory, tag) as checkpoint:
            for parameter, identity in engine.parameters_of.ids.items():
                for value in moments_of(engine, parameter).values():
                    is_reader = engine.global_rank == 0
                    values = checkpoint.read(self.there(parameter), value) if is_reader else numpy.empty(tuple(parameter.shape), numpy.float32)
                    library.write(identity, values, value)
