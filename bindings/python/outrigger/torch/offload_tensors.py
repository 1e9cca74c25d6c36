# SPDX-License-Identifier: Apache-2.0
"""The elements of a tensor that this rank has, flat, and tensors of the same layout over other memory."""
from __future__ import annotations

import math
import sys
from typing import Any

import torch


def is_dtensor(tensor: torch.Tensor) -> bool:
    module = sys.modules.get("torch.distributed.tensor")  # whoever has one has imported it
    return module is not None and isinstance(tensor, module.DTensor)


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's elements, without a graph."""
    return (tensor.to_local() if is_dtensor(tensor) else tensor).detach()  # type: ignore[attr-defined]


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements lie one behind the other, in whatever order of its dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if stride != expected:
            return tensor.numel() == 0
        expected *= size
    return True


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """A dense tensor's memory, 1-D."""
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def flat_like(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Its elements in the order of like's memory; no copy where they lie in it."""
    if tensor.stride() != like.stride() and tensor.numel():
        tensor = torch.empty_strided(like.shape, like.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    return flat(tensor)


def shaped_like(memory: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Flat memory on the host as a tensor of the parameter's shape; a DTensor with its placements where it is one."""
    local = local_of(parameter)
    tensor = memory.as_strided(local.shape, local.stride(), memory.storage_offset())
    if not is_dtensor(parameter):
        return tensor
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
    # Not DTensor.from_local, which moves memory of the host to the mesh's device. FSDP2's own offload does the same.
    meta = TensorMeta(parameter.shape, parameter.stride(), memory.dtype)
    spec = DTensorSpec(parameter.device_mesh, parameter.placements, tensor_meta=meta)  # type: ignore[attr-defined]
    return DTensor(tensor, spec, requires_grad=False)


def sharded_groups(parameter: torch.Tensor) -> tuple[Any, tuple[int, ...]] | None:
    """Mesh, and those of its dimensions whose ranks have different elements; None: every rank has all."""
    if not is_dtensor(parameter):
        return None
    placements = parameter.placements  # type: ignore[attr-defined]
    dimensions = tuple(index for index, each in enumerate(placements) if not each.is_replicate())
    return (parameter.device_mesh, dimensions) if dimensions else None  # type: ignore[attr-defined]


def part_name(parameter: torch.Tensor) -> str:
    """Which part of the parameter this rank has: other elements, other random numbers; replicas, the same."""
    groups = sharded_groups(parameter)
    if groups is None:
        return ""
    mesh, dimensions = groups
    coordinate = mesh.get_coordinate()
    return " part " + ".".join(str(coordinate[dimension]) for dimension in dimensions)


def fingerprint(values: torch.Tensor) -> torch.Tensor:
    """Two int32: the sum of a flat tensor's bits, modulo their number, and the float32 sum of its values. Versions do not do:
    foreach functions on DTensors and writes through `.data` leave them as they are. Without a copy, and without a wait."""
    bits = torch.int32 if values.element_size() == 4 else torch.int16
    sums = values.view(bits).sum(dtype=bits).to(torch.int32), values.sum(dtype=torch.float32).view(torch.int32)
    return torch.stack(sums)


def differ(before: list[torch.Tensor], after: list[torch.Tensor]) -> list[bool]:
    """Which fingerprints do; one wait for each device."""
    changed = [False] * len(before)
    for device in {each.device for each in before}:
        places = [place for place, each in enumerate(before) if each.device == device]
        rows = torch.stack([before[place] for place in places]) != torch.stack([after[place] for place in places])
        for place, row in zip(places, rows.any(dim=1).tolist()):
            changed[place] = row
    return changed


def norm_over(squares: dict[Any, float]) -> float:
    """The norm over all ranks, from sums of squares on this one by sharded_groups. Collective over each mesh."""
    import torch.distributed as dist
    total = 0.0
    for groups, value in squares.items():
        if groups is not None:
            mesh, dimensions = groups
            summed = torch.tensor(value, dtype=torch.float64, device=mesh.device_type)
            for dimension in dimensions:
                dist.all_reduce(summed, group=mesh.get_group(dimension))
            value = float(summed)
        total += value
    return math.sqrt(total)
