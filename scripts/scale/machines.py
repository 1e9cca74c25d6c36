# SPDX-License-Identifier: Apache-2.0
"""GPUs, hosts and links, each number with where it comes from. Units: seconds, bytes, operations a second."""
from dataclasses import dataclass, replace

VENDOR, READ, RECALLED, MEASURED, ASSUMED = "vendor", "read", "recalled", "measured here", "assumed"


@dataclass(frozen=True)
class Fact:
    value: float
    source: str
    kind: str


FACTS = {
    "A100 peak, bf16": Fact(312e12, "NVIDIA A100 data sheet, dense", VENDOR),
    "A100 memory bandwidth": Fact(2.039e12, "NVIDIA A100 80 GB SXM data sheet", VENDOR),
    "H100 peak, bf16": Fact(989.4e12, "NVIDIA H100 SXM data sheet, dense", VENDOR),
    "H100 memory bandwidth": Fact(3.35e12, "NVIDIA H100 SXM data sheet", VENDOR),
    "share of memory bandwidth in an update": Fact(0.83, "docs/benchmarks/gpu.md: 28 bytes × 67.1 million in 0.675 ms on an H100, of 3.35 TB/s", MEASURED),
    "A100 NVLink, bus bandwidth of NCCL": Fact(230e9, "nccl-tests on 8 GPUs, of 300 GB/s on the wire", RECALLED),
    "A100 host, network": Fact(200e9, "Azure NDm A100 v4: 8 × 200 Gb/s (DeepSpeed's post of 2022-07-26)", READ),
    "H100 host, network": Fact(400e9, "Grand Teton: 400 Gb/s for each of 8 GPUs (torchtitan's benchmarks of 2024-12)", READ),
    "share of the network that NCCL reaches": Fact(0.94, "46 to 48 GB/s of a 400 Gb/s link, NCCL's maintainers in nccl-tests#290", READ),
    "the same, low end": Fact(0.5, "all-gather of 2 GB over 256 H100: 200 of 400 GB/s, nccl#1218", READ),
    "PCIe 4 x16": Fact(25e9, "25 to 26 GB/s, nvbandwidth#53", READ),
    "PCIe 5 x16": Fact(54.5e9, "docs/benchmarks/gpu.md, page-locked copies of an H100", MEASURED),
    "host DRAM that an update reaches": Fact(374e9, "Adam of 171 billion float32 states in 12.8 s at 28 bytes on a host of 8 H200, prime-rl#3248", READ),
    "slowdown of compute beside a collective": Fact(1.05, "of the 1.02 to 1.10 that simulators use; not fitted", ASSUMED),
}


def fact(name):
    return FACTS[name].value


@dataclass(frozen=True)
class Host:
    """One host of a cluster. nvlink: bus bandwidth of a ring that NCCL reaches; network: all its links together."""

    name: str
    gpus: int
    peak: float
    memory_bandwidth: float
    memory: float
    nvlink: float
    network: float
    pcie: float
    dram: float


@dataclass(frozen=True)
class Cluster:
    """world GPUs on hosts that are full, or a part of one. reached: share of the network's rate."""

    host: Host
    world: int
    reached: float = fact("share of the network that NCCL reaches")
    interference: float = fact("slowdown of compute beside a collective")
    straggling: float = 0.0  # standard deviation of a rank's step, as a part of it

    def __post_init__(self):
        if self.world < 1 or (self.world > self.host.gpus and self.world % self.host.gpus):
            raise ValueError(f"{self.world} GPUs on hosts of {self.host.gpus}: give whole hosts, or a part of one")

    @property
    def hosts(self):
        return max(1, self.world // self.host.gpus)

    @property
    def on_host(self):
        return min(self.world, self.host.gpus)

    @property
    def between_hosts(self):
        return self.host.network * self.reached

    def of(self, world):
        return replace(self, world=world)


A100 = Host("A100", 8, fact("A100 peak, bf16"), fact("A100 memory bandwidth"), 80e9, fact("A100 NVLink, bus bandwidth of NCCL"),
            fact("A100 host, network"), fact("PCIe 4 x16"), fact("host DRAM that an update reaches"))
H100 = Host("H100", 8, fact("H100 peak, bf16"), fact("H100 memory bandwidth"), 80e9, 370e9,  # NVLink is fitted: fits.py
            fact("H100 host, network"), fact("PCIe 5 x16"), fact("host DRAM that an update reaches"))
