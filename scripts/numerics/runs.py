# SPDX-License-Identifier: Apache-2.0
"""What every play gives back of a run, and how a curve of thousands of steps is kept in a few numbers."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

POINTS = 50  # of a curve
LAST = 0.1  # the final loss is the mean over this part of the steps: one batch's loss jumps about

Run = dict[str, Any]  # as in results.json


def windows(values: Sequence[float], points: int = POINTS) -> list[float]:
    """Means over windows of nearly equal length."""
    points = min(points, len(values))
    bounds = [len(values) * k // points for k in range(points + 1)]
    return [round(fmean(values[a:b]), 6) for a, b in zip(bounds, bounds[1:])]


def rate_text(lr: float) -> str:
    """1e-5 for 0.00001."""
    return f"{lr:g}".replace("e-0", "e-")


def run_of(seed: int, losses: Sequence[float], held_out: float, updates: int, vanished: int) -> Run:
    last = max(1, round(LAST * len(losses)))
    return {"seed": seed, "final": fmean(losses[-last:]), "mean": fmean(losses), "held_out": held_out,
            "updates": updates, "vanished": vanished, "curve": windows(losses)}
