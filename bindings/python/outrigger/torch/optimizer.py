# SPDX-License-Identifier: Apache-2.0
"""The engine's optimizer, as training loops and schedulers of PyTorch see one."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from .. import lowlevel
from .parameters import group_name, hyperparameters

_STATES = {"exp_avg": lowlevel.VALUE_EXP_AVG, "exp_avg_sq": lowlevel.VALUE_EXP_AVG_SQ}
_MOMENTUM = {"momentum_buffer": lowlevel.VALUE_EXP_AVG}  # PyTorch's and DeepSpeed's name, where a group has momentum


class Owner(Protocol):
    """The engine that an optimizer belongs to, as the optimizer uses it."""

    handle: lowlevel.Engine
    report: lowlevel.StepReport | None

    def step(self) -> None: ...
    def zero_grad(self) -> None: ...
    def backward(self, loss: torch.Tensor, *, retain_graph: bool) -> torch.Tensor: ...
    def read(self, parameter: torch.Tensor, value: int) -> torch.Tensor: ...
    def write(self, parameter: torch.Tensor, source: torch.Tensor, value: int) -> None: ...
    def read_local(self, parameter: torch.Tensor, value: int) -> torch.Tensor: ...
    def write_local(self, parameter: torch.Tensor, source: torch.Tensor, value: int) -> None: ...


class ZeroOptimizer(torch.optim.Optimizer):
    """param_groups are live: a changed "lr", "weight_decay", "betas", "eps", "momentum" or "dampening" (those that the rule
    has) holds from the next step on. Muon's are halves, "use_muon" True: matrices, False: the others. The states live in the
    engine; state is empty."""

    def __init__(self, engine: Owner, groups: list[dict[str, Any]], defaults: dict[str, Any],
                 client: torch.optim.Optimizer | None = None) -> None:
        super().__init__(groups, defaults)
        self._engine, self._client = engine, client
        self._sent: dict[tuple[int, str], float] = {}
        self._seen: bool | None = False

    def send_hyperparameters(self) -> None:
        for index, group in enumerate(self.param_groups):
            for name, value in hyperparameters(group):
                self._send(index, name, value)

    def _send(self, index: int, name: str, value: float) -> None:
        if self._sent.get((index, name)) != value:
            lowlevel.engine_set_group_value(self._engine.handle, group_name(index), name, value)
            self._sent[index, name] = value

    def resumed(self, groups: list[dict[str, Any]] | None) -> None:
        """The library has gone on from a checkpoint, which has these values of param_groups; None: nothing of them."""
        for group, saved in zip(self.param_groups, groups or self.param_groups, strict=True):
            for name, value in saved.items():
                if isinstance(group.get(name), torch.Tensor):
                    group[name].copy_(torch.as_tensor(value))  # others hold it
                elif name != "params":
                    group[name] = value
        self._sent.clear()
        self.send_hyperparameters()

    def update(self) -> None:
        """Before the step that ends a window: nothing, the library updates in it."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """The engine's step. closure: called first, with gradients enabled; its result is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._seen is not None:
            self._engine.step()
        return loss

    def seen(self) -> None:
        """A schedule of PyTorch warns unless its optimizer, the caller's own or this one, has made a step before it. The
        first time they make one that does nothing: the gradients are not in the parameters."""
        if not self._seen:
            self._seen = None
            for each in (self, self._client):
                if each is not None:
                    each.step()
            self._seen = True

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """DeepSpeed's name of the caller's own optimizer, whose groups these are; without one this."""
        return self._client or self

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._engine.zero_grad()

    def backward(self, loss: torch.Tensor, retain_graph: bool = False) -> None:
        self._engine.backward(loss, retain_graph=retain_graph)

    @property
    def cur_scale(self) -> float:
        """The loss scale of the next pass; 1 without loss scaling."""
        return lowlevel.engine_get_loss_scale(self._engine.handle)

    loss_scale = cur_scale

    @property
    def overflow(self) -> bool:
        """Whether the last step was skipped for Inf or NaN."""
        report = self._engine.report
        return report is not None and report.reason in (lowlevel.SKIP_NONFINITE, lowlevel.SKIP_SEED_OVERFLOW)

    # ---- States, by their names ----

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError("optimizer.state_dict: the states are the engine's, in parts on the ranks; engine.save_checkpoint saves them, and "
                                  "optimizer.full_state(parameter, key) gives one whole")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        raise NotImplementedError("optimizer.load_state_dict: engine.load_checkpoint goes on from a checkpoint; optimizer.set_full_state(parameter, key, "
                                  "value) sets one state, and the number of steps that bias correction counts starts anew")

    def _state(self, parameter: torch.Tensor, key: str) -> int:
        group = next((each for each in self.param_groups if any(parameter is one for one in each["params"])), {})
        legal = {**_STATES, **_MOMENTUM} if "momentum" in group else _STATES
        if key not in legal:
            raise ValueError(f"optimizer state {key!r} is not legal; legal: {', '.join(legal)}")
        return legal[key]

    def full_state(self, parameter: torch.Tensor, key: str) -> torch.Tensor:
        """Of the whole parameter. Collective."""
        return self._engine.read(parameter, self._state(parameter, key))

    def local_state(self, parameter: torch.Tensor, key: str) -> torch.Tensor:
        """Of what this rank updates, 1-D. Local."""
        return self._engine.read_local(parameter, self._state(parameter, key))

    def set_full_state(self, parameter: torch.Tensor, key: str, value: torch.Tensor) -> None:
        """All ranks give the same. Collective."""
        self._engine.write(parameter, value, self._state(parameter, key))

    def set_local_state(self, parameter: torch.Tensor, key: str, value: torch.Tensor) -> None:
        self._engine.write_local(parameter, value, self._state(parameter, key))
