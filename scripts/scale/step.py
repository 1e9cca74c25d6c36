# SPDX-License-Identifier: Apache-2.0
"""One training step: a GPU that computes layer after layer, and one queue of collectives beside it."""
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import collectives
import offload
from machines import Cluster, fact
from transformers import Transformer

BYTES = 2  # of a parameter and of a gradient on the wire
BLOCK = 256  # elements that share a float32 scale where 8-bit codes are sent
EIGHT_BIT = (1 + 4 / BLOCK) / BYTES


@dataclass(frozen=True)
class Job:
    """tokens: of one GPU in a step. efficiency: share of the peak that the matrix products reach, fitted for each stack of software.
    levels: gathers and sums may go by host and then between hosts, where that is faster than one ring. shard: ranks of a mesh's group, 0 for all; states_over_all: hpZ.
    eight_bit: codes of a byte between hosts. offloaded: bytes that the update of a parameter moves on the host."""

    model: Transformer
    cluster: Cluster
    stage: int
    tokens: int
    sequence: int
    efficiency: float
    recompute: bool = False
    levels: bool = False
    shard: int = 0
    states_over_all: bool = False
    eight_bit: bool = False
    offloaded: float = 0.0
    prefetch: int = 2


@dataclass(frozen=True)
class Step:
    seconds: float
    compute: float
    communication: float  # of the queue, hidden or not
    tail: float           # after the backward: update, return of parameters


def timeline(compute, gathers, reduces, prefetch):
    """Seconds until all is done. Units are computed in order, each after its gather, which may begin when the unit `prefetch` before the last
    one has been computed; a reduce may begin when its unit is. One collective at a time; a gather goes before a reduce."""
    done, free, finish, ready = [], 0.0, 0.0, []
    for unit, seconds in enumerate(compute):
        before = unit - 1 - prefetch
        allowed = done[before] if before >= 0 else 0.0
        if gathers[unit] > 0:
            while ready and max(free, ready[0][0]) < allowed:
                at, length = ready.pop(0)
                free = max(free, at) + length
            free = max(free, allowed) + gathers[unit]
            finish = max(finish, free)
        finish += seconds
        done.append(finish)
        if reduces[unit] > 0:
            ready.append((finish, reduces[unit]))
    for at, length in ready:
        free = max(free, at) + length
    return max(finish, free)


def slowest(ranks):
    """Where the slowest of so many ranks is expected, in standard deviations (Blom's approximation)."""
    return 0.0 if ranks == 1 else NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def units(job):
    """(parameters, operations of the forward, whether its forward is recomputed) of embedding, layers, head."""
    m = job.model
    layer = (m.layer_parameters, m.layer_operations(job.tokens, job.sequence), job.recompute)
    ends = m.vocabulary * m.width
    return [(ends, 0.0, False), *[layer] * m.layers, (0 if m.tied else ends, m.head_operations(job.tokens), False)]


def gather(job, parameters):
    """Seconds to have a unit's parameters whole, at stage 3."""
    group = job.cluster.of(job.shard) if job.shard else job.cluster
    return collective(job, group, BYTES * parameters)


def reduce(job, parameters):
    """Seconds until the sums of a unit's gradients are where their owners are."""
    if job.shard and not job.states_over_all:
        factor = EIGHT_BIT if job.eight_bit else 1.0
        return collective(job, job.cluster.of(job.shard), BYTES * parameters) + collectives.between_replicas(job.cluster, BYTES * parameters, job.shard, factor)
    return collective(job, job.cluster, BYTES * parameters)


def collective(job, group, payload):
    """All-gather or reduce-scatter. Codes of 8 bits need two levels: on a host nothing is rounded."""
    if job.eight_bit:
        return collectives.two_levels(group, payload, EIGHT_BIT)
    ring = collectives.ring(group, payload)
    return min(ring, collectives.two_levels(group, payload)) if job.levels else ring


def update(job):
    """Seconds from the last sum until the next forward can begin: norm, update, and what the update returns."""
    owned = job.model.parameters / (job.shard if job.shard and not job.states_over_all else job.cluster.world)
    seconds = 2 * collectives.two_levels(job.cluster, 8)  # the norm
    if job.offloaded:
        seconds += offload.after_norm(job.cluster, owned, job.offloaded)
    else:
        seconds += 28 * owned / (fact("share of memory bandwidth in an update") * job.cluster.host.memory_bandwidth)
    if job.stage in (1, 2):
        seconds += gather(job, job.model.parameters)
    elif job.states_over_all:  # each place's slices, from the other groups
        seconds += collectives.between_replicas(job.cluster, BYTES * job.model.parameters, job.shard, EIGHT_BIT if job.eight_bit else 1.0) / 2
    return seconds


@cache
def run(job):
    """The step of a job; tables and pictures ask for the same ones."""
    if job.stage not in (0, 1, 2, 3):
        raise ValueError(f"stage {job.stage}: there are 0 to 3")
    rate = job.efficiency * job.cluster.host.peak
    all_units = units(job)
    forward = [operations / rate for _, operations, _ in all_units]
    backward = [(3 if again else 2) * operations / rate for _, operations, again in reversed(all_units)]
    kinds = {parameters for parameters, _, _ in all_units}
    gathering = {parameters: gather(job, parameters) if job.stage == 3 else 0.0 for parameters in kinds}
    reducing = {parameters: reduce(job, parameters) for parameters in kinds}
    gathers = [gathering[parameters] for parameters, _, _ in all_units]
    reduces = [reducing[parameters] for parameters, _, _ in reversed(all_units)]
    if job.stage == 0:
        reduces = [2 * seconds for seconds in reduces]  # all-reduce
    if job.offloaded:  # gradients come down beside the backward; the slower of link and network holds both up
        down = offload.down(job.cluster, job.model.parameters / job.cluster.world)
        reduces = [max(seconds, down * parameters / job.model.parameters) for seconds, (parameters, _, _) in zip(reduces, reversed(all_units))]
    compute = sum(forward) + sum(backward)
    communication = 2 * sum(gathers) + sum(reduces)
    makespan = timeline(forward + backward, gathers + gathers[::-1], [0.0] * len(forward) + reduces, job.prefetch)
    both = compute + communication - makespan  # seconds in which the two go on side by side
    tail = update(job)
    seconds = makespan + (job.cluster.interference - 1) * both
    return Step(seconds * (1 + job.cluster.straggling * slowest(job.cluster.world)) + tail, compute, communication, tail)


def tokens_per_second(job):
    """Of one GPU."""
    return job.tokens / run(job).seconds
