# SPDX-License-Identifier: Apache-2.0
"""Parameters between zero.Init and initialize: each rank keeps a slice, and the whole is there while a module is built or used.

A parameter keeps its address: a mapping of its own, whose pages go when it is sliced and come when a function of PyTorch is
called with it (`__torch_function__`), which is collective. Those of one module are whole at a time; what a program holds an
alias of stays whole. Where ranks have written different values, rank 0's win."""
from __future__ import annotations

import contextlib
import functools
import hashlib
import mmap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from .held import Copied
from .owned import Partitioned, mixed, next_id
from .pytorch import METADATA
from .trees import among

if TYPE_CHECKING:
    from .. import Comm

_Tensor: Any = torch.Tensor
_SET_DATA = _Tensor.data.__set__
_NAME = "_outrigger_slice"
LEAST_BYTES = 1 << 16  # smaller ones stay whole


class _Sharded(Copied, Partitioned):
    @property
    def _where(self) -> Slice | None:
        return slice_of(self)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function not in METADATA:
            for each in among(_Sharded, (args, kwargs or {})):
                own = slice_of(each)
                if own is not None:
                    own.use()
        result = super().__torch_function__(function, (), args, kwargs or {})  # type: ignore[misc]
        own = slice_of(args[0]) if function == _SET_DATA else None
        if own is not None:
            own.replaced()
        return result


def slice_of(parameter: Any) -> Slice | None:
    """None: the parameter is a plain one."""
    found: Slice | None = getattr(parameter, _NAME, None)
    return found


class Slices:
    """Those of a group of ranks."""

    def __init__(self, comm: Comm) -> None:
        self.comm = comm
        self.whole: list[Slice] = []

    def add(self, module: torch.nn.Module, name: str, parameter: torch.Tensor | None) -> None:
        """A parameter that a module has got. Collective where it is large."""
        if parameter is None or parameter.is_meta or not parameter.is_floating_point():
            return
        if parameter.numel() * parameter.element_size() < LEAST_BYTES:
            return
        known = slice_of(parameter) or Slice(self, parameter, id(module))
        self.settle(known.module)

    def settle(self, module: int | None = None) -> None:
        """Slices all but what is of this module, is pinned or has aliases. Collective."""
        for each in list(self.whole):
            if each.module != module and each.may_settle():
                each.settle()


class Slice:
    """module: which the parameter was made in. pins: blocks that want it whole."""

    def __init__(self, slices: Slices, parameter: torch.Tensor, module: int) -> None:
        self.module, self.pins, self._id = module, 0, next_id()
        self._slices, self._parameter, self._kind = slices, parameter, type(parameter)
        self._mine: torch.Tensor | None = None  # this rank's part
        self._hash = b""  # of the whole that it is of
        whole = parameter.detach()
        self._map(whole).copy_(whole)
        setattr(parameter, _NAME, self)
        parameter.__class__ = mixed(self._kind, _Sharded)
        slices.whole.append(self)

    def _map(self, like: torch.Tensor) -> torch.Tensor:
        """The parameter's memory from now on."""
        self._pages = mmap.mmap(-1, like.numel() * like.element_size(), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        mapped = torch.frombuffer(self._pages, dtype=like.dtype).view(like.shape)
        self._start = mapped.data_ptr()
        with torch._C.DisableTorchFunctionSubclass():
            self._parameter.data = mapped
        return mapped

    def has(self, parameter: torch.Tensor) -> bool:
        """Whether its values are there now."""
        return self in self._slices.whole

    def id_of(self, parameter: torch.Tensor) -> int:
        """Its ds_id."""
        return self._id

    @property
    def held_bytes(self) -> int:
        count = self._parameter.numel() if self._mine is None else self._mine.numel()
        return count * self._parameter.element_size()

    def values(self) -> torch.Tensor:
        """The whole. Collective where it is not there."""
        self.use()
        return self._raw()

    def _raw(self) -> torch.Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            return self._parameter.detach()

    def _part(self, rank: int) -> slice:
        count = self._parameter.numel()
        each = -(-count // self._slices.comm.size)
        return slice(min(count, rank * each), min(count, (rank + 1) * each))

    def may_settle(self) -> bool:
        return not self.pins and _uses(self._parameter) <= _uses_alone()

    def use(self) -> None:
        """Makes it whole. Collective where it is not."""
        if self not in self._slices.whole:
            comm, flat = self._slices.comm, self._raw().view(-1)
            assert self._mine is not None
            flat[self._part(comm.rank)] = self._mine
            for rank in range(comm.size):
                part = flat[self._part(rank)]
                if part.numel():
                    comm.broadcast(part.view(torch.uint8).numpy(), rank)
            self._slices.whole.append(self)
        self._slices.settle(self.module)

    @contextlib.contextmanager
    def pinned(self) -> Iterator[None]:
        """A block in which it is whole. Collective."""
        self.use()
        self.pins += 1
        try:
            yield
        finally:
            self.pins -= 1

    def replaced(self) -> None:
        """`parameter.data` was set."""
        if self not in self._slices.whole:
            self._slices.whole.append(self)

    def settle(self) -> None:
        """Keeps this rank's slice only. Collective."""
        comm, whole = self._slices.comm, self._raw()
        if not whole.is_contiguous():
            whole = whole.contiguous()
        bits = whole.view(-1).view(torch.uint8).numpy()
        mine = _hash(bits)
        every = comm.all_gather(bytearray(mine))
        if every != mine * comm.size:
            comm.broadcast(bits, 0)
            mine = _hash(bits)
        if self._mine is None or mine != self._hash:
            self._mine, self._hash = whole.view(-1)[self._part(comm.rank)].clone(), mine
        self._slices.whole.remove(self)
        if whole.data_ptr() == self._start:
            self._pages.madvise(mmap.MADV_DONTNEED)
        else:  # the program has set .data
            self._map(whole)

    def end(self) -> None:
        """The parameter is a plain one from now on."""
        if self in self._slices.whole:
            self._slices.whole.remove(self)
        delattr(self._parameter, _NAME)
        self._parameter.__class__ = self._kind


def _uses(parameter: torch.Tensor) -> int:
    """Of its memory: by the parameter, by this question, and by aliases."""
    with torch._C.DisableTorchFunctionSubclass():
        return torch._C._storage_Use_Count(parameter.detach().untyped_storage()._cdata)


@functools.cache
def _uses_alone() -> int:
    alone = torch.nn.Parameter(torch.empty(1))
    alone.data = torch.empty(1)
    return _uses(alone)


def _hash(bits: Any) -> bytes:
    return hashlib.blake2b(bits, digest_size=16).digest()
