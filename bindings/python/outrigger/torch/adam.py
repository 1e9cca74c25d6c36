# SPDX-License-Identifier: Apache-2.0
"""Adam and AdamW on the CPU as an optimizer of PyTorch, without an engine: the library's kernels on the caller's tensors."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from .. import Context, Optimizer, Shard, lowlevel
from .parameters import hyperparameters, rule_of


class CPUAdam(torch.optim.Optimizer):
    """Parameters: float32, bfloat16 or float16 tensors on the CPU, contiguous. adamw_mode: decoupled weight decay.
    fp32_optimizer_states: moments in float32 whatever the parameters have; else bfloat16 parameters have bfloat16
    moments, rounded to nearest. A step with an Inf or NaN gradient raises FloatingPointError and updates nothing of its
    group. Given to outrigger.torch.initialize it says what the engine's optimizer does."""

    def __init__(self, model_params: ParamsT, lr: float = 1e-3, bias_correction: bool = True,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False,
                 adamw_mode: bool = True, fp32_optimizer_states: bool = True) -> None:
        if amsgrad:
            raise ValueError("CPUAdam has no amsgrad; leave it out")
        super().__init__(model_params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
                                        "bias_correction": bias_correction, "amsgrad": amsgrad})
        self.adam_w_mode, self.fp32_optimizer_states = adamw_mode, fp32_optimizer_states
        self._context: Context | None = None
        self._optimizers: dict[tuple[int, torch.dtype], Optimizer] = {}
        self._shards: dict[torch.Tensor, tuple[Shard, torch.Tensor, int]] = {}

    def library_config(self, group: dict[str, Any]) -> dict[str, Any]:
        return rule_of("Adam", group, bias_correction=bool(group["bias_correction"]), adam_w_mode=bool(self.adam_w_mode))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for index, group in enumerate(self.param_groups):
            by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_dtype.setdefault(parameter.dtype, []).append(parameter)
            for dtype, parameters in by_dtype.items():
                self._step(index, group, dtype, parameters)
        return loss

    def _step(self, index: int, group: dict[str, Any], dtype: torch.dtype, parameters: list[torch.Tensor]) -> None:
        optimizer = self._optimizer(index, group, dtype)
        for name, value in hyperparameters(group):
            optimizer.set_value(name, value)
        shards = [self._shard(parameter) for parameter in parameters]
        report = optimizer.step(shards)
        for parameter in parameters:
            torch.autograd.graph.increment_version(parameter)
        if report.outcome == lowlevel.STEP_SKIPPED:
            raise FloatingPointError(f"a gradient of parameter group {index} is Inf or NaN; nothing of this group's {dtype} "
                                     "parameters was updated")

    def _optimizer(self, index: int, group: dict[str, Any], dtype: torch.dtype) -> Optimizer:
        key = index, dtype
        if key not in self._optimizers:
            self._context = self._context or Context()
            config = self.library_config(group)
            if dtype != torch.float32 and not self.fp32_optimizer_states:
                state = {"format": "bfloat16", "rounding": "nearest"}
                config["states"] = {"exp_avg": state, "exp_avg_sq": state}
            if dtype == torch.bfloat16:
                config.setdefault("states", {})["master"] = {"rounding": "nearest"}
            self._optimizers[key] = Optimizer(self._context, config)
        return self._optimizers[key]

    def _shard(self, parameter: torch.Tensor) -> Shard:
        """The parameter's states, and its gradient in one place: the library keeps both by address."""
        entry, given = self._shards.get(parameter), parameter.grad
        assert given is not None and self._context is not None
        if entry is None or entry[1].dtype != given.dtype or entry[2] != parameter.data_ptr():
            if entry is not None:
                raise RuntimeError("a parameter moved or its gradient changed dtype since the first step; make a new CPUAdam")
            if not parameter.is_contiguous():
                raise ValueError("CPUAdam takes contiguous parameters; call .contiguous() first")
            grad = torch.empty(parameter.numel(), dtype=given.dtype)
            shard = Shard(self._context, parameter.detach().view(-1), grad)
            entry = self._shards[parameter] = shard, grad, parameter.data_ptr()
        entry[1].copy_(given.reshape(-1))
        return entry[0]
