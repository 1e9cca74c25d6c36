# SPDX-License-Identifier: Apache-2.0
"""The file of losses that train.py writes, and what it says of a run. Needs nothing but Python."""
import csv
import statistics
from pathlib import Path

COLUMNS = ("step", "loss", "seconds", "resident_bytes", "peak_bytes")


class LossFileError(ValueError):
    """A file that is no file of losses; the text says why."""


def read(path):
    """The losses, one for each step from 0 on."""
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LossFileError(f"{path} cannot be read: {error}") from error
    if not rows:
        raise LossFileError(f"{path} has no step")
    missing = [name for name in ("step", "loss") if name not in rows[0]]
    if missing:
        raise LossFileError(f"{path} has no column {missing[0]!r}; train.py writes {','.join(COLUMNS)}")
    try:
        steps, losses = [int(row["step"]) for row in rows], [float(row["loss"]) for row in rows]
    except (TypeError, ValueError) as error:
        raise LossFileError(f"{path}: {error}") from error
    if steps != list(range(len(steps))):
        raise LossFileError(f"{path}: the steps are not 0, 1, 2, …")
    return losses


def summary(losses):
    """final: of the last step; late: mean of the last tenth, which says more than one step."""
    late = losses[-max(1, len(losses) // 10):]
    return {"final": losses[-1], "late": statistics.fmean(late), "mean": statistics.fmean(losses),
            "std": statistics.stdev(losses) if len(losses) > 1 else 0.0}


def table(rows):
    """rows: (name, losses); Markdown."""
    lines = ["| configuration | steps | final loss | mean of the last tenth | mean loss | std of the loss |", "|---|---|---|---|---|---|"]
    for name, losses in rows:
        facts = summary(losses)
        values = " | ".join(f"{facts[key]:.4f}" for key in ("final", "late", "mean", "std"))
        lines.append(f"| {name} | {len(losses)} | {values} |")
    return "\n".join(lines)
