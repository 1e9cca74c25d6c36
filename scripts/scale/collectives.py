# SPDX-License-Identifier: Apache-2.0
"""Seconds of a collective. NCCL's rings, with the latencies of its tuner (src/graph/tuning.cc at 5067397c), and two levels."""
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Protocol:
    """Of NCCL: seconds at the start, of a hop over NVLink and of one between hosts, and the share of the wire that it can use."""

    name: str
    base: float
    nvlink_hop: float
    network_hop: float
    share: float


# LL sends 4 bytes of data in 8, LL128 120 in 128 and, by the tuner, 0.92 of Simple's rate.
PROTOCOLS = (Protocol("LL", 6.6e-6, 0.6e-6, 2.7e-6, 0.5), Protocol("LL128", 14.0e-6, 1.9e-6, 4.0e-6, 0.92), Protocol("Simple", 8.4e-6, 3.4e-6, 14.0e-6, 1.0))
PAT_BASE, PAT_HOP = 8e-6, 14e-6  # NCCL's tree for groups with one GPU a host, a hop for each doubling


def bandwidth(cluster):
    """Of a ring: NVLink on one host; between hosts the ring enters each host once, through all of its links."""
    return cluster.host.nvlink if cluster.hosts == 1 else min(cluster.host.nvlink, cluster.between_hosts)


def ring(cluster, payload):
    """All-gather or reduce-scatter of `payload` bytes in all: the fastest protocol, as NCCL picks it."""
    n = cluster.world
    if n == 1 or payload == 0:
        return 0.0
    network = cluster.hosts - 1  # of the n - 1 hops, those between hosts
    return min(p.base + (n - 1 - network) * p.nvlink_hop + network * p.network_hop + payload * (n - 1) / n / (p.share * bandwidth(cluster))
               for p in PROTOCOLS)


def two_levels(cluster, payload, factor=1.0):
    """On each host, then between hosts among the GPUs of the same place, which have one GPU a host each. factor: on bytes between hosts."""
    if cluster.hosts == 1:
        return ring(cluster, payload)
    k = cluster.hosts
    between = PAT_BASE + math.ceil(math.log2(k)) * PAT_HOP + factor * payload * (k - 1) / k / cluster.between_hosts
    return between + ring(cluster.of(cluster.host.gpus), payload)


def between_replicas(cluster, payload, shard, factor=1.0):
    """All-reduce of the gradients of groups of `shard` ranks: each rank sums its part, over the hosts, there and back."""
    groups = cluster.world // shard
    if groups == 1:
        return 0.0
    of_host = payload * min(shard, cluster.host.gpus) / shard  # what the GPUs of one host sum together
    return 2 * (PAT_BASE + math.ceil(math.log2(groups)) * PAT_HOP + factor * of_host * (groups - 1) / groups / cluster.between_hosts)
