# SPDX-License-Identifier: Apache-2.0
"""initialize: from a module and a configuration to an engine."""
from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from .. import lowlevel
from ..lowlevel import OutriggerError
from . import distributed, lr_schedules
from .adam import CPUAdam
from .config import ConfigError, Settings, given
from .engine import Engine
from .host_optimizer import from_config, hand_over
from .launched import launched_comm
from .monitor import monitors
from .parameters import groups_of, rule_of

if TYPE_CHECKING:
    from .. import Comm
    from .optimizer import ZeroOptimizer

log = logging.getLogger("outrigger.torch")
Groups: TypeAlias = Iterable[torch.Tensor] | Iterable[dict[str, Any]]
_VARIANTS = ("amsgrad", "maximize", "differentiable")  # that the library's update has not
# Of the library's rules, by their types in lower case; each is what the library has for it.
_ADAM: dict[str, Any] = {"lr": 1e-3, "weight_decay": 0.0, "eps": 1e-8, "betas": (0.9, 0.999)}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "adam": _ADAM, "adamw": _ADAM, "lamb": _ADAM,
    "adagrad": {"lr": 1e-2, "weight_decay": 0.0, "eps": 1e-10},
    "lion": {"lr": 1e-3, "weight_decay": 0.0, "betas": (0.9, 0.99)},
    "sgd": {"lr": 1e-3, "weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0},
    "muon": {},  # the engine gives each half of a group its own
}


def initialize(args: argparse.Namespace | None = None, model: torch.nn.Module | None = None,
               optimizer: torch.optim.Optimizer | Callable[[Any], torch.optim.Optimizer] | None = None,
               model_parameters: Groups | None = None, training_data: torch.utils.data.Dataset[Any] | None = None,
               lr_scheduler: Any = None, distributed_port: int = 29500, mpu: object = None, dist_init_required: bool | None = None,
               collate_fn: Callable[[list[Any]], Any] | None = None, config: dict[str, Any] | str | os.PathLike[str] | None = None,
               config_params: dict[str, Any] | str | os.PathLike[str] | None = None, *, comm: Comm | None = None,
               ) -> tuple[Engine, ZeroOptimizer, torch.utils.data.DataLoader[Any] | None, Any]:
    """DeepSpeed's initialize: (engine, optimizer, training dataloader, learning-rate scheduler).

    model: a torch.nn.Module with its parameters on the CPU or on one GPU of CUDA. There the engine is, and they become views of its
    memory. optimizer: CPUAdam or an Adam or AdamW of PyTorch, whose groups and hyperparameters are taken, or another optimizer, which
    then makes the updates; default: the configuration's. model_parameters: parameters or parameter groups to train; default all. comm: an outrigger.Comm; default: the launcher's group of processes. Collective.

    ValueError: an argument is missing or contradicts another; NotImplementedError: what is not built, by name; ConfigError:
    a ValueError, an AssertionError and an OutriggerError E_CONFIG, with path and remedy; OutriggerError: E_MISMATCH where
    ranks differ, E_OUT_OF_MEMORY."""
    if model is None:
        raise ValueError("initialize needs model=, a torch.nn.Module")
    if mpu is not None:
        raise NotImplementedError("mpu= (tensor and pipeline parallelism) is not supported: give the data-parallel group as comm=")
    settings = Settings(given(args, config, config_params))
    if callable(optimizer) and not isinstance(optimizer, torch.optim.Optimizer):
        optimizer = optimizer(groups_of(model, model_parameters))
    groups, defaults, optimizer = _groups(settings.library, model, optimizer, model_parameters)
    if comm is None:
        distributed.init_distributed(distributed_port=distributed_port, dist_init_required=dist_init_required)
        comm = launched_comm()
    try:
        engine = Engine(model, comm, settings, groups, defaults, optimizer)
    except OutriggerError as error:
        if error.name == "OTR_E_CONFIG":
            raise ConfigError(error.code, error.text) from None
        raise
    if lr_scheduler is None:
        lr_scheduler = lr_schedules.from_config(settings.scheduler, engine.optimizer)
    elif callable(lr_scheduler):
        lr_scheduler = lr_scheduler(engine.optimizer)
    engine.lr_scheduler = lr_scheduler
    if engine.global_rank == 0:
        for monitor in monitors(settings.given, engine.train_batch_size() or 1):
            engine.watch(monitor)
    if training_data is not None:
        engine.training_dataloader = engine.deepspeed_io(training_data, collate_fn=collate_fn)
    return engine, engine.optimizer, engine.training_dataloader, engine.lr_scheduler


