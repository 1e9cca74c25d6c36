# SPDX-License-Identifier: Apache-2.0
"""AdamW for any training loop of PyTorch, with its states and its update on the host."""
from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import ParamsT

from .. import Context, Optimizer, lowlevel
from .offload_copies import Copies, copies_of
from .offload_gradients import Gradient, Room, Staging
from .offload_states import States
from .offload_tensors import differ, local_of, norm_over, sharded_groups
from .parameters import hyperparameters, rule_of
from .shards import MOMENTS, loss_of

_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_RUN = 1 << 22  # elements of a device's parameters that are updated at once, while the next ones come down
# Of torch.optim.AdamW; what no value of theirs but this can be right for, and what to do instead.
_REFUSED = {"amsgrad": "leave it out; the library's AdamW keeps no maximum of the second moment",
            "capturable": "leave it out; an update on the host is in no CUDA graph",
            "differentiable": "leave it out; an update on the host has no graph"}


class _Run(NamedTuple):
    """Parameters that one call of the library updates."""
    rule: Optimizer
    group: dict[str, Any]
    states: list[States]
    gradients: list[Gradient]


class _Saved:
    """A parameter's part of a state_dict, which PyTorch shall hand through as it is."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state


class OffloadedAdamW(torch.optim.Optimizer):
    """torch.optim.AdamW with masters and moments in the host's memory; docs/offload.md has the details.

    Parameters: float32, bfloat16 or float16, plain or DTensors (FSDP2), on the CPU or on a device that PyTorch has streams for.
    states, seed: formats and roundings of "master", "exp_avg" and "exp_avg_sq", as of an optimizer without an engine
    (docs/configuration.md); the master of a 16-bit parameter is by default exactly float32. max_norm: gradients are clipped to
    this norm over all parameters and ranks, in step(); one with Inf or NaN in it is left out. gradient_buffer: so many bytes of
    the host's memory at most for gradients that come down during backward (None: room for all). workers: threads of the update.

    overlap may be changed at any time; False: gradients come down in step(), not during backward. grad_norm: of the last step,
    if there is a max_norm. skipped_steps: how many were left out. foreach and fused have no effect."""

    _step_supports_amp_scaling = True  # a GradScaler leaves grad_scale and found_inf to step()

    def __init__(self, params: ParamsT, lr: float | torch.Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
                 capturable: bool = False, differentiable: bool = False, fused: bool | None = None, decoupled_weight_decay: bool = True,
                 states: dict[str, dict[str, Any]] | None = None, seed: int = 0, max_norm: float | None = None,
                 gradient_buffer: int | None = None, workers: int = 0) -> None:
        if max_norm is not None and not max_norm > 0:
            raise ValueError(f"max_norm = {max_norm} is not legal; legal: a number above 0, math.inf to clip nothing, or None")
        if gradient_buffer is not None and gradient_buffer < 0:
            raise ValueError(f"gradient_buffer = {gradient_buffer} is not legal; legal: a number of bytes from 0, or None")
        self.max_norm, self.overlap = max_norm, True
        self.grad_norm: float | None = None
        self.skipped_steps = 0
        self._given = {name: dict(state) for name, state in (states or {}).items()}
        self._seed, self._context = seed, Context(workers=workers)
        self._rules: dict[tuple[str | None, bool], Optimizer] = {}
        self._states: dict[torch.Tensor, States] = {}
        self._gradients: dict[torch.Tensor, Gradient] = {}
        self._copies: dict[torch.device, Copies | None] = {}
        self._names: dict[torch.Tensor, str] = {}
        self._hooked: set[torch.Tensor] = set()
        self._room, self._staging, self._lock = Room(gradient_buffer), Staging(), threading.RLock()
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad, "foreach": foreach,
            "maximize": maximize, "capturable": capturable, "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay})
        self.register_state_dict_post_hook(OffloadedAdamW._add_numbers, prepend=True)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("an OffloadedAdamW is not copied or pickled; make a new one and give it this one's state_dict()")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            self._check(group)
            for parameter in group["params"]:
                self._names[parameter] = f"parameter {len(self._names)}"
                self._check_parameter(parameter)
                self._rule(parameter, group)  # says now what is not legal
                self._watch(parameter)
        except BaseException:
            self.param_groups.pop()
            raise

    # ---- Backward ----

    def _watch(self, parameter: torch.Tensor) -> None:
        """Gradients of a device come down while backward goes on."""
        copies = self._copies_of(local_of(parameter).device)
        self._gradients[parameter] = Gradient(parameter, copies, self._room)
        self._hook(parameter)

    def _hook(self, parameter: torch.Tensor) -> None:
        if parameter in self._hooked or not parameter.requires_grad or self._copies_of(local_of(parameter).device) is None:
            return
        self._hooked.add(parameter)
        myself = weakref.ref(self)

        def accumulated(parameter: torch.Tensor) -> None:
            optimizer = myself()
            if optimizer is not None:
                optimizer._bring(parameter)

        parameter.register_post_accumulate_grad_hook(accumulated)

    def _bring(self, parameter: torch.Tensor) -> None:
        """On a thread of autograd."""
        if self.overlap and parameter.grad is not None and parameter.grad.layout == torch.strided:
            with self._lock, torch.no_grad():
                self._gradients[parameter].bring()

    def _copies_of(self, device: torch.device) -> Copies | None:
        if device not in self._copies:
            self._copies[device] = copies_of(device)
        return self._copies[device]

    # ---- The step ----

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = loss_of(closure)
        with self._lock:
            self._step()
        return loss

    def _step(self) -> None:
        found, scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        if found is not None and float(found) != 0:
            return
        factor = 1.0 if scale is None else 1.0 / float(scale)
        runs = self._runs()
        self._look(runs)
        if self.max_norm is not None:
            self.grad_norm = abs(factor) * self._norm(runs)
            if self.grad_norm == float("inf"):
                self.skipped_steps += 1
                return self._end(runs)
            factor *= min(1.0, self.max_norm / (self.grad_norm + 1e-6))
        self._update(runs, factor)

    def _update(self, runs: list[_Run], factor: float) -> None:
        devices = [copies for copies in self._copies.values() if copies is not None]
        for copies in devices:
            copies.open_up()
        for run in self._staged(runs):
            for states in run.states:
                states.free()
            for name, value in hyperparameters(run.group):
                run.rule.set_value(name, value)
            run.rule.set_value("gradient_factor", -factor if run.group["maximize"] else factor)
            shards = [states.shard for states in run.states]
            report = run.rule.step(shards)
            assert report.outcome == lowlevel.STEP_APPLIED
            for states in run.states:
                self.state[states.parameter]["step"].fill_(states.shard.step)
                states.publish()
        for copies in devices:
            copies.close_up()
        for run in runs:
            for states in run.states:
                states.note()
        self._end(runs)

    def _norm(self, runs: list[_Run]) -> float:
        squares: dict[Any, float] = {None: 0.0}
        for group in self.param_groups:  # on all ranks alike, whoever has a gradient
            for parameter in group["params"]:
                squares.setdefault(sharded_groups(parameter), 0.0)
        for run in self._staged(runs):
            run.rule.set_value("gradient_factor", 1)
            for states in run.states:
                squares[sharded_groups(states.parameter)] += run.rule.norm([states.shard]) ** 2
        norm = norm_over(squares)
        return norm if norm == norm else float("inf")

    def _staged(self, runs: list[_Run]) -> Iterable[_Run]:
        """The runs with their gradients there; those of the next one come down meanwhile."""
        self._request(runs[:1])
        for index, run in enumerate(runs):
            self._request(runs[index + 1:index + 2])
            for states, gradient in zip(run.states, run.gradients):
                gradient.wait()
                states.shard.set_grads(gradient.host)
            yield run
            for states in run.states:
                states.shard.set_grads(None)

    def _request(self, runs: list[_Run]) -> None:
        for run in runs:
            copies = run.states[0].copies
            if copies is not None:
                self._staging.turn(sum(gradient.staged() for gradient in run.gradients), copies)
            for gradient in run.gradients:
                gradient.request(self._staging)

    @staticmethod
    def _end(runs: list[_Run]) -> None:
        for run in runs:
            for gradient in run.gradients:
                gradient.done()

    def _look(self, runs: list[_Run]) -> None:
        """What has changed since it was copied is copied again: gradients, and parameters that others have written into."""
        brought = [(gradient, seen) for run in runs for gradient in run.gradients if (seen := gradient.brought()) is not None]
        watched = [(states, seen) for run in runs for states in run.states if (seen := states.watched()) is not None]
        before = [seen for _, seen in brought] + [seen for _, seen in watched]
        after = [gradient.now() for gradient, _ in brought] + [states.now() for states, _ in watched]
        changed = differ(before, after)
        for (gradient, _), other in zip(brought, changed):
            if other:
                gradient.drop()
        others = {id(states) for (states, _), other in zip(watched, changed[len(brought):]) if other}
        for run in runs:
            for states in run.states:
                states.settle(id(states) in others)

    # ---- Parameters, their rules and states ----

    def _runs(self) -> list[_Run]:
        runs: list[_Run] = []
        for group in self.param_groups:
            self._check(group)
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            for parameter in parameters:
                self._check_gradient(parameter)
                self._hook(parameter)  # of one that was frozen
            for rule, of_rule in self._by_rule(parameters, group):
                for part in _parts(self._states_of(of_rule, rule)):
                    runs.append(_Run(rule, group, part, [self._gradients[each.parameter] for each in part]))
        return runs

    def _by_rule(self, parameters: list[torch.Tensor], group: dict[str, Any]) -> list[tuple[Optimizer, list[torch.Tensor]]]:
        found: dict[int, tuple[Optimizer, list[torch.Tensor]]] = {}
        for parameter in parameters:
            rule = self._rule(parameter, group)
            found.setdefault(id(rule), (rule, []))[1].append(parameter)
        return list(found.values())

    def _states_of(self, parameters: list[torch.Tensor], rule: Optimizer) -> list[States]:
        """In one call for those that have none, whose memory the library then lays out together."""
        fresh: list[tuple[States, States | None]] = []
        for parameter in parameters:
            old = self._states.get(parameter) if self.state.get(parameter) else None
            if old is not None:
                old.check_place()
                if not old.has_moved():
                    continue
            made = States(self._context, parameter, self._names[parameter], self._master(parameter) or "float32",
                          self._copies_of(local_of(parameter).device))
            fresh.append((made, old))
        rule.prepare([made.shard for made, _ in fresh])
        for made, old in fresh:
            self._states[made.parameter] = made
            given = self.state.get(made.parameter)
            if old is not None and given:
                old.adopt(given)
                made.go_on(old)
            self.state[made.parameter] = made.show(self._formats())
        states = [self._states[parameter] for parameter in parameters]
        for each in states:
            each.adopt(self.state[each.parameter])
        return states

    def _master(self, parameter: torch.Tensor) -> str | None:
        """The format of a 16-bit parameter's master; None: a float32 parameter is its own."""
        if parameter.dtype == torch.float32:
            return None
        default = "split" if parameter.dtype == torch.bfloat16 else "float32"
        format: str = self._given.get("master", {}).get("format", default)
        legal = ["float32", _DTYPES[parameter.dtype], *(["split"] if parameter.dtype == torch.bfloat16 else [])]
        if format not in legal:
            raise ValueError(f"states.master.format = {format!r} is not legal for {self._names[parameter]}, which is {parameter.dtype}; legal: "
                             f"{', '.join(legal)}")
        return format

    def _formats(self) -> dict[str, str]:
        return {name: self._given.get(name, {}).get("format", "float32") for name in MOMENTS}

    def _rule(self, parameter: torch.Tensor, group: dict[str, Any]) -> Optimizer:
        """One for all groups, which set its values before a step: for each kind of master and of decay."""
        master, decoupled = self._master(parameter), bool(group["decoupled_weight_decay"])
        if (master, decoupled) not in self._rules:
            states = {name: state for name, state in self._given.items() if name != "master"}
            if master is not None:
                states["master"] = {**self._given.get("master", {}), "format": master}
            config = {**rule_of("Adam", group, adam_w_mode=decoupled, bias_correction=True), "states": states, "seed": self._seed,
                      "check_grad_overflow": False}
            self._rules[master, decoupled] = Optimizer(self._context, config)
        return self._rules[master, decoupled]

    def _check(self, group: dict[str, Any]) -> None:
        for name, way in _REFUSED.items():
            if group.get(name):
                raise ValueError(f"{name} = {group[name]} is not supported: {way}")

    def _check_parameter(self, parameter: torch.Tensor) -> None:
        name = self._names[parameter]
        if parameter.dtype not in _DTYPES:
            raise ValueError(f"{name} is {parameter.dtype}; legal: {', '.join(map(str, _DTYPES))}. Give it to another optimizer, or convert it")
        if parameter.device.type == "meta":
            raise ValueError(f"{name} is on the meta device, where it has no values; construct the optimizer after they are there (to_empty)")

    def _check_gradient(self, parameter: torch.Tensor) -> None:
        grad = parameter.grad
        assert grad is not None
        if grad.layout != torch.strided:
            raise ValueError(f"the gradient of {self._names[parameter]} is sparse ({grad.layout}); use sparse=False in its Embedding, or give it "
                             "to torch.optim.SparseAdam")
        if grad.dtype not in _DTYPES:
            raise ValueError(f"the gradient of {self._names[parameter]} is {grad.dtype}; legal: {', '.join(map(str, _DTYPES))}")

    # ---- Saved states ----

    @staticmethod
    def _add_numbers(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
        assert isinstance(optimizer, OffloadedAdamW)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for index, state in state_dict["state"].items():
            states = optimizer._states.get(parameters[index]) if isinstance(index, int) else None
            if states is not None and state:
                state_dict["state"][index] = {**state, **states.numbers()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of an OffloadedAdamW with states in whatever formats, or of torch.optim.AdamW or Adam. ValueError: of another."""
        for index, state in state_dict["state"].items():
            missing = [name for name in ("step", *MOMENTS) if state and state.get(name) is None]
            if missing:
                raise ValueError(f"the states of parameter {index} are {', '.join(map(repr, state))}; OffloadedAdamW needs "
                                 f"{', '.join(map(repr, missing))}: load what AdamW has saved")
        for group in state_dict["param_groups"]:
            self._check(group)
        held = {index: _Saved(state) for index, state in state_dict["state"].items()}
        with self._lock, torch.no_grad():
            super().load_state_dict({**state_dict, "state": held})
            saved = {key: each.state for key, each in self.state.items() if isinstance(each, _Saved)}
            self.state.clear()
            self._states.clear()
            for group in self.param_groups:
                parameters = [parameter for parameter in group["params"] if saved.get(parameter)]
                for rule, of_rule in self._by_rule(parameters, group):
                    for states in self._states_of(of_rule, rule):
                        states.load(saved[states.parameter])
                        self.state[states.parameter] = states.show(self._formats())

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # an older release of PyTorch has not saved all
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def host_bytes(self) -> dict[str, int]:
        """Bytes of the host's memory that this rank's part takes besides parameters and gradients that are there: "states" are
        masters, moments and a device's weights; "gradients" what gradients of a device come down into."""
        return {"states": sum(states.host_bytes() for states in self._states.values()),
                "gradients": self._room.used + self._staging.bytes}


def _parts(states: list[States]) -> list[list[States]]:
    """All of the host at once; a device's in parts of some size."""
    parts: list[list[States]] = []
    of, count = None, 0
    for each in states:
        size = local_of(each.parameter).numel()
        if not parts or each.copies is not of or (of is not None and count + size > _RUN):
            parts.append([])
            of, count = each.copies, 0
        parts[-1].append(each)
        count += size
    return parts
