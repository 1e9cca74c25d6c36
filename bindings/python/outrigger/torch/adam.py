# SPDX-License-Identifier: Apache-2.0
"""Adam and AdamW on the CPU as an optimizer of PyTorch, without an engine: the library's kernels on the caller's tensors."""
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from .. import Context, Optimizer, Shard, lowlevel
from .parameters import hyperparameters, rule_of
from .shards import MOMENTS, loss_of, moment_view


class _Leaf:
    """A parameter's shard, its gradient in one place (the library keeps both by address), and views of its moments."""

    def __init__(self, context: Context, optimizer: Optimizer, parameter: torch.Tensor, dtype: torch.dtype) -> None:
        self.grad, self.address = torch.empty(parameter.numel(), dtype=dtype), parameter.data_ptr()
        self.shard = Shard(context, parameter.detach().view(-1), self.grad)
        optimizer.prepare([self.shard])
        self.views = {name: moment_view(self.shard, name).view(parameter.shape) for name in MOMENTS}


class CPUAdam(torch.optim.Optimizer):
    """Parameters: float32, bfloat16 or float16 tensors on the CPU, contiguous. adamw_mode: decoupled weight decay.
    fp32_optimizer_states: moments in float32 whatever the parameters have; else bfloat16 parameters have bfloat16
    moments, rounded to nearest. A step with an Inf or NaN gradient raises FloatingPointError and updates nothing of its
    group. Given to outrigger.torch.initialize it says what the engine's optimizer does.

    state[parameter]: "step", a number, and "exp_avg" and "exp_avg_sq", live: what is changed in them or assigned holds from
    the next step on. load_state_dict keeps the moments' values in full where they are float32, whatever the parameters have."""

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
        self._leaves: dict[torch.Tensor | int, _Leaf] = {}

    def library_config(self, group: dict[str, Any]) -> dict[str, Any]:
        return rule_of("Adam", group, bias_correction=bool(group["bias_correction"]), adam_w_mode=bool(self.adam_w_mode))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = loss_of(closure)
        for index, group in enumerate(self.param_groups):
            by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_dtype.setdefault(parameter.dtype, []).append(parameter)
            for parameters in by_dtype.values():
                self._step(index, group, [(parameter, parameter) for parameter in parameters])
        return loss

    @torch.no_grad()
    def step_subgroup(self, subgroup_id: int, closure: Callable[[], Any] | None = None) -> Any:
        """DeepSpeed's: an update whose states are state[subgroup_id], of whatever parameter has a gradient now. The
        parameter may be another tensor each time, of the same count."""
        loss = loss_of(closure)
        for index, group in enumerate(self.param_groups):
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(index, group, [(subgroup_id, parameter)])
        return loss

    @torch.no_grad()
    def rollback_subgroup(self, sub_group_id: int, closure: Callable[[], Any] | None = None) -> Any:
        """Takes the last step_subgroup back, with the gradient and hyperparameters that it had, by Adam's inverse: weight and
        moments come back up to float32's rounding. RuntimeError: there is no such step."""
        loss = loss_of(closure)
        state = self.state.get(sub_group_id)  # type: ignore[call-overload]
        if not state or state["step"] < 1:
            raise RuntimeError(f"rollback_subgroup({sub_group_id}): this subgroup has had no step that could be taken back")
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._roll_back(group, parameter, state)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of a CPUAdam, DeepSpeed's or PyTorch's Adam. ValueError: a parameter's states are not those of Adam."""
        for identity, state in state_dict["state"].items():
            if state and not {"step", *MOMENTS} <= set(state):
                raise ValueError(f"the states of parameter {identity} are {', '.join(map(repr, state))}; CPUAdam needs 'step', 'exp_avg' and "
                                 "'exp_avg_sq'")
        super().load_state_dict(state_dict)
        # PyTorch gives moments the parameters' dtype; a float32 one keeps its bits.
        saved = itertools.chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        own = itertools.chain.from_iterable(group["params"] for group in self.param_groups)
        for identity, parameter in zip(saved, own):
            state = state_dict["state"].get(identity)
            if state:
                self.state[parameter] = {**state, "step": int(state["step"]), **{
                    name: state[name].detach().to("cpu", self._dtype_of_moments(parameter), copy=True) for name in MOMENTS}}

    def _dtype_of_moments(self, parameter: torch.Tensor) -> torch.dtype:
        return torch.float32 if self.fp32_optimizer_states or parameter.dtype == torch.float32 else torch.bfloat16

    def _step(self, index: int, group: dict[str, Any], keyed: list[tuple[torch.Tensor | int, torch.Tensor]]) -> None:
        """keyed: (whose states, parameter), all of one dtype."""
        optimizer = self._optimizer(index, group, keyed[0][1].dtype)
        for name, value in hyperparameters(group):
            optimizer.set_value(name, value)
        leaves = [self._leaf(key, parameter, optimizer) for key, parameter in keyed]
        report = optimizer.step([leaf.shard for leaf in leaves])
        for (key, parameter), leaf in zip(keyed, leaves):
            torch.autograd.graph.increment_version(parameter)
            self.state[key]["step"] = leaf.shard.step  # type: ignore[index]
        if report.outcome == lowlevel.STEP_SKIPPED:
            raise FloatingPointError(f"a gradient of parameter group {index} is Inf or NaN; nothing of this group's {keyed[0][1].dtype} "
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

    def _leaf(self, key: torch.Tensor | int, parameter: torch.Tensor, optimizer: Optimizer) -> _Leaf:
        """What the library updates, with the states that state[key] says."""
        leaf, given = self._leaves.get(key), parameter.grad
        assert given is not None and self._context is not None
        if leaf is None or leaf.address != parameter.data_ptr() or leaf.grad.dtype != given.dtype:
            if not parameter.is_contiguous():
                raise ValueError("CPUAdam takes contiguous parameters; call .contiguous() first")
            leaf = _Leaf(self._context, optimizer, parameter, given.dtype)
        state: dict[str, Any] = self.state[key]  # type: ignore[index]
        if not state:
            state["step"] = 0
            state.update({name: torch.zeros_like(view) for name, view in leaf.views.items()})
        for name, view in leaf.views.items():
            if state[name] is not view:
                if state[name].numel() != view.numel():
                    raise ValueError(f"{name} has {state[name].numel()} elements for a parameter of {view.numel()}")
                leaf.shard.write(MOMENTS[name], state[name].detach().to(torch.float32).reshape(-1))
                state[name] = view
        leaf.shard.step = int(state["step"])
        self._leaves[key] = leaf
        leaf.grad.copy_(given.reshape(-1))
        return leaf

    def _roll_back(self, group: dict[str, Any], parameter: torch.Tensor, state: dict[str, Any]) -> None:
        tensors = parameter.data, state["exp_avg"], state["exp_avg_sq"]
        if any(tensor.dtype != torch.float32 for tensor in tensors):
            raise NotImplementedError("rollback_subgroup needs a float32 parameter with float32 moments, whose rounding it can take back; for "
                                      "others keep copies of the parameter and of state[subgroup_id] before step_subgroup")
        assert parameter.grad is not None
        weight, first, second = (tensor.double() for tensor in tensors)
        grad, (beta1, beta2) = parameter.grad.double(), group["betas"]
        lr, decay, steps = float(group["lr"]), float(group["weight_decay"]), state["step"]
        corrections = (1 - beta1**steps, 1 - beta2**steps) if group["bias_correction"] else (1, 1)
        weight = weight + lr * (first / corrections[0]) / ((second / corrections[1]).sqrt() + group["eps"])
        if self.adam_w_mode:
            weight = weight / (1 - lr * decay)
        else:
            grad = grad + decay * weight
        parameter.data.copy_(weight.view(parameter.shape))
        state["exp_avg"].copy_((first - (1 - beta1) * grad) / beta1)
        state["exp_avg_sq"].copy_(((second - (1 - beta2) * grad * grad) / beta2).clamp_(min=0))
        state["step"] = steps - 1
        torch.autograd.graph.increment_version(parameter)
