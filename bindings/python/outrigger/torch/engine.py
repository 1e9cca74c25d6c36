# SPDX-License-Identifier: Apache-2.0
"""The engine around a module, with the names that a DeepSpeed training script uses."""
from __future__ import annotations

import contextlib
import logging
import threading
import types
from typing import TYPE_CHECKING, Any

import torch

from .. import Engine as LibraryEngine
from .. import lowlevel
from .. import step_many as _step_many
from . import backward, devices, muon
from .calls import Calls
from .checkpoints import Checkpoints
from .config import Effective
from .gathering import Gathering
from .gradients import Gradients
from .held import Held, Hook, guard_registrations, show
from .host_optimizer import HostOptimizer
from .moved import Moved
from .names import Names
from .optimizer import ZeroOptimizer
from .owned import mixed, register, unregister
from .parameters import Parameters
from .passes import Passes
from .pytorch import untraced
from .trees import map_tensors
from .unfinished import Unfinished
from .values import Values

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from .. import Comm
    from ..watch import Writer
    from .config import Settings

log = logging.getLogger("outrigger.torch")


class Engine(Unfinished, Checkpoints, Moved, Names, Passes, Values, torch.nn.Module):
    """A module whose parameters, gradients and states Outrigger keeps. Made by outrigger.torch.initialize. Called as the module
    is; what it has not, it takes from the module.

    Collective calls (step, read, write, reduce, take_weights, destroy) raise OutriggerError as outrigger.Engine does, and
    KeyboardInterrupt for Ctrl-C in a wait. RuntimeError: a call in the wrong place of a window; its text names the right one."""

    def __init__(self, module: torch.nn.Module, comm: Comm, settings: Settings, groups: list[dict[str, Any]],
                 defaults: dict[str, Any], client: torch.optim.Optimizer | None = None) -> None:
        super().__init__()
        self._device = devices.of(module.parameters())
        self._library = LibraryEngine(comm, settings.library)
        self.handle = self._library.handle
        if self._device.place is not None:
            lowlevel.engine_set_device(self.handle, *self._device.place)
        self.effective = Effective(self._library.config)
        self.settings = settings
        self.compute_dtype = self.effective.compute_dtype
        stage, shares = self.zero_optimization_stage(), comm.shares_memory and settings.shares and self._device.place is None
        in_slices = stage == 3 and not shares and (self._device.place is None or comm.size > 1)
        offloaded = self._device.place is not None and self.effective("zero_optimization", "offload_param", "device") == "cpu"
        # A parameter is gathered without the other ranks.
        self.gathers_alone = offloaded and (comm.size == 1 or comm.shares_memory and settings.shares)
        self._shared = shares and stage > 0 and comm.size > 1
        self._comm, self.world_size, self.global_rank = comm, comm.size, comm.rank
        self.module = module
        if self.optimizer_name() == "Muon":
            groups = muon.halves(groups, module, self.effective)
        self.parameters_of = Parameters(self.handle, module, groups, in_slices, offloaded, self._device)
        self._library.commit()
        self.parameters_of.move(module, self.compute_dtype)
        # Whether gradients inside carry a factor: float16 is scaled, and all else divides at the step unless it is told not to.
        divides = self.effective("outrigger", "accumulation_divisor") == "configured" and self.gradient_accumulation_steps() > 1
        self.scales = divides or torch.float16 in (self.compute_dtype, settings.autocast)
        self.calls = Calls(self, module) if self.scales else None
        register(self, self.parameters_of.ids)
        guard_registrations()
        for each in self.parameters_of.ids:
            if not isinstance(each, Held):
                each.__class__ = mixed(type(each), Held)
        self.gradients = Gradients(self)
        is_hosts = self.optimizer_name() == "Host"
        self.optimizer: ZeroOptimizer = (HostOptimizer(self, groups, defaults, client) if is_hosts else
                                         ZeroOptimizer(self, groups, defaults, client))
        self.lr_scheduler = None
        self.training_dataloader: torch.utils.data.DataLoader[Any] | None = None
        self.report = None
        self._grad_norm = None
        self.global_steps = self.skipped_steps = 0
        self._micro_steps = self.backwards = 0
        self._entered = False  # a backward has come to an output, and to no parameter yet
        self._coalescing = False
        self._losses: list[torch.Tensor] = []  # of the window, where somebody watches
        self._extra = 1  # a factor of the gradients of the backward that runs
        self._pass: lowlevel.Pass | None = None
        self._scale = 1.0
        self._gave = self._reduced = self._step_applied = self.is_compiled = False
        # Where the caller counts the micro-batches, every step ends a window.
        self._boundary: int = lowlevel.BOUNDARY_CONFIGURED if settings.managed else lowlevel.BOUNDARY_YES
        self._window_steps = 0
        self._library.set_boundary(self._boundary)
        self._lock = threading.Lock()
        self._hold_gradients()
        self.gathering: Gathering | None = None
        if self.parameters_of.gathered:
            self.gathering = Gathering(self, module)
        module.register_load_state_dict_post_hook(Hook(self, "loaded"))

    def __getattr__(self, name: str) -> Any:
        """What the engine has not, its module may have."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = super().__getattr__("module")
            if not hasattr(module, name):
                raise AttributeError(f"neither outrigger.torch.Engine nor its module, a {type(module).__name__}, has the name {name!r}; "
                                     f"{self.lacks(name)}", name=name, obj=self) from None
            return getattr(module, name)

    # ---- Forward and backward ----

    def forward(self, *inputs: Any, **options: Any) -> Any:
        self._require_here()
        given = backward.versions((inputs, options)) if self.scales else []
        (inputs, options), entered = backward.inputs(self, (inputs, options))
        if self.settings.casts_inputs:
            inputs, options = map_tensors(self._cast, (inputs, options))
        with self._autocast(), self._gathered(), self._called(entered):
            result = self.module(*inputs, **options)
        backward.require_unwritten(given)
        if self.scales and isinstance(result, types.GeneratorType):
            raise RuntimeError("the module's forward is a generator, whose body would run outside of the call that scales its gradients; return "
                               "a list")
        return backward.outputs(self, result, entered)

    def _gathered(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self.gathering is None else self.gathering.forward()

    def _called(self, entered: list[Any]) -> contextlib.AbstractContextManager[Any]:
        if self.calls is None:
            return contextlib.nullcontext()
        self.calls.entered = entered
        return self.calls

    def loaded(self, module: torch.nn.Module, incompatible_keys: Any) -> None:
        """After load_state_dict."""
        self.take_weights()
        if self.gathering is not None:
            self.gathering.loaded()

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.compute_dtype) if tensor.is_floating_point() else tensor

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.settings.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device.device.type, self.settings.autocast)

    def casts(self, tensor: torch.Tensor) -> bool:
        """Whether an input that takes part in autograd is computed with in another dtype: what a float16 engine handed
        out as float32 comes back to another one."""
        return self.compute_dtype == torch.float16 and tensor.dtype == torch.float32

    def compile(self, backend: Any = "inductor", compile_kwargs: dict[str, Any] | None = None, schedule: object = None,
                compiled_autograd_enabled: bool = False, **options: Any) -> None:
        """torch.compile of the module, in place, with DeepSpeed's arguments or PyTorch's. The engine's own call is not
        traced."""
        if schedule is not None or compiled_autograd_enabled:
            raise NotImplementedError("compile: schedule= (DeepCompile) and compiled_autograd_enabled=True are not supported; leave them out")
        self.module.compile(backend=backend, **(compile_kwargs or {}), **options)
        self.is_compiled = True

    # ---- Step ----

    @untraced
    def step(self, lr_kwargs: dict[str, Any] | None = None, wait: bool = True) -> None:
        """Ends a micro-batch; at the last one of a window the parameters are updated. `report` then says what happened.

        wait: False: where all parameters of a device are in host memory (offload_param), returns at once, and the next forward begins with the
        first parameters while others are updated. What is asked of the engine besides (its backward, `report`, values, a checkpoint) waits for the step, and
        raises its failure; the scheduler's step is taken then. Elsewhere the step is over when this returns."""
        is_boundary = self._before_step()
        if is_boundary and not wait and not self.parameters_of.shown and self.optimizer_name() != "Host":
            self._begin_step(lr_kwargs)
            self.parameters_of.changed()
            self._end_micro_batch(is_boundary)
        else:
            self._after_step(self._library.step(), is_boundary, lr_kwargs)

    def _before_step(self) -> bool:
        """All of step() that comes before the library's. Returns whether the window ends."""
        self.wait_step()
        if self._coalescing:
            raise RuntimeError("step() inside coalesce_grad_reduction(): end the block first")
        self.optimizer.send_hyperparameters()
        if self._reduced:
            self.gradients.write_back()
        else:
            self.open_pass()
            self.close_pass()
        is_boundary = self.is_gradient_accumulation_boundary()
        if is_boundary:
            self._complete_gradients()
            self._note_loss()
        self._end_acquires(is_boundary)
        if is_boundary:
            self.optimizer.update()
            self.parameters_of.come_after()
        return is_boundary

    def _after_step(self, report: lowlevel.StepReport, is_boundary: bool, lr_kwargs: dict[str, Any] | None = None) -> None:
        """All of step() that comes after the library's."""
        self._end_micro_batch(is_boundary)
        if not is_boundary:
            self.report, self._step_applied = report, False
            return
        if report.outcome == lowlevel.STEP_APPLIED:
            self.parameters_of.published()
        self._heard(report, lr_kwargs)

    def _end_micro_batch(self, is_boundary: bool) -> None:
        """Whatever comes of the step."""
        self._micro_steps += 1
        self._window_steps = 0 if is_boundary else self._window_steps + 1
        self._gave = self._reduced = False
        self.gradients.forget()
        if is_boundary:
            self.global_steps += 1
            if self.calls is not None:
                self.calls.forget()

    def _heard(self, report: lowlevel.StepReport, lr_kwargs: dict[str, Any] | None) -> None:
        """What came of a step that ended a window."""
        self.report, self._step_applied = report, report.outcome == lowlevel.STEP_APPLIED
        self._library.set_boundary(self._boundary)
        self._grad_norm = report.grad_norm
        if self._step_applied:
            self.optimizer.seen()
            if self.lr_scheduler is not None:
                self.lr_scheduler.step(**(lr_kwargs or {}))
        else:
            self.skipped_steps += 1
            log.info("step %d was skipped: %s", self.global_steps, _reason(self, report))
        every = self.steps_per_print()
        if every is not None and self.global_rank == 0 and self.global_steps % every == 0:
            log.info("step=%d, skipped=%d, lr=%s", self.global_steps, self.skipped_steps, self.get_lr())

    @untraced
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients that came since the last step, shown or not; without any, nothing. Collective."""
        if not (self._gave or self.gradients.is_waiting):
            self.gradients.forget()
            return
        if self._window_steps:
            raise RuntimeError(f"zero_grad: {self._window_steps} micro-batches of this accumulation window are summed already and would "
                               "be lost; call it before the window's first backward, or freeze what should get no gradient")
        self.close_pass()
        if self._gave:
            self._library.discard()
        self._gave = self._reduced = False
        self._losses.clear()
        self.gradients.forget()

    def is_window_empty(self) -> bool:
        """Whether no gradient came since the last update."""
        return not (self._gave or self._window_steps or self.gradients.is_waiting)

    @property
    def micro_steps(self) -> int:
        """step() calls; with managed_gradient_accumulation false backwards."""
        return self._micro_steps if self.settings.managed else self.backwards

    def _complete_gradients(self) -> None:
        """Before an update."""
        requires_all = not self.effective("zero_optimization", "ignore_unused_parameters") and not self.is_window_empty()
        if not self._reduced and (requires_all or self.gradients.is_waiting):
            self._reduce_now()
        if requires_all:
            missing = [self.parameters_of.name_of(each) for each in self.parameters_of.trainable
                       if each.requires_grad and not self._library.has_grad(self.id_of(each))]
            if missing:
                raise RuntimeError(f"no rank gave a gradient to {', '.join(map(repr, missing))} in this window, and "
                                   "zero_optimization.ignore_unused_parameters is false: use them, freeze them before initialize, or set "
                                   "ignore_unused_parameters to true")

    def note_loss(self, loss: torch.Tensor) -> None:
        """A loss of the window, whose mean the record gets."""
        if self._library.is_watched and loss.numel() == 1:
            self._losses.append(loss.detach().reshape(()))

    def _note_loss(self) -> None:
        if self._losses:
            self._library.note(loss=float(torch.stack(self._losses).double().mean()))
            self._losses.clear()

    def watch(self, writer: Writer | None = None, *, records: str | os.PathLike[str] | None = None, trace: str | os.PathLike[str] | None = None,
              name: str | None = None) -> None:
        """Makes records of this rank's steps, for a writer of outrigger.watch, files of JSON lines and a trace: as outrigger.Engine.watch. Their
        "loss" is the mean of what backward() was given in the window."""
        self._library.watch(writer, records=records, trace=trace, name=name)

    def note(self, **values: float) -> None:
        """Gives the next record numbers of the caller's: note(accuracy=0.5)."""
        self._library.note(**values)

    def _end_acquires(self, is_boundary: bool = True) -> None:
        if is_boundary and self.gathering is not None:
            self.gathering.acquires_end()

    def is_gradient_accumulation_boundary(self) -> bool:
        """Whether the next step() ends the window."""
        return lowlevel.engine_get_boundary(self.handle)

    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None:
        """From now on every step() ends its window, or none does."""
        if not self.settings.managed:
            raise RuntimeError("set_gradient_accumulation_boundary: with managed_gradient_accumulation false every step() ends its window; "
                               "call step() there and only there")
        self._boundary = lowlevel.BOUNDARY_YES if is_boundary else lowlevel.BOUNDARY_NO
        self._library.set_boundary(self._boundary)

    def destroy(self) -> None:
        """Collective: ends the engine. The module keeps copies of its parameters."""
        self.wait_step()
        if self.gathering is not None:
            self.gathering.end()
        for parameter in self.parameters_of.shown:
            show(parameter, parameter.data.clone())
        unregister(self.parameters_of.ids)
        self._library.finalize()