def _groups(config: dict[str, Any], model: torch.nn.Module, optimizer: torch.optim.Optimizer | None,
            model_parameters: Groups | None) -> tuple[list[dict[str, Any]], dict[str, Any], torch.optim.Optimizer | None]:
    """Parameter groups with all hyperparameters, the defaults and the optimizer of PyTorch; config gets its rule."""
    if optimizer is not None and config.get("optimizer"):
        log.warning("both optimizer= and the configuration's \"optimizer\" are given; optimizer= is used")
        config["optimizer"] = None
    if optimizer is None:
        groups = groups_of(model, model_parameters)
        optimizer = from_config(config, groups)
    if optimizer is None:
        named = config.get("optimizer") or {}
        params = named.get("params") or {}
        rule = _DEFAULTS.get(str(named.get("type", "AdamW")).lower(), _ADAM)  # the library refuses an unknown one
        defaults = {name: params.get(name, value) for name, value in rule.items()}
        return [{**defaults, **group} for group in groups], defaults, None
    first = optimizer.param_groups[0]
    if isinstance(optimizer, CPUAdam):
        config["optimizer"] = optimizer.library_config(first)
        _guard_states(config, optimizer)
    elif _is_plain_adam(optimizer):
        decoupled = type(optimizer) is torch.optim.AdamW or bool(first.get("decoupled_weight_decay"))
        config["optimizer"] = rule_of("AdamW", first) if decoupled else rule_of("Adam", first, adam_w_mode=False)
    else:
        hand_over(config, optimizer)
    return optimizer.param_groups, optimizer.defaults, optimizer


def _is_plain_adam(optimizer: torch.optim.Optimizer) -> bool:
    """One that the library's update is."""
    groups = optimizer.param_groups
    return (type(optimizer) in (torch.optim.Adam, torch.optim.AdamW)
            and not any(group.get(option) for group in groups for option in _VARIANTS)
            and len({bool(group.get("decoupled_weight_decay")) for group in groups}) == 1)


def _guard_states(config: dict[str, Any], optimizer: CPUAdam) -> None:
    """A caller's optimizer and a configuration that say different formats of the moments: DeepSpeed asserts, too. What
    outrigger.states says of a moment is said in full, and holds whatever the optimizer would keep by itself."""
    asked = bool((config.get("bf16") or {}).get("bf16_optimizer_states"))
    states = (config.get("outrigger") or {}).get("states") or {}
    if all((states.get(moment) or {}).get("format") for moment in ("exp_avg", "exp_avg_sq")):
        return
    if asked and optimizer.fp32_optimizer_states:
        raise ConfigError(lowlevel.E_CONFIG, "bf16.bf16_optimizer_states is true, but optimizer= is a CPUAdam with fp32_optimizer_states=True "
                          "(the default): moments are either bfloat16 or float32; make it with fp32_optimizer_states=False, or set "
                          "bf16.bf16_optimizer_states to false, or leave optimizer= out, and the configuration's optimizer has bfloat16 moments")
    if not asked and not optimizer.fp32_optimizer_states:
        raise ConfigError(lowlevel.E_CONFIG, "optimizer= is a CPUAdam with fp32_optimizer_states=False, but bf16.bf16_optimizer_states is false: "
                          "moments are either bfloat16 or float32; set bf16.bf16_optimizer_states and bf16.bf16_master_weights_and_grads to "
                          "true, or make it with fp32_optimizer_states=True, or choose the formats with outrigger.states")
