# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of another library becomes one of Outrigger's, parameter by parameter."""
from __future__ import annotations

import json
import os

from .. import lowlevel
from ..checkpoint_writer import CheckpointWriter
from .checkpoint import Foreign

_MOMENTS = {"exp_avg": lowlevel.VALUE_EXP_AVG, "exp_avg_sq": lowlevel.VALUE_EXP_AVG_SQ}
PART = "foreign"  # of what no engine takes: JSON


def convert(checkpoint: Foreign, directory: str | os.PathLike[str], tag: str, replace: bool = False) -> None:
    """Writes it as the checkpoint directory/tag, which Engine.load takes: weights and moments in float32, counts of updates. Values of the
    optimizer's groups, steps and loss scale ride along as JSON, the part "foreign". Takes the memory of one parameter.

    ForeignError: a file is damaged, which leaves nothing; E_DUPLICATE: the tag is taken; E_IO."""
    checkpoint.verify()
    progress = checkpoint.progress
    has = {name: checkpoint.values(name) for name in checkpoint.parameters}
    kept = {moment: "float32" if any(moment in values for values in has.values()) else None for moment in _MOMENTS}
    steps = progress.global_steps - progress.skipped_steps if progress.updates else None
    facts = {"kind": checkpoint.kind, "global_steps": progress.global_steps, "skipped_steps": progress.skipped_steps,
             "loss_scale": progress.loss_scale, "groups": progress.groups}
    with CheckpointWriter(directory, tag, exp_avg=kept["exp_avg"], exp_avg_sq=kept["exp_avg_sq"], applied_steps=steps, replace=replace) as writer:
        for name, shape in checkpoint.parameters.items():
            own = {moment: moment in has[name] for moment in _MOMENTS}
            writer.add_parameter(name, shape, trainable="master" in has[name], updates=progress.updates.get(name), **own)
        for alias, root in checkpoint.aliases.items():
            writer.add_parameter(alias, checkpoint.parameters[root], trainable="master" in has[root], alias_of=root)
        writer.add_part(PART, json.dumps(facts, default=repr).encode())
        for name, values in has.items():
            writer.write(name, checkpoint.read(name, "master" if "master" in values else "published"))
            for moment, value in _MOMENTS.items():
                if moment in values:
                    writer.write(name, checkpoint.read(name, moment), value)