@untraced
def step_many(engines: Sequence[Engine], joint: Comm | None = None) -> None:
    """The step that ends a window, of several engines as one: all are updated or none, and one norm over all of them clips them. Each has its
    `report`. joint: a Comm of the ranks of all of them, where they have different engines; each rank gives those that it has. Collective over all of
    them. RuntimeError: the next step of an engine ends no window; NotImplementedError: an optimizer of PyTorch makes its updates; OutriggerError
    E_ABORTED: a rank could not take part, and nothing was updated."""
    for engine in engines:
        if engine.optimizer_name() == "Host":
            raise NotImplementedError("step_many: an optimizer of PyTorch would update before all agree; name a rule in the configuration's \"optimizer\"")
        if not engine.is_gradient_accumulation_boundary():
            raise RuntimeError("step_many: the next step of an engine ends no accumulation window; call its step() for the micro-batches before the last")
    for engine in engines:
        engine._before_step()
    reports = _step_many([engine._library for engine in engines], joint)
    for engine, report in zip(engines, reports):
        engine._after_step(report, is_boundary=True)


def _reason(engine: Engine, report: lowlevel.StepReport) -> str:
    if report.reason == lowlevel.SKIP_NONFINITE and report.nonfinite_param >= 0:
        name = engine._library.parameter_name(report.nonfinite_param)
        return f"the gradient of {name!r} is Inf or NaN, first on rank {report.nonfinite_rank}; loss scale {report.loss_scale:g}"
    return {lowlevel.SKIP_NONFINITE: "a gradient is Inf or NaN", lowlevel.SKIP_ABANDONED: "a backward pass was given up",
            lowlevel.SKIP_OUTLIER: "the gradient norm is far beyond the last ones",
            lowlevel.SKIP_JOINT: "another engine of the joint step was skipped"}.get(report.reason, f"reason {report.reason}")
