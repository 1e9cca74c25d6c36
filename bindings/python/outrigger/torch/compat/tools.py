# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's small functions that scripts and libraries call beside an engine."""
import contextlib
import functools
import logging
import os
import random

import torch
import torch.distributed

from .. import utils
from ..engine import Engine
from ..owned import engine_of
from .accelerator import get_accelerator

logger = logging.getLogger("outrigger.torch")
LEVELS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error", "critical")}


# ---- Logging ----

def log_dist(message, ranks=None, level=logging.INFO):
    """Logs on these ranks; None or -1 among them: on all."""
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    if not ranks or -1 in ranks or rank in ranks:
        logger.log(level, "[rank %d] %s", rank, message)


@functools.cache
def _log_once(message, ranks, level):
    log_dist(message, ranks, level)


def log_dist_once(message, ranks=None, level=logging.INFO):
    _log_once(message, tuple(ranks or ()), level)


def print_dist(message, ranks=None):
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    if not ranks or -1 in ranks or rank in ranks:
        print(f"[rank {rank}] {message}", flush=True)


def get_log_level_from_string(log_level_str):
    if log_level_str.lower() not in LEVELS:
        raise ValueError(f"log level {log_level_str!r} is not legal; legal: {', '.join(LEVELS)}")
    return LEVELS[log_level_str.lower()]


def set_log_level_from_string(log_level_str, custom_logger=None):
    (custom_logger or logger).setLevel(get_log_level_from_string(log_level_str))


def get_current_level():
    return logger.getEffectiveLevel()


def should_log_le(max_log_level_str):
    return get_current_level() <= get_log_level_from_string(max_log_level_str)


def see_memory_usage(message, force=False):
    """What the process holds, as the system counts it."""
    resident = get_accelerator().memory_allocated()
    logger.log(logging.INFO if force else logging.DEBUG, "%s: %.2f GB resident", message, resident / 2**30)


# ---- Models ----

class OnDevice:
    """Tensors are made with this dtype on this device ("meta": without memory), where it is enabled."""

    def __init__(self, dtype, device="meta", enabled=True):
        self._dtype, self._device = dtype, torch.device(device) if enabled else None

    def __enter__(self):
        self._before = torch.get_default_dtype()
        if self._device is not None:
            torch.set_default_dtype(self._dtype)
            self._device.__enter__()
        return self

    def __exit__(self, *error):
        if self._device is not None:
            self._device.__exit__(*error)
        torch.set_default_dtype(self._before)


@contextlib.contextmanager
def unwrap_model_for_generation(model):
    """The module with whole parameters, for generate()."""
    module = model.module if isinstance(model, Engine) else model
    with contextlib.ExitStack() as whole:
        engines: dict[Engine, list[torch.Tensor]] = {}
        for parameter in module.parameters():
            engine = engine_of(parameter)
            if engine is not None:
                engines.setdefault(engine, []).append(parameter)
        for engine, parameters in engines.items():
            whole.enter_context(engine.whole(parameters))
        yield module


def register_external_parameter(module, parameter):
    """Parameters are readable outside of their modules, too: nothing to do."""


def is_zero_param(parameter):
    engine = engine_of(parameter)
    return engine is not None and engine.zero_optimization_stage() == 3


def clone_tensors_for_torch_save(item, device="cpu"):
    """A copy with copies of all tensors: views of an engine's memory would be saved with all of it."""
    if torch.is_tensor(item):
        return item.detach().to(device, copy=True)
    if isinstance(item, (list, tuple)):
        return type(item)(clone_tensors_for_torch_save(each, device) for each in item)
    if isinstance(item, dict):
        return type(item)({name: clone_tensors_for_torch_save(each, device) for name, each in item.items()})
    return item


def set_z3_leaf_modules_by_name(model, module_names, raise_if_not_found=True):
    """utils.set_z3_leaf_modules by the modules' own names."""
    return _leaves(model, lambda name: name in module_names, module_names, raise_if_not_found)


def set_z3_leaf_modules_by_suffix(model, module_name_suffixes, raise_if_not_found=True):
    return _leaves(model, lambda name: name.endswith(tuple(module_name_suffixes)), module_name_suffixes, raise_if_not_found)


def _leaves(model, is_one, names, required):
    found = [module for name, module in model.named_modules() if is_one(name)]
    if required and not found:
        raise ValueError(f"no module of the model is named {', '.join(names)}")
    for module in found:
        utils.set_z3_leaf_module(module, True)
    return found


# ---- Odds and ends ----

def set_random_seed(seed):
    import numpy
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def instrument_w_nvtx(function):
    return function


def noop_context():
    return contextlib.nullcontext()


def ensure_directory_exists(filename):
    os.makedirs(os.path.dirname(os.path.abspath(filename)), exist_ok=True)


def recursive_getattr(model, module_name):
    return functools.reduce(getattr, module_name.split("."), model)


def recursive_setattr(model, module_name, module):
    parent, _, name = module_name.rpartition(".")
    setattr(recursive_getattr(model, parent) if parent else model, name, module)


def load_ds_config(config):
    """The configuration as a dictionary."""
    from ..config import read
    return read(config)


def is_current_accelerator_supported():
    return True


def zero_wrapper_for_fp_tensor_constructor(fn, target_fp_dtype=None, target_device=None):
    """Of DeepSpeed's zero.Init, which transformers replaces for a while; here constructors stay PyTorch's."""
    return fn
