# SPDX-License-Identifier: Apache-2.0
"""Any optimizer of PyTorch as an engine's: it updates what its rank owns, and its states stay with it."""
from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .. import lowlevel
from .optimizer import Owner, ZeroOptimizer

if TYPE_CHECKING:
    from .. import Comm
    from .. import Engine as LibraryEngine
    from .parameters import Parameters

# Which want what no engine gives, and which look at a whole matrix.
_REFUSED: dict[str, str] = {"LBFGS": "it calls the model several times in a step", "SparseAdam": "it takes sparse gradients"}
_WHOLE = ("Adafactor", "Muon")
# PyTorch's and the library's alike, while no parameter but these is given.
_OF_THE_LIBRARY = {"SGD": frozenset({"lr", "momentum", "dampening", "nesterov", "weight_decay"}),
                   "Adagrad": frozenset({"lr", "eps", "weight_decay"})}


def from_config(config: dict[str, Any], groups: list[dict[str, Any]]) -> torch.optim.Optimizer | None:
    """The optimizer of PyTorch that a configuration names, such as "RMSprop"; None: the library's own, or none."""
    named = config.get("optimizer") or {}
    kind = getattr(torch.optim, str(named.get("type")), None)
    params = named.get("params") or {}
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)) or kind.__name__ in ("Adam", "AdamW", "Muon", "Optimizer"):
        return None
    if _is_of_the_library(kind.__name__, params, groups):
        return None
    return kind(groups, **params)


def _is_of_the_library(kind: str, params: dict[str, Any], groups: list[dict[str, Any]]) -> bool:
    """Whether the library's rule does all that is asked for: nesterov, and whether there is momentum, are alike in all groups."""
    known = _OF_THE_LIBRARY.get(kind, frozenset())
    return (set(params) <= known and all(set(group) <= (known - {"nesterov"}) | {"params"} for group in groups)
            and all(bool(group.get("momentum", params.get("momentum"))) == bool(params.get("momentum")) for group in groups))


def hand_over(config: dict[str, Any], optimizer: torch.optim.Optimizer) -> None:
    """config gets an engine whose weights this optimizer updates. NotImplementedError: it cannot; ValueError: DeepSpeed's
    guard."""
    name, stage = type(optimizer).__name__, (config.get("zero_optimization") or {}).get("stage", 0)
    if name in _REFUSED:
        raise NotImplementedError(f"optimizer={name} is not supported: {_REFUSED[name]}")
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise NotImplementedError(f"optimizer={name} with differentiable=True is not supported; leave it out")
    if stage and name in _WHOLE:
        way = "an optimizer that updates each element by itself"
        if name == "Muon":
            way = "leave optimizer= out and name {\"type\": \"Muon\"} in the configuration's \"optimizer\": the library's own, at every stage"
        raise NotImplementedError(f"optimizer={name} looks at whole matrices, and at zero_optimization.stage {stage} each rank has slices; "
                                  f"use stage 0, or {way}")
    tested = isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW))
    if stage and not tested and not config.get("zero_allow_untested_optimizer"):
        raise ValueError(f"optimizer={name} at zero_optimization.stage {stage} gets slices, and is right if it updates each element by "
                         "itself: say so with \"zero_allow_untested_optimizer\": true")
    config["optimizer"] = {"type": "Host", "params": {"lr": float(optimizer.param_groups[0]["lr"])}}


class HostOwner(Owner, Protocol):
    """An engine whose weights its optimizer updates."""

    parameters_of: Parameters
    _library: LibraryEngine
    _comm: Comm
    _reduced: bool

    def id_of(self, parameter: torch.Tensor) -> int: ...
    def zero_optimization_stage(self) -> int: ...


