# SPDX-License-Identifier: Apache-2.0
"""Checkpoint: one that is looked at, without an engine."""
from __future__ import annotations

import functools
import json
import math
import os
from typing import TYPE_CHECKING, Any

from . import lowlevel
from .arrays import new_float32
from .handle import Handle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeAlias

    from .arrays import Float32Array

    Patterns: TypeAlias = str | Iterable[str]  # of names of parameters: "encoder.*", or several


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

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of all parameters, by name."""
        return {parameter["name"]: tuple(parameter["shape"]) for parameter in self.description["parameters"]}

    def part(self, name: str, rank: int = 0) -> bytes:
        """Bytes that a rank's host gave to the save. E_NOT_FOUND: none of that name, or no such rank."""
        return lowlevel.checkpoint_part(self.handle, rank, name)

    def parts(self, rank: int = 0) -> dict[str, bytes]:
        """All of a rank's, by name; of a rank that did not save, those of rank 0."""
        saved = rank if rank < self.ranks else 0
        return {name: self.part(name, saved) for name in self.description["parts"][saved]}

    def read(self, name: str, value: int = lowlevel.VALUE_MASTER, first: int = 0, count: int | None = None) -> Float32Array:
        """A value of a parameter (lowlevel.VALUE_MASTER, VALUE_PUBLISHED, VALUE_EXP_AVG, VALUE_EXP_AVG_SQ) as a new float32 array in the
        parameter's shape, whatever it is stored as; with first or count, these elements of it, row-major, 1-D. Compared with
        its checksums. E_NOT_FOUND: no such parameter, or it has no such value; E_ARGUMENT: no such elements; E_CORRUPT."""
        shape = self.shapes.get(name, ())
        whole = first == 0 and count is None
        out = new_float32(shape if whole else max(0, math.prod(shape) - first) if count is None else count)
        lowlevel.checkpoint_read(self.handle, name, value, first, out)
        return out

    def export(self, path: str | os.PathLike[str], dtype: str = "float32", max_shard_bytes: int | None = None, replace: bool = False) -> None:
        """Writes the weights, frozen ones too, as a safetensors file that the safetensors package and transformers read. dtype: "float32",
        "bfloat16" or "float16", rounded to nearest even. max_shard_bytes: path is a folder, made if it is not there, for the
        model-00001-of-0000N.safetensors and the model.safetensors.index.json of a Hugging Face model. Aliases are left out, as
        transformers does it; the metadata names them. replace: files of these names may be there. Takes < 100 MiB of memory.
        E_DUPLICATE: there is such a file; E_IO; E_CORRUPT: the checkpoint is damaged."""
        options = lowlevel.ExportOptions()
        options.dtype, options.replace = dtype, int(replace)
        if max_shard_bytes is not None:
            if max_shard_bytes < 1:
                raise ValueError(f"max_shard_bytes = {max_shard_bytes}; legal is 1 or more, or None for one file")
            options.max_shard_bytes = max_shard_bytes
            os.makedirs(path, exist_ok=True)
        lowlevel.checkpoint_export(self.handle, os.fspath(path), options)

    def verify(self) -> None:
        """Reads every value and compares it with its checksum, also behind what is damaged. E_CORRUPT names the file and the tensor; of several,
        the first in full, up to 19 others by name, and how many there are. E_NOT_FOUND, E_IO: the first is a file that is not there or
        cannot be read."""
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


def load_options(weights_only: bool, strict: bool, include: Patterns | None = None, exclude: Patterns = (),
                 renamed: Mapping[str, str] | None = None, resized: Patterns = ()) -> lowlevel.LoadOptions:
    """For outrigger.lowlevel.engine_load."""
    options = lowlevel.LoadOptions()
    options.weights_only, options.strict = int(weights_only), int(strict)
    if include is not None:
        included = _patterns(include)
        if not included:
            raise ValueError("include has no pattern, and would take nothing; None takes all parameters")
        for pattern in included:
            options.add_include(pattern)
    for pattern in _patterns(exclude):
        options.add_exclude(pattern)
    for pattern in _patterns(resized):
        options.add_resized(pattern)
    for here, there in (renamed or {}).items():
        options.add_renamed(here, there)
    return options


def _patterns(given: Patterns) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
