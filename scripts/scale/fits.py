# SPDX-License-Identifier: Apache-2.0
"""Fits one or two numbers of each set on the rows that are named for it, and predicts the others."""
import statistics
from dataclasses import dataclass, replace

import anchors
import collectives
import offload
import step

LIMITS = {anchors.COMPUTE: 0.10, anchors.LATENCY: 0.25}  # of the median error


@dataclass(frozen=True)
class Residual:
    """error: of the seconds, so that a rate that is too high has a negative one."""

    row: anchors.Row
    predicted: float
    error: float


def bisect(function, wanted, low, high):
    """Where a monotonic function has this value. Throws where it lies outside."""
    rising = function(high) > function(low)
    if not min(function(low), function(high)) <= wanted <= max(function(low), function(high)):
        raise ValueError(f"{wanted:g} is not between {function(low):g} and {function(high):g}: no value from {low:g} to {high:g} fits")
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if (function(middle) < wanted) == rising else (low, middle)
    return (low + high) / 2


def value_of(row, numbers):
    """What the model says instead of the published value, with these numbers of its set."""
    if row.unit == "µs":
        cluster, payload = row.job
        cluster = replace(cluster, host=replace(cluster.host, nvlink=numbers["nvlink"]))
        return 1e6 * collectives.ring(cluster, payload)
    if row.set == "zenflow":
        behind = offload.one_after_the_other(25e9, numbers["dram"], row.job["parameters"] / 2, 2, 44, 4, 2)
        return 1e3 * (row.job["gpu"] + behind)
    job = with_numbers(row.job, numbers)
    if row.unit == "tokens/s/GPU":
        return step.tokens_per_second(job)
    return job.model.operations(job.tokens, job.sequence, job.recompute) / step.run(job).seconds / 1e12


def with_numbers(job, numbers):
    host = replace(job.cluster.host, nvlink=numbers["nvlink"]) if job.cluster.host.peak == anchors.H100.peak else job.cluster.host
    return replace(job, efficiency=numbers["efficiency"], cluster=replace(job.cluster, host=host, straggling=numbers["straggling"]))


def rows_of(name):
    rows = [row for row in anchors.ROWS if row.set == name]
    return [row for row in rows if row.fits], [row for row in rows if not row.fits]


def fit_efficiency(row, numbers):
    return bisect(lambda e: value_of(row, {**numbers, "efficiency": e}), row.published, 0.02, 2.0)


def fit_shared():
    """NVLink's bus bandwidth of H100, and how much ranks straggle: used by all sets."""
    (gather,), _ = rows_of("nccl")
    nvlink = bisect(lambda rate: value_of(gather, {"nvlink": rate}), gather.published, 100e9, 450e9)
    (few, many), _ = rows_of("titan_compiled")

    def rate_of_many(straggling):
        numbers = {"nvlink": nvlink, "straggling": straggling}
        return value_of(many, {**numbers, "efficiency": fit_efficiency(few, numbers)})

    return {"nvlink": nvlink, "straggling": bisect(rate_of_many, many.published, 0.0, 0.1)}


def fit():
    """Set → its numbers, and every residual."""
    shared, fitted, residuals = fit_shared(), {}, []
    for name in anchors.SETS:
        used, held_out = rows_of(name)
        numbers = dict(shared)
        for row in used:
            if row.fits == "efficiency":
                numbers["efficiency"] = fit_efficiency(row, numbers)
            elif row.set == "zenflow":
                numbers["dram"] = bisect(lambda rate, row=row: value_of(row, {"dram": rate}), row.published, 1e9, 1e12)
        fitted[name] = numbers
        for row in used + held_out:
            predicted = value_of(row, numbers)
            ratio = row.published / predicted if row.unit in ("tokens/s/GPU", "TFLOPS/GPU") else predicted / row.published
            residuals.append(Residual(row, predicted, ratio - 1))
    return fitted, residuals


def held_out(residuals, bound):
    return [each for each in residuals if not each.row.fits and anchors.SETS[each.row.set].bound == bound]


def median_error(residuals):
    return statistics.median(abs(each.error) for each in residuals)


def ranking(residuals):
    """(pairs of rows of a set that the model puts in the published order, pairs in all). Two that were fitted are no pair, nor are rows that differ by less than a hundredth."""
    right = pairs = 0
    by_set = {}
    for each in residuals:
        by_set.setdefault(each.row.set, []).append(each)
    for group in by_set.values():
        for i, a in enumerate(group):
            for b in group[i + 1:]:
                if not (a.row.fits and b.row.fits) and abs(a.row.published / b.row.published - 1) >= 0.01:
                    pairs += 1
                    right += (a.predicted < b.predicted) == (a.row.published < b.row.published)
    return right, pairs
