# SPDX-License-Identifier: Apache-2.0
"""The numbers both sides compute with; tests/bench/numbers.h is the same in C.

Element i of stream s is an odd integer in -63..63 over a power of two. It has six significant bits, so it is
exact in bfloat16, and so is the sum of the same element of two ranks.
"""

import numpy
import torch


def stream(number, count, denominator, dtype):
    """A tensor of torch's own memory, written in parts: numpy would ask for huge pages, which torch does not."""
    values, part = torch.empty(count, dtype=dtype), 1 << 20
    for first in range(0, count, part):
        values[first : first + part] = torch.from_numpy(_part(number, first, min(count, first + part), denominator))
    return values


def _part(number, first, last, denominator):
    index = numpy.arange(first, last, dtype=numpy.uint32)
    mixed = (index + numpy.uint32((number * 40503) & 0xFFFFFFFF)) * numpy.uint32(2654435761)
    mixed ^= mixed >> numpy.uint32(15)
    mixed *= numpy.uint32(2246822519)
    return ((mixed >> numpy.uint32(26)).astype(numpy.float32) * 2 - 63) / denominator
