# SPDX-License-Identifier: Apache-2.0
"""An engine's passes: when one begins and ends, and how gradients come to it."""
from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from .. import lowlevel
from . import backward
from .gradients import make_live
from .parameters import give
from .untraced import untraced

if TYPE_CHECKING:
    from .. import Engine as LibraryEngine
    from .gathering import Gathering
    from .optimizer import ZeroOptimizer
    from .parameters import Parameters

log = logging.getLogger("outrigger.torch")


class Passes:
    """One pass is open at a time: from the first call or gradient that needs it until close_pass."""

    handle: lowlevel.Engine
    parameters_of: Parameters
    gathering: Gathering | None
    optimizer: ZeroOptimizer
    _library: LibraryEngine
    _lock: threading.Lock
    _pass: lowlevel.Pass | None
    _scale: float
    _gave: bool
    _shared: bool
    _window_steps: int

    if TYPE_CHECKING:  # of the engine
        def gradient_accumulation_steps(self) -> int: ...
        def take_weights(self, parameters: Any = None) -> None: ...

    @untraced
    def open_pass(self) -> float:
        """The pass that gradients go to now; begun by the first that needs it. Returns the factor that they carry."""
        with self._lock:
            if self._pass is None:
                self._take_what_was_written()
                self._pass = lowlevel.pass_begin(self.handle, [], None)
                self._scale = lowlevel.pass_get_scale(self._pass)
            return self._scale

    def _take_what_was_written(self) -> None:
        written = self.parameters_of.written()
        if written and (self._gave or self._window_steps):
            raise RuntimeError(f"{self.parameters_of.name_of(written[0])!r} was written into between a backward and the step that uses its "
                               "gradients; write before the window's first backward or after its step")
        if written and (self._shared or self.gathering):
            why = ("the ranks of this host share its memory, so each has changed what the others see" if self._shared else
                   "the ranks have it in slices, so what was written is gone")
            raise RuntimeError(f"{self.parameters_of.name_of(written[0])!r} was written into by a rank, and {why}: write inside "
                               "zero.GatheredParameters(…, modifier_rank=0), or use load_state_dict")
        self.take_weights(written)

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

        def hook_of(identity: int) -> Callable[[torch.Tensor], None]:
            @untraced
            def take(parameter: torch.Tensor) -> None:
                owner = engine()
                if owner is None:
                    return
                if owner._pass is None:
                    owner._begin_without_output(identity)
                owner._gave = True
                give(owner._pass, identity, parameter)
                if owner.gathering is not None:
                    owner.gathering.gradient_came(parameter)
            return take

        for parameter in self.parameters_of.trainable:
            make_live(parameter)
            parameter.register_post_accumulate_grad_hook(hook_of(self.parameters_of.ids[parameter]))

    def _begin_without_output(self, identity: int) -> None:
        if self.open_pass() != backward.outside():
            raise RuntimeError(f"a gradient of {self._library.parameter_name(identity)!r} did not come through an output of this engine and is not scaled; call the "
                               "engine instead of its module, or engine.backward(loss)")

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """loss, on which backward() runs with this engine's loss scale and accumulation factor applied at the root."""
        return backward.scaled(loss, self._run_backward)

    @untraced
    def backward(self, loss: torch.Tensor, gradient: torch.Tensor | None = None, retain_graph: bool = False,
                 scale_wrt_gas: bool = True, **options: Any) -> torch.Tensor:
        """Backward through all that `loss` depends on, scaled at the root, and the end of the pass. Returns the loss, divided
        by the accumulation steps if scale_wrt_gas. loss: any shape, with its gradient if it is not a scalar."""
        steps = self.gradient_accumulation_steps()
        arguments = {"gradient": gradient, "retain_graph": retain_graph, **options}
        self._run_backward(backward.scaled(loss), (), arguments, 1 if scale_wrt_gas else steps)
        self.close_pass()
        return loss.detach() / steps if scale_wrt_gas else loss.detach()

    def _run_backward(self, tensor: torch.Tensor, arguments: tuple[Any, ...], options: dict[str, Any], extra: int = 1) -> None:
        with backward.Root(self.open_pass(), extra):
            torch.Tensor.backward(tensor, *arguments, **options)

    def seed_overflowed(self) -> None:
        log.warning("a finite gradient of an output overflowed float16 when it was multiplied by the loss scale %g; the step "
                    "will be skipped", self.optimizer.cur_scale)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes whose gradients join the window of the next step. Gradients are reduced as always: how often
        does not change what they are."""
        yield
