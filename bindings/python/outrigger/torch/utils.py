# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's functions that read and write a parameter's master, states and gradient, by its names.

full: the whole value, as float32, collective over the engine's ranks. local: what this rank updates, 1-D; local. States are
"exp_avg" and "exp_avg_sq", "momentum_buffer" (exp_avg of a rule with momentum), or those that an optimizer of PyTorch has
(ValueError for another key; OutriggerError E_NOT_FOUND: the rule keeps none for this parameter, as Muon no exp_avg_sq of a
matrix). Gradients: from the window's last backward until step(); unscaled, averaged over ranks. What is set may have any
floating dtype, and the shape that is read. ValueError: the tensor is no parameter of an engine; RuntimeError: a gradient is set
before there is one."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import torch

from .. import lowlevel
from .owned import require_engine

T = TypeVar("T")


def safe_get_full_fp32_param(param: torch.Tensor) -> torch.Tensor | None:
    """None for a frozen parameter, which has no master."""
    engine = require_engine(param, "safe_get_full_fp32_param")
    return engine.read(param, lowlevel.VALUE_MASTER) if engine.parameters_of.learns(param) else None


def safe_set_full_fp32_param(param: torch.Tensor, value: torch.Tensor) -> None:
    require_engine(param, "safe_set_full_fp32_param").write(param, value, lowlevel.VALUE_MASTER)


def safe_get_full_optimizer_state(param: torch.Tensor, optim_state_key: str) -> torch.Tensor | None:
    """None for a frozen parameter, which has no states."""
    engine = require_engine(param, "safe_get_full_optimizer_state")
    return engine.optimizer.full_state(param, optim_state_key) if engine.parameters_of.learns(param) else None


def safe_set_full_optimizer_state(param: torch.Tensor, value: torch.Tensor, optim_state_key: str) -> None:
    require_engine(param, "safe_set_full_optimizer_state").optimizer.set_full_state(param, optim_state_key, value)


def safe_get_full_grad(param: torch.Tensor) -> torch.Tensor | None:
    """None before the window's gradients are complete, and for a frozen parameter."""
    engine = require_engine(param, "safe_get_full_grad")
    return engine.gradient(param, engine.read)


def safe_set_full_grad(param: torch.Tensor, value: torch.Tensor) -> None:
    engine = require_engine(param, "safe_set_full_grad")
    engine.require_reduced("safe_set_full_grad")
    engine.write(param, value, lowlevel.VALUE_GRAD)


def safe_update_full_grad_vectorized(param_list: Iterable[torch.Tensor],
                                     update_func: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    """update_func(gradient, parameter) → the new gradient, for each of the parameters."""
    for param in param_list:
        engine = require_engine(param, "safe_update_full_grad_vectorized")
        engine.require_reduced("safe_update_full_grad_vectorized")
        engine.write(param, update_func(engine.read(param, lowlevel.VALUE_GRAD), param), lowlevel.VALUE_GRAD)


def safe_get_local_grad(param: torch.Tensor) -> torch.Tensor | None:
    engine = require_engine(param, "safe_get_local_grad")
    return engine.gradient(param, engine.read_local)


def safe_set_local_grad(param: torch.Tensor, value: torch.Tensor) -> None:
    engine = require_engine(param, "safe_set_local_grad")
    engine.require_reduced("safe_set_local_grad")
    engine.write_local(param, value, lowlevel.VALUE_GRAD)


def safe_get_local_fp32_param(param: torch.Tensor) -> torch.Tensor | None:
    engine = require_engine(param, "safe_get_local_fp32_param")
    return engine.read_local(param, lowlevel.VALUE_MASTER) if engine.parameters_of.learns(param) else None


def safe_set_local_fp32_param(param: torch.Tensor, value: torch.Tensor) -> None:
    require_engine(param, "safe_set_local_fp32_param").write_local(param, value, lowlevel.VALUE_MASTER)


def safe_get_local_optimizer_state(param: torch.Tensor, optim_state_key: str) -> torch.Tensor | None:
    engine = require_engine(param, "safe_get_local_optimizer_state")
    return engine.optimizer.local_state(param, optim_state_key) if engine.parameters_of.learns(param) else None


def safe_set_local_optimizer_state(param: torch.Tensor, value: torch.Tensor, optim_state_key: str) -> None:
    require_engine(param, "safe_set_local_optimizer_state").optimizer.set_local_state(param, optim_state_key, value)


def set_z3_leaf_modules(model: torch.nn.Module, leaf_module_classes: Sequence[type[torch.nn.Module] | str]) -> list[torch.nn.Module]:
    """Modules of these classes (or names of classes) whose parameters are gathered together when they are called, and stay
    until the step: for those in which each rank takes another branch. Before initialize. Returns them. Where ranks share
    parameters nothing is gathered, and this changes nothing."""
    names = {each if isinstance(each, str) else each.__qualname__ for each in leaf_module_classes}
    found = [each for each in model.modules() if type(each).__name__ in names or type(each).__qualname__ in names]
    if not found:
        raise ValueError(f"no module of the model has one of the classes {', '.join(sorted(names))}")
    for each in found:
        each._z3_leaf = True  # type: ignore[assignment]
    return found


def unset_z3_leaf_modules(model: torch.nn.Module, leaf_module_classes: Sequence[type[torch.nn.Module] | str]) -> list[torch.nn.Module]:
    found = set_z3_leaf_modules(model, leaf_module_classes)
    for each in found:
        each._z3_leaf = False  # type: ignore[assignment]
    return found


def set_z3_leaf_module(model: torch.nn.Module, flag: bool) -> None:
    """The same for one module."""
    model._z3_leaf = flag  # type: ignore[assignment]


def get_z3_leaf_modules(model: torch.nn.Module) -> list[torch.nn.Module]:
    return [each for each in model.modules() if z3_leaf_module(each)]


def z3_leaf_module(model: torch.nn.Module) -> bool:
    return bool(getattr(model, "_z3_leaf", False))


class RepeatingLoader(Generic[T]):
    """An iterator that begins again where its loader ends."""

    def __init__(self, loader: Iterable[T]) -> None:
        self.loader = loader
        self._iterator = iter(loader)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return next(self._iterator)
        except StopIteration:
            self._iterator = iter(self.loader)
            return next(self._iterator)
