# SPDX-License-Identifier: Apache-2.0
"""Checkpoint: one that is looked at, without an engine."""
from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from . import lowlevel
from .handle import Handle

if TYPE_CHECKING:
    from collections.abc import Mapping


class Checkpoint(Handle[lowlevel.Checkpoint]):
    """A checkpoint of Engine.save: what it is of, and the bytes that ride along. tag None: the one that the file `latest` names.
    Local. E_NOT_FOUND: there is none; E_CORRUPT: its manifest or index is damaged; E_UNSUPPORTED: a later release made it."""

    def __init__(self, directory: str | os.PathLike[str], tag: str | None = None) -> None:
        super().__init__(lowlevel.checkpoint_open(os.fspath(directory), tag))
        self.description: dict[str, Any] = json.loads(lowlevel.checkpoint_describe(self.handle))

    @property
    def tag(self) -> str:
        """Its name in the directory."""
        return str(self.description["tag"])

    @property
    def ranks(self) -> int:
        """How many saved it."""
        return int(self.description["ranks"])

    @property
    def progress(self) -> dict[str, Any]:
        """Engine.get_progress at the save."""
        progress: dict[str, Any] = self.description["progress"]
        return progress

    def part(self, name: str, rank: int = 0) -> bytes:
        """Bytes that a rank's host gave to the save. E_NOT_FOUND: none of that name, or no such rank."""
        return lowlevel.checkpoint_part(self.handle, rank, name)

    def parts(self, rank: int = 0) -> dict[str, bytes]:
        """All of a rank's, by name; of a rank that did not save, those of rank 0."""
        saved = rank if rank < self.ranks else 0
        return {name: self.part(name, saved) for name in self.description["parts"][saved]}

    def verify(self) -> None:
        """Reads every value and compares it with its checksum. E_CORRUPT names the file and the tensor."""
        lowlevel.checkpoint_verify(self.handle)


def save_options(parts: Mapping[str, bytes] | None, keep_last: int, replace: bool, asynchronous: bool = False,
                 when_busy: str = "wait") -> lowlevel.SaveOptions:
    """For outrigger.lowlevel.engine_save."""
    choices = {"wait": lowlevel.SAVE_WAIT, "refuse": lowlevel.SAVE_REFUSE}
    if when_busy not in choices:
        raise ValueError(f"when_busy = {when_busy!r}; legal is 'wait' or 'refuse'")
    options = lowlevel.SaveOptions()
    options.keep_last, options.replace = keep_last, int(replace)
    options.asynchronous, options.when_busy = int(asynchronous), choices[when_busy]
    for name, data in (parts or {}).items():
        options.add_part(name, data)
    return options


def load_options(weights_only: bool, strict: bool) -> lowlevel.LoadOptions:
    """For outrigger.lowlevel.engine_load."""
    options = lowlevel.LoadOptions()
    options.weights_only, options.strict = int(weights_only), int(strict)
    return options
