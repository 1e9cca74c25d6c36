# SPDX-License-Identifier: Apache-2.0
"""Pass: one backward pass."""
from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, overload

from . import lowlevel
from .arrays import new_float32, view_of
from .handle import Handle, options_of

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Unpack

    from .arrays import Array, Float32Array, Tensor

T = TypeVar("T", bound="Tensor")


def tagged(tag: lowlevel.CallInfo | None, info: lowlevel._CallInfo) -> lowlevel.CallInfo | None:
    made = options_of(lowlevel.CallInfo, info)
    if tag is not None:
        made = made or lowlevel.CallInfo()
        made.loss_scale, made.accumulation, made.ranks = tag.loss_scale, tag.accumulation, tag.ranks
    return made


class Pass(Handle[lowlevel.Pass]):
    """One backward pass, from Engine.begin_pass. As a context manager it ends on a normal exit and is abandoned on an
    exception."""

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        try:
            if kind is None:
                self.end()
            else:
                self.abandon()  # an array of it may live on in the traceback, and close() waits for that
        finally:
            self.close()

    @property
    def scale(self) -> float:
        """The factor that output gradients carry: loss scale / accumulation steps."""
        return lowlevel.pass_get_scale(self.handle)

    def output_grad(self, index: int = 0) -> Array:
        """The scaled gradient of an output: its shape, float32 (or as flags=PASS_KEEP_DTYPE says), writable; valid until
        the pass ends."""
        return view_of(lowlevel.pass_get_output_grad(self.handle, index))

    @property
    def tag(self) -> lowlevel.CallInfo:
        """What this pass's gradients carry, for begin_pass of the engine that made the inputs."""
        info = lowlevel.CallInfo()
        lowlevel.pass_get_tag(self.handle, info)
        return info

    @property
    def seed_overflow(self) -> int:
        """The first output whose gradient overflowed when it was scaled; -1: none."""
        return lowlevel.pass_get_seed_overflow(self.handle)

    @overload
    def unscale(self, grad: Tensor) -> Float32Array: ...
    @overload
    def unscale(self, grad: Tensor, out: T) -> T: ...

    def unscale(self, grad, out=None):  # type: ignore[no-untyped-def]
        """grad without the factor that this pass applied, in `out` (the same shape, any floating dtype) or a new float32
        array. OutriggerError E_SHAPE: the shapes differ."""
        if out is None:
            import numpy as np
            out = new_float32(np.shape(grad))
        lowlevel.pass_unscale(self.handle, grad, out)
        return out

    def slot(self, id: int) -> Array:
        """A writable array to put a gradient into and to hand back through add_grad: the parameter's shape, the compute
        dtype, uninitialised; valid until then."""
        return view_of(lowlevel.pass_get_slot(self.handle, id))

    def add_grad(self, id: int, grad: Tensor, tag: lowlevel.CallInfo | None = None,
                 **info: Unpack[lowlevel._CallInfo]) -> None:
        """Adds a gradient to a parameter: its slot, or any tensor of the parameter's shape, float32, bfloat16, float16 or
        float64, which is copied. Contributions add. tag: another pass's, if the gradient carries other factors. Any thread.
        OutriggerError: E_STATE (frozen, or the pass is over), E_SHAPE."""
        lowlevel.pass_add_grad(self.handle, id, grad, tagged(tag, info))

    def end(self) -> None:
        """Parameters without a gradient count as zero on this rank. Local."""
        lowlevel.pass_end(self.handle)

    def abandon(self) -> None:
        """Gives the pass up: the next step discards the window, unless nothing was added. After the end: nothing."""
        lowlevel.pass_abandon(self.handle)