class HostOptimizer(ZeroOptimizer):
    """What initialize returns for an optimizer that is not Adam. param_groups are its own; during its step they hold float32
    tensors, 1-D slices at stages 1 to 3, whole ones at stage 0. Its states are shaped alike; state_dict is this rank's."""

    _engine: HostOwner
    _client: torch.optim.Optimizer

    def __init__(self, engine: HostOwner, groups: list[dict[str, Any]], defaults: dict[str, Any], client: torch.optim.Optimizer | None) -> None:
        if client is None:
            raise ValueError("optimizer.type \"Host\" needs an optimizer of PyTorch: give it as optimizer=")
        super().__init__(engine, groups, defaults, client)
        self._unwritten: dict[torch.Tensor, torch.Tensor] = {}  # what its step has left for the engine
        # States that it has already, from its constructor or earlier steps, are of whole parameters.
        for parameter, states in client.state.items():
            for key, value in states.items():
                if torch.is_tensor(value) and key != "step" and value.shape == parameter.shape:
                    states[key] = self._part(parameter, value.detach().float()).clone()

    def send_hyperparameters(self) -> None:
        """The rate, for reports; the rest is the optimizer's."""
        for index, group in enumerate(self._client.param_groups):
            self._send(index, "lr", float(group["lr"]))

    def update(self) -> None:
        """The optimizer's step, on the weights and clipped gradients of this rank. Collective."""
        engine = self._engine
        if not self._unwritten:  # else the last call was interrupted while it wrote
            report = engine._library.reduce()
            engine._reduced = True
            if report.reason != lowlevel.SKIP_NONE:
                return
            with torch.no_grad(), self._in_slices(report.clip_coefficient) as slices:
                if any(part.grad is not None for part in slices.values()):
                    self._client.step()
            self._unwritten = {parameter: part.detach().reshape(-1) for parameter, part in slices.items()
                               if part.grad is not None and part.numel()}
        for parameter in list(self._unwritten):
            lowlevel.engine_local_write(engine.handle, engine.id_of(parameter), lowlevel.VALUE_MASTER, self._unwritten[parameter].cpu())
            del self._unwritten[parameter]

    def seen(self) -> None:
        """The client's step has been made in truth."""
        if not self._seen:
            self._seen = None
            self.step()
            self._seen = True

    @contextlib.contextmanager
    def _in_slices(self, clip: float | None = None) -> Iterator[dict[torch.Tensor, torch.nn.Parameter]]:
        """The optimizer's parameters are slices of the weights, and its states are theirs. clip: with gradients."""
        whole = [group["params"] for group in self._client.param_groups]
        learns = self._engine.parameters_of.learns
        slices = {each: self._slice(each, clip) for params in whole for each in params if learns(each)}
        self._rename(slices)
        for group, params in zip(self._client.param_groups, whole):
            group["params"] = [slices.get(each, each) for each in params]
        try:
            yield slices
        finally:
            self._rename({part: each for each, part in slices.items()})
            for group, params in zip(self._client.param_groups, whole):
                group["params"] = params

    def _part(self, parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """What this rank has of a whole parameter's value."""
        if self._engine.zero_optimization_stage() == 0:
            return value
        first, count = self._engine._library.local_range(self._engine.id_of(parameter))
        return value.reshape(-1)[first:first + count]

    def _slice(self, parameter: torch.Tensor, clip: float | None) -> torch.nn.Parameter:
        shape = parameter.shape if self._engine.zero_optimization_stage() == 0 else (-1,)
        part = torch.nn.Parameter(self._engine.read_local(parameter, lowlevel.VALUE_MASTER).view(shape))
        if clip is not None and self._engine._library.has_grad(self._engine.id_of(parameter)):
            part.grad = self._engine.read_local(parameter, lowlevel.VALUE_GRAD).mul_(clip).view(shape)
        return part

    def _rename(self, names: dict[Any, Any]) -> None:
        self._client.state = defaultdict(dict, {names.get(each, each): state for each, state in self._client.state.items()})

    # ---- States ----

    def state_dict(self) -> dict[str, Any]:
        return self._client.state_dict()

    def slices(self) -> list[list[Any]]:
        """What its states are of: name, first element and count of each parameter that it trains."""
        engine = self._engine
        trained = [each for group in self.param_groups for each in group["params"] if engine.parameters_of.learns(each)]
        ranges = [(0, each.numel()) if engine.zero_optimization_stage() == 0 else engine._library.local_range(engine.id_of(each))
                  for each in trained]
        return [[engine.parameters_of.name_of(each), *range] for each, range in zip(trained, ranges)]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What state_dict gave on this rank, of an engine of the same size."""
        with self._in_slices():
            self._client.load_state_dict(state_dict)
        self.param_groups = self._client.param_groups

    def _own_state(self, parameter: torch.Tensor, key: str) -> torch.Tensor:
        states = self._client.state.get(parameter, {})
        if key not in states:
            raise ValueError(f"optimizer state {key!r} is not legal; legal: {', '.join(states) or 'none before the first step'}")
        value: torch.Tensor = torch.as_tensor(states[key])
        return value if value.dim() == 0 else value.view(-1)

    def local_state(self, parameter: torch.Tensor, key: str) -> torch.Tensor:
        """Of this rank's slice, float32; some have no shape ("step"). Local."""
        return self._own_state(parameter, key).float().clone()

    def full_state(self, parameter: torch.Tensor, key: str) -> torch.Tensor:
        """The same of the whole parameter, float32. Collective."""
        own, engine = self._own_state(parameter, key), self._engine
        if own.dim() == 0:
            return own.clone()
        if engine.zero_optimization_stage() == 0:
            return own.float().view(parameter.shape).clone()
        whole = torch.zeros(parameter.shape, dtype=torch.float64)  # each element is one rank's, so the sum is exact
        self._part(parameter, whole).copy_(own)
        engine._comm.all_reduce_sum(whole.view(-1).numpy())
        return whole.float().to(own.device)

    def set_full_state(self, parameter: torch.Tensor, key: str, value: torch.Tensor) -> None:
        """value is the whole parameter's, on all ranks alike. Local."""
        has_shape = self._own_state(parameter, key).dim() > 0
        self.set_local_state(parameter, key, self._part(parameter, value) if has_shape else value)

    def set_local_state(self, parameter: torch.Tensor, key: str, value: torch.Tensor) -> None:
        own = self._own_state(parameter, key)
        own.copy_(value.detach().reshape(own.shape))
