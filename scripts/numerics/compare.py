# SPDX-License-Identifier: Apache-2.0
"""Each variant beside float32, seed by seed, and what the seeds' own noise is."""

from statistics import fmean, stdev
from typing import Any, NamedTuple

from variants import FLOAT32

METRICS = {"final": "final", "mean": "mean", "held_out": "held-out"}
# Student's distribution, 95 % to both sides, by degrees of freedom; with more it is nearly normal.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


class Comparison(NamedTuple):
    value: float  # mean over seeds
    deviation: float  # of the values over seeds
    difference: float  # to float32 with the same seed: mean over seeds
    error: float  # the difference's standard error
    noise: float  # deviation of float32's own values over seeds
    seeds: int

    @property
    def in_noise(self) -> float:
        return self.difference / self.noise

    @property
    def matches(self) -> bool:
        return abs(self.difference) <= self.noise

    @property
    def distinct(self) -> bool:
        """The difference is more than chance, be it small or not."""
        freedom = self.seeds - 1
        factor = STUDENT[freedom - 1] if freedom <= len(STUDENT) else 1.96
        return abs(self.difference) > factor * self.error


def compare(play: dict[str, Any], variant: str, metric: str) -> Comparison:
    values = [run[metric] for run in play[variant]]
    reference = [run[metric] for run in play[FLOAT32]]
    differences = [a - b for a, b in zip(values, reference)]
    count = len(values)
    return Comparison(fmean(values), stdev(values), fmean(differences), stdev(differences) / count**0.5,
                      stdev(reference), count)


def vanished(play: dict[str, Any], variant: str) -> float:
    lost, updates = (sum(int(run[key]) for run in play[variant]) for key in ("vanished", "updates"))
    return lost / updates


def mean_of(play: dict[str, Any], variant: str, key: str) -> float:
    return fmean(run[key] for run in play[variant])
