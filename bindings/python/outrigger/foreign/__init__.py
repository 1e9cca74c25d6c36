# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of other libraries: DeepSpeed 0.19.8's of stages 0 to 3, its universal format, and PyTorch's distributed ones. Neither DeepSpeed nor
PyTorch is needed, and no code from a checkpoint runs: pickles are read as data (pickles.py).

    checkpoint = outrigger.foreign.open("out")
    weight = checkpoint.read("layer.weight", "master")
"""
from __future__ import annotations

import os

from .checkpoint import Foreign, Progress
from .conversion import convert
from .deepspeed import DeepSpeed, is_deepspeed
from .distributed import NAME, Distributed
from .files import ForeignError, text
from .pickles import Opaque

__all__ = ["Foreign", "ForeignError", "Opaque", "Progress", "convert", "find", "open"]


def find(path: str | os.PathLike[str], tag: str | None = None) -> str | None:
    """The folder of the checkpoint of another library that is path/tag (None: the one that the file `latest` or `latest_universal` names, or path
    itself); None: it is none that is known."""
    folder = os.fspath(path)
    if tag is None:
        for name in ("latest", "latest_universal"):
            if os.path.lexists(os.path.join(folder, name)):
                tag = text(os.path.join(folder, name))
                break
    if tag is not None:
        if not tag or os.path.isabs(tag) or ".." in tag.split("/"):
            raise ForeignError(f"{folder}: the tag {tag!r} is no name of a folder in it")
        folder = os.path.join(folder, tag)
    return folder if is_deepspeed(folder) or os.path.lexists(os.path.join(folder, NAME)) else None


def open(path: str | os.PathLike[str], tag: str | None = None, order: list[list[str]] | None = None) -> Foreign:
    """A checkpoint of another library. order: the parameters' names in each group of the optimizer, which DeepSpeed's stage 0 and a state_dict()
    of an optimizer do not have; not needed for one group of all parameters of stage 0.

    ForeignError (a ValueError): there is none, a file is missing, damaged or of another save, or has what is not read; the text names the file."""
    folder = find(path, tag)
    if folder is None:
        shown = os.fspath(path) if tag is None else os.path.join(path, tag)
        raise ForeignError(f"{shown}: is no checkpoint of DeepSpeed or of torch.distributed.checkpoint; give the folder that it was saved into, and the tag if no file `latest` names it")
    return Distributed(folder, order) if os.path.lexists(os.path.join(folder, NAME)) else DeepSpeed(folder, order)
