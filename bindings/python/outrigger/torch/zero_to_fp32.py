# SPDX-License-Identifier: Apache-2.0
"""Weights out of a checkpoint, without an engine and in one process, by DeepSpeed's names."""
from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from typing import Any

import torch

from .. import Checkpoint
from . import riders

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "U16": torch.int16}
_WEIGHT = re.compile(r"(.*)/(?:master|published)(\.low)?(?:\[(\d+):(\d+)\])?", re.DOTALL)
Path = str | os.PathLike[str]


def get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir: Path, tag: str | None = None, exclude_frozen_parameters: bool = False,
                                             lazy_mode: bool = False) -> dict[str, torch.Tensor]:
    """A state_dict of the module: the masters, what frozen parameters have, and rank 0's buffers, whole and in float32 (buffers
    that are not floating as they are). Names that are tied share memory. tag None: the latest. It reads all of the checkpoint and compares
    its checksums.

    OutriggerError: E_NOT_FOUND, there is none; E_CORRUPT; NotImplementedError: lazy_mode."""
    if lazy_mode:
        raise NotImplementedError("get_fp32_state_dict_from_zero_checkpoint: lazy_mode=True is not supported; leave it out")
    with Checkpoint(checkpoint_dir, tag) as checkpoint:
        checkpoint.verify()
        parts = checkpoint.parts()
        parameters = checkpoint.description["parameters"]
        files = [os.path.join(checkpoint_dir, checkpoint.tag, f"rank-{rank:05d}.safetensors") for rank in range(checkpoint.ranks)]
    state = riders.unpack(parts[riders.PART]) if riders.PART in parts else {}
    split = {found[1] for file in files for found in map(_WEIGHT.fullmatch, _header(file)[0]) if found is not None and found[2]}
    weights = {each["name"]: torch.zeros(math.prod(each["shape"]), dtype=torch.int32 if each["name"] in split else torch.float32)
               for index, each in enumerate(parameters) if each["root"] == index and (each["trainable"] or not exclude_frozen_parameters)}
    for file in files:
        for name, values in _tensors(file):
            found = _WEIGHT.fullmatch(name)
            if found is None or found[1] not in weights:
                continue
            whole = weights[found[1]]
            own = whole[int(found[3] or 0):int(found[4] or whole.numel())]
            if whole.dtype == torch.float32:
                own.copy_(values)
            else:  # the bits of float32: upper half × 2^16, plus the lower one as a signed number
                half = values.view(torch.int16).to(torch.int32)
                own.add_(half if found[2] else half << 16)
    result = {}
    for each in parameters:
        root = parameters[each["root"]]["name"]  # an alias has no values of its own in the files
        if root in weights:
            result[each["name"]] = weights[root].view(torch.float32).view(each["shape"])
    result.update({name: each.float() if each.is_floating_point() else each for name, each in state.get("buffers", {}).items()})
    result.update({name: result[first] for name, first in state.get("tied", {}).items() if first in result})
    return result


def load_state_dict_from_zero_checkpoint(model: torch.nn.Module, checkpoint_dir: Path, tag: str | None = None) -> torch.nn.Module:
    """The model with the checkpoint's weights, as far as it has them."""
    model.load_state_dict(get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag), strict=False)
    return model


def _header(file: Path) -> tuple[dict[str, Any], int]:
    """What a safetensors file says of its tensors, and where their bytes begin."""
    with open(file, "rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        header: dict[str, Any] = json.loads(opened.read(size))
    header.pop("__metadata__", None)
    return header, 8 + size


def _tensors(file: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Of a dtype that weights have, flat, in the file's pages."""
    header, start = _header(file)
    pages = torch.from_file(file, shared=False, size=os.path.getsize(file), dtype=torch.uint8)
    for name, each in header.items():
        first, last = each["data_offsets"]
        dtype = _DTYPES.get(each["dtype"])
        if dtype is not None and last > first:
            own = pages[start + first:start + last]
            yield name, (own if own.storage_offset() % dtype.itemsize == 0 else own.clone()).view(dtype)
