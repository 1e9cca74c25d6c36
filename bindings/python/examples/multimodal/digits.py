# SPDX-License-Identifier: Apache-2.0
"""Strips of scanned digits, and the words that they are read as. What a batch holds follows from its number, so that every rank can make it, and a
training that is resumed gets the batches that it would have got."""
import functools

import torch
from sklearn.datasets import load_digits

PATCH = 4  # columns of a strip: it has 8 rows
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "<begin>", "<end>"]
BEGIN, END = WORDS.index("<begin>"), WORDS.index("<end>")
HELD_OUT = 360  # of 1,797 scans


@functools.cache
def scans():
    """Images, what they show, and the numbers of those to train on and of those that are held out."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    return torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target), order[HELD_OUT:], order[:HELD_OUT]


def patches_of(settings):
    """How many a strip has."""
    return settings.digits * 8 // PATCH


def batch(settings, number):
    """Strips to train on: patches [strips, patches, 8 · PATCH] and words [strips, digits]."""
    return _strips(settings, settings.strips, 2 * number + 1, held_out=False)


def held_out(settings, strips, number=0):
    return _strips(settings, strips, 2 * number, held_out=True)


def _strips(settings, count, seed, held_out):
    images, shown, *pools = scans()
    pool = pools[held_out]
    generator = torch.Generator().manual_seed(1_000_003 * settings.seed + seed)
    chosen = pool[torch.randint(len(pool), (count, settings.digits), generator=generator)]
    strips = images[chosen].transpose(1, 2).reshape(count, 8, -1)  # side by side
    return strips.unfold(2, PATCH, PATCH).transpose(1, 2).flatten(2).contiguous(), shown[chosen]


def text(words):
    """What a row of words reads as."""
    return " ".join(WORDS[word] for word in words if word < BEGIN)
