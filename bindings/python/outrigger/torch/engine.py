# SPDX-License-Identifier: Apache-2.0
"""The engine around a module, with the names that a DeepSpeed training script uses."""
import contextlib
import logging
import threading
import weakref

import torch

from .. import Engine as LibraryEngine
from .. import lowlevel
from . import backward
from .config import Effective
from .gathering import Gathering
from .gradients import Gradients, make_live
from .names import Names
from .optimizer import ZeroOptimizer
from .parameters import Parameters, give
from .registry import register
from .trees import map_tensors
from .values import Values

log = logging.getLogger("outrigger.torch")


class Engine(Names, Values, torch.nn.Module):
    """A module whose parameters, gradients and states Outrigger keeps. Made by outrigger.torch.initialize."""

    def __init__(self, module, comm, settings, groups, defaults, client=None):
        super().__init__()
        self._library = LibraryEngine(comm, settings.library)
        self.handle = self._library.handle
        self.effective = Effective(self._library.config)
        self.settings = settings
        self.compute_dtype = self.effective.compute_dtype
        stage, shares = self.zero_optimization_stage(), comm.shares_memory and settings.shares
        self._shared = shares and stage > 0 and comm.size > 1
        self._comm, self.world_size, self.global_rank = comm, comm.size, comm.rank
        module.to(self.compute_dtype)
        self.module = module
        self.parameters_of = Parameters(self.handle, module, groups, in_slices=stage == 3 and not shares)
        self._library.commit()
        self.parameters_of.show()
        register(self, self.parameters_of.ids)
        self.gradients = Gradients(self)
        self.optimizer = ZeroOptimizer(self, groups, defaults, client)
        self.lr_scheduler = None
        self.training_dataloader = None
        self.report = None
        self.micro_steps = self.global_steps = self.skipped_steps = 0
        self._pass = None
        self._scale = 1.0
        self._gave = self._reduced = self._step_applied = self.is_compiled = False
        # Where the caller counts the micro-batches, every step ends a window.
        self._boundary, self._window_steps = lowlevel.BOUNDARY_CONFIGURED if settings.managed else lowlevel.BOUNDARY_YES, 0
        self._library.set_boundary(self._boundary)
        self._lock = threading.Lock()
        self._hold_gradients()
        self.gathering = None
        if self.parameters_of.in_slices:
            self.gathering = Gathering(self, module, self.effective("zero_optimization", "stage3_param_persistence_threshold"))
        module.register_load_state_dict_post_hook(lambda *_: self._loaded())

    def __getattr__(self, name):
        """What the engine has not, its module may have."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = super().__getattr__("module")
            if not hasattr(module, name):
                raise AttributeError(f"neither outrigger.torch.Engine nor its module, a {type(module).__name__}, has the name {name!r}; "
                                     "docs/pytorch.md says which of DeepSpeed's it has", name=name, obj=self) from None
            return getattr(module, name)

    # ---- Forward and backward ----

    def forward(self, *inputs, **options):
        inputs, options = backward.inputs(self, (inputs, options))
        if self.settings.casts_inputs:
            inputs, options = map_tensors(lambda tensor: tensor.to(self.compute_dtype), (inputs, options))
        with self._autocast(), self._gathered():
            result = self.module(*inputs, **options)
        return backward.outputs(self, result)

    def _gathered(self):
        return contextlib.nullcontext() if self.gathering is None else self.gathering.forward()

    def _loaded(self):
        self.take_weights()
        if self.gathering is not None:
            self.gathering.loaded()

    def _autocast(self):
        if self.settings.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast("cpu", self.settings.autocast)

    def casts(self, tensor):
        """Whether an input that takes part in autograd is computed with in another dtype: what a float16 engine handed
        out as float32 comes back to another one."""
        return self.compute_dtype == torch.float16 and tensor.dtype == torch.float32

    def compile(self, backend="inductor", compile_kwargs=None, schedule=None, compiled_autograd_enabled=False, **options):
        """torch.compile of the module, in place, with DeepSpeed's arguments or PyTorch's. The engine's own call is not
        traced."""
        if schedule is not None or compiled_autograd_enabled:
            raise NotImplementedError("compile: schedule= (DeepCompile) and compiled_autograd_enabled=True are not supported; leave them out")
        self.module.compile(backend=backend, **(compile_kwargs or {}), **options)
        self.is_compiled = True

    @torch.compiler.disable
    def open_pass(self):
        """The pass that gradients go to now; begun by the first that needs it. Returns the factor that they carry."""
        with self._lock:
            if self._pass is None:
                self._take_what_was_written()
                self._pass = lowlevel.pass_begin(self.handle, [], None)
                self._scale = lowlevel.pass_get_scale(self._pass)
            return self._scale

    def _take_what_was_written(self):
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

    @torch.compiler.disable
    def close_pass(self):
        with self._lock:
            if self._pass is not None:
                lowlevel.pass_end(self._pass)
                self._pass = None
                if self.gathering is not None:
                    self.gathering.pass_closed()

    def _hold_gradients(self):
        engine = weakref.ref(self)

        def hook_of(identity):
            @torch.compiler.disable
            def take(parameter):
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

    def _begin_without_output(self, identity):
        if self.open_pass() != backward.outside():
            raise RuntimeError(f"a gradient of {self._library.parameter_name(identity)!r} did not come through an output of this engine and is not scaled; call the "
                               "engine instead of its module, or engine.backward(loss)")

    def scale(self, loss):
        """loss, on which backward() runs with this engine's loss scale and accumulation factor applied at the root."""
        return backward.scaled(loss, self._run_backward)

    @torch.compiler.disable
    def backward(self, loss, gradient=None, retain_graph=False, scale_wrt_gas=True, **options):
        """Backward through all that `loss` depends on, scaled at the root, and the end of the pass. Returns the loss, divided
        by the accumulation steps if scale_wrt_gas. loss: any shape, with its gradient if it is not a scalar."""
        steps = self.gradient_accumulation_steps()
        arguments = {"gradient": gradient, "retain_graph": retain_graph, **options}
        self._run_backward(backward.scaled(loss), (), arguments, 1 if scale_wrt_gas else steps)
        self.close_pass()
        return loss.detach() / steps if scale_wrt_gas else loss.detach()

    def _run_backward(self, tensor, arguments, options, extra=1):
        with backward.Root(self.open_pass(), extra):
            torch.Tensor.backward(tensor, *arguments, **options)

    def seed_overflowed(self):
        log.warning("a finite gradient of an output overflowed float16 when it was multiplied by the loss scale %g; the step "
                    "will be skipped", self.optimizer.cur_scale)

    @contextlib.contextmanager
    def no_sync(self):
        """Backward passes whose gradients join the window of the next step. Gradients are reduced as always: how often
        does not change what they are."""
        yield

    # ---- Step ----

    @torch.compiler.disable
    def step(self, lr_kwargs=None):
        """Ends a micro-batch; at the last one of a window the parameters are updated. `report` then says what happened."""
        self.optimizer.send_hyperparameters()
        if self._reduced:
            self.gradients.write_back()
        else:
            self.open_pass()
            self.close_pass()
        is_boundary = self.is_gradient_accumulation_boundary()
        self._end_acquires(is_boundary)
        self.report = self._library.step()
        self.micro_steps += 1
        self._window_steps = 0 if is_boundary else self._window_steps + 1
        self._gave = self._reduced = False
        self.gradients.forget()
        self._step_applied = self.report.outcome == lowlevel.STEP_APPLIED
        if not is_boundary:
            return
        self.global_steps += 1
        if self._step_applied:
            self.parameters_of.published()
            self.optimizer.seen()
            if self.lr_scheduler is not None:
                self.lr_scheduler.step(**(lr_kwargs or {}))
        else:
            self.skipped_steps += 1
            log.info("step %d was skipped: %s", self.global_steps, _reason(self))

    @torch.compiler.disable
    def zero_grad(self, set_to_none=True):
        """Forgets the gradients that came since the last step; without any, nothing. All ranks alike."""
        if not self._gave:
            return
        if self._reduced:
            raise RuntimeError("zero_grad: the gradients of this window are summed and shown already (parameter.grad or safe_get_full_grad "
                               "was read); end it with step(), or do not read them before zero_grad")
        if self._window_steps:
            raise RuntimeError(f"zero_grad: {self._window_steps} micro-batches of this accumulation window are summed already and would "
                               "be lost; call it before the window's first backward, or freeze what should get no gradient")
        self._abandon()
        self._gave = False
        self._library.set_boundary(lowlevel.BOUNDARY_YES)
        self._end_acquires()
        self._library.step()
        self._library.set_boundary(self._boundary)

    def _end_acquires(self, is_boundary=True):
        if is_boundary and self.gathering is not None:
            self.gathering.acquires_end()

    def _abandon(self):
        """Leaves a window that the next step discards: a pass is given up with a gradient in it, if only a zero."""
        self.open_pass()
        parameter = self.parameters_of.trainable[0]
        with self._lock:
            lowlevel.pass_add_grad(self._pass, self.parameters_of.ids[parameter], torch.zeros(parameter.shape), None)
            lowlevel.pass_abandon(self._pass)
            self._pass = None

    def is_gradient_accumulation_boundary(self):
        """Whether the next step() ends the window."""
        return lowlevel.engine_get_boundary(self.handle)

    def set_gradient_accumulation_boundary(self, is_boundary):
        """From now on every step() ends its window, or none does."""
        if not self.settings.managed:
            raise RuntimeError("set_gradient_accumulation_boundary: with managed_gradient_accumulation false every step() ends its window; "
                               "call step() there and only there")
        self._boundary = lowlevel.BOUNDARY_YES if is_boundary else lowlevel.BOUNDARY_NO
        self._library.set_boundary(self._boundary)

    def destroy(self):
        """Collective: ends the engine. The module keeps copies of its parameters."""
        if self.gathering is not None:
            self.gathering.end()
        for parameter in self.parameters_of.shown:
            parameter.data = parameter.data.clone()
        self._library.finalize()


def _reason(engine):
    report = engine.report
    if report.reason == lowlevel.SKIP_NONFINITE and report.nonfinite_param >= 0:
        name = engine._library.parameter_name(report.nonfinite_param)
        return f"the gradient of {name!r} is Inf or NaN, first on rank {report.nonfinite_rank}; loss scale {report.loss_scale:g}"
    return {lowlevel.SKIP_NONFINITE: "a gradient is Inf or NaN", lowlevel.SKIP_ABANDONED: "a backward pass was given up",
            lowlevel.SKIP_JOINT: "another engine of the joint step was skipped"}.get(report.reason, f"reason {report.reason}")
