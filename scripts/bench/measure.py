# SPDX-License-Identifier: Apache-2.0
"""Interleaved timing of two or more sides, and the statistics of it."""

import math
import random
import time


def quantile(values, fraction):
    """Linear interpolation between order statistics."""
    ordered = sorted(values)
    position = fraction * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def summary(values):
    return {"median": quantile(values, 0.5), "p10": quantile(values, 0.1), "p90": quantile(values, 0.9)}


class Rounds:
    """seconds[name]: one figure a round, at the same index for all sides."""

    def __init__(self, names):
        self.seconds = {name: [] for name in names}
        self.facts = {name: [] for name in names}

    def __len__(self):
        return len(next(iter(self.seconds.values())))

    def ratio(self, peer, ours):
        """Of the peer's time over ours, round by round: drift of the machine cancels."""
        return summary([theirs / own for theirs, own in zip(self.seconds[peer], self.seconds[ours], strict=True)])


def interleave(sides, rounds, warm_up, deadline, seed, pause=0.02, least=7, times=1):
    """Every round runs each side once (`times` in a row, of which the mean counts), in random order. Ends early, but not below
    `least` rounds, at the deadline."""
    order = random.Random(seed)
    result = Rounds([side.name for side in sides])
    for index in range(-warm_up, rounds):
        if index >= least and time.monotonic() > deadline:
            break
        for side in order.sample(sides, len(sides)):
            time.sleep(pause)  # the other sides' threads come to rest
            seconds, facts = side.run(timeout=120, times=times)
            if index >= 0:
                result.seconds[side.name].append(seconds)
                result.facts[side.name].append(facts)
    return result


def exponent_of(value):
    """e with 2^(e-1) <= |value| < 2^e; of zero that of the smallest normal float32."""
    return math.frexp(value)[1] if value else -125
