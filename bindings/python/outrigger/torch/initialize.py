# SPDX-License-Identifier: Apache-2.0
"""initialize: from a module and a configuration to an engine."""
import torch

from ..process import process_comm
from . import distributed, lr_schedules
from .adam import CPUAdam
from .config import Settings, given
from .engine import Engine
from .parameters import groups_of, rule_of

_CLASSES = {torch.optim.AdamW: ("AdamW", {}), torch.optim.Adam: ("Adam", {"adam_w_mode": False})}
_DEFAULTS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}


def initialize(args=None, model=None, optimizer=None, model_parameters=None, training_data=None, lr_scheduler=None,
               distributed_port=29500, mpu=None, dist_init_required=None, collate_fn=None, config=None, config_params=None, *,
               comm=None):
    """DeepSpeed's initialize: (engine, optimizer, training dataloader, learning-rate scheduler).

    model: a torch.nn.Module on the CPU; its parameters become views of the engine's memory. optimizer: an Adam or AdamW of
    PyTorch, whose groups and hyperparameters are taken; default: the configuration's. model_parameters: parameters or
    parameter groups to train; default all. comm: an outrigger.Comm; default: the launcher's group of processes."""
    if model is None:
        raise ValueError("initialize needs model=, a torch.nn.Module")
    if mpu is not None:
        raise NotImplementedError("mpu= (tensor and pipeline parallelism) is not supported: give the data-parallel group as comm=")
    settings = Settings(given(args, config, config_params))
    if callable(optimizer) and not isinstance(optimizer, torch.optim.Optimizer):
        optimizer = optimizer(groups_of(model, model_parameters))
    groups, defaults = _groups(settings.library, model, optimizer, model_parameters)
    if comm is None:
        distributed.init_distributed(distributed_port=distributed_port, dist_init_required=dist_init_required)
        comm = process_comm()
    engine = Engine(model, comm, settings, groups, defaults, optimizer)
    if lr_scheduler is None:
        lr_scheduler = lr_schedules.from_config(settings.scheduler, engine.optimizer)
    elif callable(lr_scheduler):
        lr_scheduler = lr_scheduler(engine.optimizer)
    engine.lr_scheduler = lr_scheduler
    if training_data is not None:
        engine.training_dataloader = engine.deepspeed_io(training_data, collate_fn=collate_fn)
    return engine, engine.optimizer, engine.training_dataloader, engine.lr_scheduler


def _groups(config, model, optimizer, model_parameters):
    """Parameter groups with all hyperparameters, and the defaults; config gets the optimizer's rule."""
    if optimizer is None:
        params = (config.get("optimizer") or {}).get("params") or {}
        defaults = {name: params.get(name, value) for name, value in _DEFAULTS.items()}
        return [{**defaults, **group} for group in groups_of(model, model_parameters)], defaults
    if config.get("optimizer"):
        raise ValueError("both optimizer= and the configuration's \"optimizer\" are given; keep one")
    for option in ("amsgrad", "maximize", "differentiable", "capturable"):
        if any(group.get(option) for group in optimizer.param_groups):
            raise NotImplementedError(f"{type(optimizer).__name__} with {option}=True is not supported")
    first = optimizer.param_groups[0]
    if isinstance(optimizer, CPUAdam):
        config["optimizer"] = optimizer.library_config(first)
        _guard_states(config, optimizer)
    elif type(optimizer) in _CLASSES:
        name, more = _CLASSES[type(optimizer)]
        config["optimizer"] = rule_of(name, first, **more)
    else:
        raise NotImplementedError(f"optimizer={type(optimizer).__name__}: this engine has the updates of Adam and AdamW; give "
                                  "torch.optim.AdamW, torch.optim.Adam or outrigger.torch.CPUAdam, or name one in the configuration")
    return optimizer.param_groups, optimizer.defaults


def _guard_states(config, optimizer):
    """A caller's optimizer that says float32 states, and a configuration that says bfloat16, cannot both hold."""
    asked = (config.get("bf16") or {}).get("bf16_optimizer_states")
    if asked and optimizer.fp32_optimizer_states:
        raise ValueError("bf16.bf16_optimizer_states is true, but the optimizer= that was given keeps float32 states; make it with "
                         "fp32_optimizer_states=False, or leave optimizer= out")
    if not asked and not optimizer.fp32_optimizer_states:
        raise ValueError("the optimizer= that was given has fp32_optimizer_states=False, which needs bf16.bf16_optimizer_states: true")
