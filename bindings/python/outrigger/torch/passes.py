# SPDX-License-Identifier: Apache-2.0
"""An engine's passes: when one begins and ends, and how gradients come to it."""
from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from .. import lowlevel
from . import outer
from .factors import times
from .gradients import make_live, take
from .owned import engine_of
from .parameters import give
from .pytorch import untraced

if TYPE_CHECKING:
    from .. import Engine as LibraryEngine
    from .calls import Calls
    from .config import Effective
    from .devices import Device
    from .gathering import Gathering
    from .gradients import Gradients
    from .optimizer import ZeroOptimizer
    from .parameters import Parameters

log = logging.getLogger("outrigger.torch")


class Passes:
    """One pass is open at a time: from the first call or gradient that needs it until close_pass."""

    handle: lowlevel.Engine
    parameters_of: Parameters
    _device: Device
    gathering: Gathering | None
    optimizer: ZeroOptimizer
    calls: Calls | None
    _library: LibraryEngine
    _lock: threading.Lock
    _pass: lowlevel.Pass | None
    _scale: float
    _gave: bool
    _reduced: bool
    _shared: bool
    _window_steps: int
    _entered: bool
    _extra: int
    _coalescing: bool
    scales: bool
    backwards: int
    world_size: int
    effective: Effective
    gradients: Gradients

    if TYPE_CHECKING:  # of the engine
        def gradient_accumulation_steps(self) -> int: ...
        def wait_step(self) -> None: ...
        def note_loss(self, loss: torch.Tensor) -> None: ...
        def set_value(self, parameter: torch.Tensor, source: torch.Tensor, value: int) -> None: ...

    @untraced
    def open_pass(self) -> float:
        """The pass that gradients go to now; begun by the first that needs it. Returns the factor that they carry."""
        self.wait_step()
        with self._lock:
            if self._pass is None:
                self._take_what_was_written()
                if self._reduced:
                    self._go_on_after_reading()
                self._pass = lowlevel.pass_begin(self.handle, [], self._device.info())
                self._scale = lowlevel.pass_get_scale(self._pass)
                for parameter, value in self.gradients.assigned():
                    # Once the step has divided by scale and accumulation steps, it is what was set.
                    self._hand_over(parameter, value.detach() * (self._scale * self.gradient_accumulation_steps()))
            return self._scale

    def enter_backward(self) -> float:
        """open_pass, from a node that a backward enters the engine by."""
        self._entered = True
        if self.calls is not None:
            self.calls.backward_came()
        return self.open_pass()

    def _go_on_after_reading(self) -> None:
        if self.effective("outrigger", "accumulation_divisor") == "counted":
            raise RuntimeError("a gradient was read or set, which ends the window, and with outrigger.accumulation_divisor \"counted\" no backward "
                               "can follow it: call step() first")
        self.gradients.carry()

    def forget_window(self) -> None:
        """The library forgets the window, whose last micro-batch this was. Collective."""
        self._library.discard()
        self._library.set_boundary(lowlevel.BOUNDARY_YES)
        self._reduced = self._gave = False

    def _take_what_was_written(self) -> None:
        written = self.parameters_of.written()
        if written and (self._gave or self._window_steps):
            raise RuntimeError(f"{self.parameters_of.name_of(written[0])!r} was written into between a backward and the step that uses its "
                               "gradients; write before the window's first backward or after its step")
        if written and (self._shared or self.gathering):
            why = ("the ranks of this host share its memory, so each has changed what the others see" if self._shared else
                   f"it is {self.gathering.place}, so what was written is gone")
            raise RuntimeError(f"{self.parameters_of.name_of(written[0])!r} was written into by a rank, and {why}: write inside "
                               "zero.GatheredParameters(…, modifier_rank=0), or use load_state_dict")
        for parameter in written:
            own = parameter.detach().clone()
            self.set_value(parameter, own, lowlevel.VALUE_MASTER)
            if not torch.equal(own, parameter.detach()):  # rank 0 has written something else
                torch.autograd.graph.increment_version(parameter)
            self.parameters_of.noted(parameter)

    @untraced
    def close_pass(self) -> None:
        with self._lock:
            if self._pass is not None:
                lowlevel.pass_end(self._pass)
                self._pass = None
                if self.gathering is not None:
                    self.gathering.pass_closed()

    def _hold_gradients(self) -> None:
        engine = weakref.ref(self)

        @untraced
        def came(parameter: torch.Tensor) -> None:
            owner = engine()
            if owner is not None and engine_of(parameter) is owner:  # not after destroy()
                owner._take(parameter)

        for parameter in self.parameters_of.trainable:
            make_live(parameter, self, came)

    def _take(self, parameter: torch.Tensor) -> None:
        """A gradient that autograd has put into its parameter."""
        if self._pass is None:
            self._begin_without_output(parameter)
        if self._entered:
            self._entered = False
            self.backwards += 1
        grad = self.gradients.seen_by_hooks(parameter, take(parameter))
        if grad is not None:
            self._hand_over(parameter, grad if self._extra == 1 else grad * self._extra)
        if self.gathering is not None:
            self.gathering.gradient_came(parameter)

    def _hand_over(self, parameter: torch.Tensor, grad: torch.Tensor) -> None:
        self._gave = True
        give(self._pass, self.parameters_of.ids[parameter], grad, self._device)

    def _begin_without_output(self, parameter: torch.Tensor) -> None:
        if self.enter_backward() != 1:
            raise RuntimeError(f"a gradient of {self.parameters_of.name_of(parameter)!r} did not come through an output of this engine and is not "
                               "scaled; call the engine instead of its compiled module")

    @property
    def tag(self) -> lowlevel.CallInfo:
        """What a gradient carries that leaves this engine, such as an input's, for the backward of engines elsewhere: no loss scale, no division by the
        accumulation steps, and the ranks that the sum is still to be divided by. Who changes the gradient changes the tag."""
        tag = lowlevel.CallInfo()
        tag.loss_scale, tag.accumulation, tag.ranks = 1.0, 0, self.world_size if self.effective("gradient_allreduce_op") == "mean" else 1
        return tag

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """loss; its backward() cares for float16 outside of this engine as engine.backward does."""
        result = loss.view_as(loss)
        result.backward = lambda *arguments, **options: self._run_backward(result, *arguments, **options)  # type: ignore[method-assign]
        return result

    @untraced
    def backward(self, loss: torch.Tensor, gradient: torch.Tensor | None = None, retain_graph: bool = False,
                 scale_wrt_gas: bool = True, *, tag: lowlevel.CallInfo | None = None, **options: Any) -> torch.Tensor:
        """Backward through all that `loss` depends on, and the end of the pass. Returns the loss, divided by the accumulation
        steps if scale_wrt_gas; if not, the caller has divided it, and this engine's gradients are not divided again. loss: any
        shape, with its gradient if it is not a scalar. tag: what was applied to that gradient, if it comes from engines of other ranks (the `tag`
        there, or a Message's); what it says is taken out, and what is missing applied. ValueError: a tag without a gradient."""
        steps = self.gradient_accumulation_steps()
        if tag is not None and gradient is None:
            raise ValueError("backward: tag= says what a gradient carries, and there is no gradient=")
        if tag is not None and tag.loss_scale != 0:  # 0: no tag
            ranks = self.tag.ranks / tag.ranks if tag.ranks else 1.0
            gradient = times(gradient, ranks / tag.loss_scale, loss.dtype)
            scale_wrt_gas = scale_wrt_gas and tag.accumulation == 0
        self._extra = 1 if scale_wrt_gas else steps
        try:
            self._run_backward(loss, gradient, retain_graph=retain_graph, **options)
        finally:
            self._extra = 1
        self.close_pass()
        if gradient is None:
            self.note_loss(loss if scale_wrt_gas else loss.detach() * steps)
        return loss.detach() / steps if scale_wrt_gas else loss.detach()

    def _run_backward(self, tensor: torch.Tensor, gradient: torch.Tensor | None = None, *arguments: Any, **options: Any) -> None:
        with outer.prepared(self, tensor) if self.scales else contextlib.nullcontext(1) as factor:
            if factor != 1:
                gradient = (torch.ones_like(tensor) if gradient is None else gradient) * factor
            torch.Tensor.backward(tensor, gradient, *arguments, **options)

    def seed_overflowed(self) -> None:
        log.warning("a finite gradient of an output overflowed float16 when it was multiplied by the loss scale %g; the step "
                    "will be skipped", self.optimizer.cur_scale)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes whose gradients join the window of the next step. Gradients are reduced as always: how often
        does not change what they are."""
        yield

    @contextlib.contextmanager
    def coalesce_grad_reduction(self) -> Iterator[None]:
        """Several backward passes of one step, as DeepSpeed coalesces their reductions. As in no_sync nothing changes.
        RuntimeError: step() inside, or one block in another."""
        if self._coalescing:
            raise RuntimeError("coalesce_grad_reduction: one block is inside another of this engine; one is enough")
        self._coalescing = True
        try:
            yield
        finally:
            self._coalescing = False
