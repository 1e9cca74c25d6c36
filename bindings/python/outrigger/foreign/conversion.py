# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of another library becomes one of Outrigger's, parameter by parameter."""
from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

import numpy

from .. import Checkpoint, lowlevel
from ..checkpoint_writer import CheckpointWriter
from .checkpoint import Foreign
from .objects import plain
from .tensors import STORAGES

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOMENTS = {"exp_avg": lowlevel.VALUE_EXP_AVG, "exp_avg_sq": lowlevel.VALUE_EXP_AVG_SQ}
PART = "foreign"  # of what no engine takes: JSON
_BUFFER = "foreign.buffer."  # and a buffer's name: its bytes, of the dtype and shape that the JSON says
_DTYPES = frozenset(dtype for dtype, _ in STORAGES.values()) - {"bfloat16"}


def convert(checkpoint: Foreign, directory: str | os.PathLike[str], tag: str, replace: bool = False) -> None:
    """Writes it as the checkpoint directory/tag, which Engine.load takes: weights and moments in float32, counts of updates. Values of the
    optimizer's groups, steps and loss scale ride along as JSON, the part "foreign", and buffers that are no parameters (buffers_in). Takes the memory of
    one parameter and of the buffers.

    ForeignError: a file is damaged, which leaves nothing; E_DUPLICATE: the tag is taken; E_IO."""
    checkpoint.verify()
    progress = checkpoint.progress
    has = {name: checkpoint.values(name) for name in checkpoint.parameters}
    kept = {moment: "float32" if any(moment in values for values in has.values()) else None for moment in _MOMENTS}
    steps = progress.global_steps - progress.skipped_steps if progress.updates else None
    buffers: dict[str, NDArray[Any]] = plain({name: each for name, each in checkpoint._buffers.items() if name not in checkpoint.parameters})
    facts = {"kind": checkpoint.kind, "global_steps": progress.global_steps, "skipped_steps": progress.skipped_steps,
             "loss_scale": progress.loss_scale, "groups": progress.groups,
             "buffers": {name: [str(each.dtype), list(each.shape)] for name, each in buffers.items()}}
    with CheckpointWriter(directory, tag, exp_avg=kept["exp_avg"], exp_avg_sq=kept["exp_avg_sq"], applied_steps=steps, replace=replace) as writer:
        for name, shape in checkpoint.parameters.items():
            own = {moment: moment in has[name] for moment in _MOMENTS}
            writer.add_parameter(name, shape, trainable="master" in has[name], updates=progress.updates.get(name), **own)
        for alias, root in checkpoint.aliases.items():
            writer.add_parameter(alias, checkpoint.parameters[root], trainable="master" in has[root], alias_of=root)
        writer.add_part(PART, json.dumps(facts, default=repr).encode())
        for name, each in buffers.items():
            writer.add_part(_BUFFER + name, each.tobytes())
        for name, values in has.items():
            writer.write(name, checkpoint.read(name, "master" if "master" in values else "published"))
            for moment, value in _MOMENTS.items():
                if moment in values:
                    writer.write(name, checkpoint.read(name, moment), value)


def buffers_in(checkpoint: Checkpoint) -> dict[str, NDArray[Any]]:
    """The buffers that convert wrote into it, by name; bfloat16 became float32. ValueError: they are not as convert writes them."""
    parts = checkpoint.description["parts"][0]
    try:
        facts = json.loads(checkpoint.part(PART)) if PART in parts else None
    except ValueError:  # another program's part of this name
        facts = None
    named = facts.get("buffers") if isinstance(facts, dict) else None
    found: dict[str, NDArray[Any]] = {}
    for name, what in named.items() if isinstance(named, dict) else ():
        data = checkpoint.part(_BUFFER + name) if _BUFFER + name in parts else b""
        dtype, shape = what if isinstance(what, list) and len(what) == 2 else (None, None)
        if (type(dtype) is not str or dtype not in _DTYPES or not isinstance(shape, list) or not all(type(each) is int and each >= 0 for each in shape)
                or math.prod(shape) * numpy.dtype(dtype).itemsize != len(data)):
            raise ValueError(f"{checkpoint.tag}: the part {PART!r} says that the buffer {name!r} is {what!r}, and its part has {len(data)} bytes; convert the "
                             "checkpoint again")
        found[name] = numpy.frombuffer(data, dtype).reshape(shape)
    return found
