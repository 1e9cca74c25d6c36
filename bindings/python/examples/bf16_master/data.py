# SPDX-License-Identifier: Apache-2.0
"""Rows of tokens. Which rows a step has depends on the seed and the step alone: several ranks divide them among themselves."""
import importlib.util
import os
from pathlib import Path

import torch

VOCABULARY = 256  # bytes
ROOT = Path(__file__).resolve().parents[4]
LOADER = ROOT / "scripts/demo/plays.py"
CACHE = ROOT / "build/bf16_master"


class TextError(ValueError):
    """A text that cannot be had, or is too short; the message says which."""


def plays():
    """The text of Shakespeare's works, made once by the loader of the demo."""
    path = CACHE / "plays.txt"
    if not path.is_file():
        if not LOADER.is_file():
            raise TextError("the loader of the plays is not here: name a text with --text FILE")
        specification = importlib.util.spec_from_file_location("plays", LOADER)
        loader = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(loader)
        CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        loader.make_text(loader.download(str(CACHE / "download")), str(unfinished))
        unfinished.replace(path)
    return path


def read_text(path, length):
    """The bytes of a file as tokens."""
    content = Path(path).read_bytes()
    if len(content) < length + 1:
        raise TextError(f"{path} has {len(content)} bytes, too few for rows of {length + 1}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def from_text(text, rows, length, generator):
    """Rows that begin anywhere in the text."""
    starts = torch.randint(0, len(text) - length, (rows, 1), generator=generator)
    return text[starts + torch.arange(length + 1)].long()


def invented(rows, length, generator):
    """Rows of a little language: a token has two successors, of which chance takes one."""
    tokens = torch.randint(0, VOCABULARY, (rows, 1), generator=generator)
    chances = torch.randint(0, 2, (rows, length), generator=generator)
    columns = [tokens[:, 0]]
    for place in range(length):
        columns.append((5 * columns[-1] + 7 + 64 * chances[:, place]) % VOCABULARY)
    return torch.stack(columns, 1)


class Batches:
    """batches(step, micro) is this rank's part of a micro-batch of world × rows rows."""

    def __init__(self, text, rows, length, seed, rank, world):
        self.text, self.rows, self.length, self.seed, self.rank, self.world = text, rows, length, seed, rank, world

    def __call__(self, step, micro):
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + 1009 * step + micro)
        count = self.rows * self.world
        rows = invented(count, self.length, generator) if self.text is None else from_text(self.text, count, self.length, generator)
        return rows[self.rank * self.rows:(self.rank + 1) * self.rows]
