# SPDX-License-Identifier: Apache-2.0
"""Ulysses sequence parallelism: each rank has a part of every sequence, and for attention all of the sequence and a part of the heads."""
from __future__ import annotations

import copy
import struct
import weakref
import zlib
from typing import TYPE_CHECKING, Any

import torch

from ..message import Message
from .launched import launched_comm
from .pytorch import untraced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .. import Comm


class _Exchange(torch.autograd.Function):
    """Cut along one dimension, a piece for each rank; what comes is joined along another one. Its derivative is the way back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, comm: Comm, cut: int, cut_sizes: list[int], join: int, join_sizes: list[int]) -> torch.Tensor:
        ctx.arguments = comm, join, join_sizes, cut, cut_sizes
        shapes = [list(x.shape) for _ in join_sizes]
        for shape, size in zip(shapes, join_sizes):
            shape[cut], shape[join] = cut_sizes[comm.rank], size
        pieces = [piece.contiguous().view(-1) for piece in x.detach().split(cut_sizes, cut)]
        parts = torch.cat(pieces).cpu()  # by way of the host, where x is on a device
        counts = [torch.Size(shape).numel() for shape in shapes]
        received = torch.empty(sum(counts), dtype=x.dtype)
        comm.all_to_all(_bytes(parts), [piece.numel() * x.element_size() for piece in pieces],
                        _bytes(received), [count * x.element_size() for count in counts])
        joined = [piece.view(shape) for piece, shape in zip(received.split(counts), shapes)]
        return torch.cat(joined, join).to(x.device)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        return (_Exchange.apply(grad, *ctx.arguments), *[None] * 5)


def _bytes(flat: torch.Tensor) -> Any:
    """A buffer of a tensor on the CPU, of any dtype."""
    return flat.view(torch.uint8).numpy()


def sequence_to_heads(x: torch.Tensor, comm: Comm, lengths: Sequence[int], sequence_dim: int = 1, head_dim: int = 2) -> torch.Tensor:
    """This rank's part of the sequence with all heads → all of the sequence with this rank's heads, in the order of the ranks. lengths: the ranks'
    parts; heads are shared as evenly as can be, the first ranks have one more. Differentiable, twice too. Collective. ValueError."""
    _require(x, comm, sequence_dim, head_dim)
    if len(lengths) != comm.size or x.shape[sequence_dim] != lengths[comm.rank]:
        raise ValueError(f"lengths = {list(lengths)}, and rank {comm.rank} of {comm.size} has {x.shape[sequence_dim]} places of the sequence")
    heads = Message.share(x.shape[head_dim], comm.size)
    return _Exchange.apply(x, comm, head_dim, heads, sequence_dim, list(lengths))


def heads_to_sequence(y: torch.Tensor, comm: Comm, lengths: Sequence[int], heads: int, sequence_dim: int = 1, head_dim: int = 2) -> torch.Tensor:
    """The way back. heads: of all ranks. Differentiable, twice too. Collective. ValueError."""
    _require(y, comm, sequence_dim, head_dim)
    shared = Message.share(heads, comm.size)
    if y.shape[sequence_dim] != sum(lengths) or y.shape[head_dim] != shared[comm.rank]:
        raise ValueError(f"rank {comm.rank} has {y.shape[sequence_dim]} places of the sequence and {y.shape[head_dim]} heads; "
                         f"lengths = {list(lengths)} and {heads} heads in all make {sum(lengths)} and {shared[comm.rank]}")
    return _Exchange.apply(y, comm, sequence_dim, list(lengths), head_dim, shared)


def _require(x: torch.Tensor, comm: Comm, sequence_dim: int, head_dim: int) -> None:
    if not 0 <= sequence_dim < x.dim() or not 0 <= head_dim < x.dim() or sequence_dim == head_dim:
        raise ValueError(f"sequence_dim = {sequence_dim} and head_dim = {head_dim} of a tensor with {x.dim()} dimensions; "
                         "legal are two different ones, counted from 0")
    if x.dtype.is_complex or x.is_sparse:
        raise ValueError(f"a tensor of {x.dtype}, {x.layout}; legal are dense real ones")


# Of each communicator, one for all modules: they are called in one order, and each would have memory of its own.
_duplicates: weakref.WeakKeyDictionary[Comm, Comm] = weakref.WeakKeyDictionary()


class UlyssesAttention(torch.nn.Module):
    """Any attention over sequences that the ranks share.

        attention = UlyssesAttention(torch_attention, comm)
        y = attention(q, k, v)          # this rank's part of the sequence, all heads → the same of the result

    attention(q, k, v, *arguments, **options): gets all of the sequence and this rank's heads, of the same layout, and gives the like of q. comm: of the
    ranks that share sequences, such as Comm.split makes (default: the launcher's processes); it is duplicated. sequence_dim, head_dim: where q, k and v have them. Ranks may have
    parts of different lengths, also in each call; masks and positions are of the whole sequence. Keys and values may have fewer heads than queries, as
    many as there are ranks at least, where both are divisible by the ranks. No heads are copied. Construction and calls are collective, calls
    of several modules in one order on all ranks; so is the backward. ValueError for what does not fit."""

    def __init__(self, attention: Callable[..., torch.Tensor], comm: Comm | None = None, sequence_dim: int = 1, head_dim: int = 2) -> None:
        super().__init__()
        self.attention = attention
        self.given = comm or launched_comm()
        if self.given not in _duplicates:
            _duplicates[self.given] = self.given.duplicate()
        self.comm = _duplicates[self.given]
        self.sequence_dim, self.head_dim = sequence_dim, head_dim

    def __deepcopy__(self, memo: dict[int, Any]) -> UlyssesAttention:
        made = type(self)(copy.deepcopy(self.attention, memo), self.given, self.sequence_dim, self.head_dim)
        return made.train(self.training)

    def _agree(self, tensors: tuple[torch.Tensor, ...]) -> list[list[int]]:
        """The ranks' parts of the sequences; what else is to be the same is compared."""
        rest = [(str(x.dtype), [extent for dim, extent in enumerate(x.shape) if dim != self.sequence_dim]) for x in tensors]
        mine = struct.pack("=4q", *(x.shape[self.sequence_dim] for x in tensors), zlib.crc32(repr(rest).encode()))
        told = list(struct.iter_unpack("=4q", self.comm.all_gather(mine)))
        other = [rank for rank, (*_, rest_of_rank) in enumerate(told) if rest_of_rank != told[0][-1]]
        if other:
            raise ValueError(f"ranks 0 and {other[0]} have tensors of different dtypes, or of different shapes beside the sequence; rank {self.comm.rank} has {rest}")
        if any(k != v for _, k, v, _ in told):
            raise ValueError(f"keys and values have different lengths: (queries, keys, values) = {[lengths for *lengths, _ in told]} by rank")
        return [list(lengths) for lengths in zip(*told)][:3]

    @untraced  # collectives, and memory of this process
    def _to_heads(self, *tensors: torch.Tensor) -> tuple[list[torch.Tensor], list[int]]:
        """All of the sequences with this rank's heads, and the parts of the queries' sequence."""
        heads, ranks = [x.shape[self.head_dim] for x in tensors], self.comm.size
        if min(heads) < ranks:
            raise ValueError(f"{min(heads)} heads on {ranks} ranks: each rank needs one of queries, keys and values")
        if len(set(heads)) > 1 and any(count % ranks for count in heads):
            raise ValueError(f"{heads} heads of queries, keys and values on {ranks} ranks: different numbers have to be divisible by the ranks")
        lengths = self._agree(tensors)
        whole = [sequence_to_heads(x, self.comm, of_x, self.sequence_dim, self.head_dim) for x, of_x in zip(tensors, lengths)]
        return whole, lengths[0]

    @untraced
    def _to_sequence(self, y: torch.Tensor, lengths: list[int], heads: int) -> torch.Tensor:
        return heads_to_sequence(y, self.comm, lengths, heads, self.sequence_dim, self.head_dim)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        whole, lengths = self._to_heads(q, k, v)
        return self._to_sequence(self.attention(*whole, *arguments, **options), lengths, q.shape[self.head_dim])
