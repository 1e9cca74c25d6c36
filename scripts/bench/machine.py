# SPDX-License-Identifier: Apache-2.0
"""What the figures depend on: processor, caches, memory, page size, load, versions."""

import os
import pathlib
import platform
import subprocess


def _read(path):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return "unknown"


def _cpu_field(name):
    for line in _read("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def last_level_cache_bytes():
    """Of the first core; 0 if the system does not say."""
    sizes = {}
    for index in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        size = _read(index / "size")
        if size.endswith("K"):
            sizes[int(_read(index / "level"))] = int(size[:-1]) * 1024
    return sizes[max(sizes)] if sizes else 0


def available_bytes():
    """Of memory that can be taken now, by the system and by the control group; 0 if neither says."""
    limits = []
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            limits.append(int(line.split()[1]) * 1024)
    limit, used = (_read(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit.isdigit() and used.isdigit():
        limits.append(int(limit) - int(used))
    return max(0, min(limits, default=0))


def _revision():
    command = ["git", "describe", "--always", "--dirty"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def versions():
    """Of the peers, as they are pinned, and of Python."""
    folder = pathlib.Path(__file__).resolve().parent
    lines = [line for name in ("requirements.txt", "requirements-deepspeed.txt") for line in (folder / name).read_text().splitlines()]
    pinned = dict(line.split("==") for line in lines if "==" in line)
    return {name: pinned[name] for name in ("torch", "torchao", "deepspeed")}


def describe():
    memory_kib = int(_read("/proc/meminfo").split("MemTotal:")[1].split()[0])
    flags = _cpu_field("flags").split()
    return {
        "cpu": _cpu_field("model name"),
        "cpu_family": _cpu_field("cpu family"),
        "cpu_model": _cpu_field("model"),
        "cores": len(os.sched_getaffinity(0)),
        "simd_of_cpu": [flag for flag in ("avx2", "fma", "avx512f", "avx512bw", "avx512_bf16") if flag in flags],
        "last_level_cache_mib": last_level_cache_bytes() / 2**20,
        "memory_gib": round(memory_kib / 2**20, 1),
        "transparent_huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
        "outrigger_revision": _revision(),
    }
