# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's functions that read and write a parameter's master, states and gradient, by its names.

full: the whole value, as float32, collective over the engine's ranks. local: what this rank updates, 1-D; local. States are
"exp_avg" and "exp_avg_sq". Gradients: from the window's last backward until step(); unscaled, averaged over ranks."""
from .. import lowlevel
from .registry import require_engine

_STATES = {"exp_avg": lowlevel.VALUE_EXP_AVG, "exp_avg_sq": lowlevel.VALUE_EXP_AVG_SQ}


def _state(key):
    if key not in _STATES:
        raise ValueError(f"optimizer state {key!r} is not legal; legal: {', '.join(_STATES)}")
    return _STATES[key]


def safe_get_full_fp32_param(param):
    return require_engine(param, "safe_get_full_fp32_param").read(param, lowlevel.VALUE_MASTER)


def safe_set_full_fp32_param(param, value):
    require_engine(param, "safe_set_full_fp32_param").write(param, value, lowlevel.VALUE_MASTER)


def safe_get_full_optimizer_state(param, optim_state_key):
    return require_engine(param, "safe_get_full_optimizer_state").read(param, _state(optim_state_key))


def safe_set_full_optimizer_state(param, value, optim_state_key):
    require_engine(param, "safe_set_full_optimizer_state").write(param, value, _state(optim_state_key))


def safe_get_full_grad(param):
    """None before the window's gradients are complete."""
    engine = require_engine(param, "safe_get_full_grad")
    return engine.read(param, lowlevel.VALUE_GRAD) if engine.reduce() else None


def safe_set_full_grad(param, value):
    engine = require_engine(param, "safe_set_full_grad")
    engine.require_reduced("safe_set_full_grad")
    engine.write(param, value, lowlevel.VALUE_GRAD)


def safe_update_full_grad_vectorized(param_list, update_func):
    """update_func(gradient, parameter) → the new gradient, for each of the parameters."""
    for param in param_list:
        safe_set_full_grad(param, update_func(safe_get_full_grad(param), param))


def safe_get_local_grad(param):
    engine = require_engine(param, "safe_get_local_grad")
    return engine.read_local(param, lowlevel.VALUE_GRAD) if engine.reduce() else None


def safe_set_local_grad(param, value):
    engine = require_engine(param, "safe_set_local_grad")
    engine.require_reduced("safe_set_local_grad")
    engine.write_local(param, value, lowlevel.VALUE_GRAD)


def safe_get_local_fp32_param(param):
    return require_engine(param, "safe_get_local_fp32_param").read_local(param, lowlevel.VALUE_MASTER)


def safe_set_local_fp32_param(param, value):
    require_engine(param, "safe_set_local_fp32_param").write_local(param, value, lowlevel.VALUE_MASTER)


def safe_get_local_optimizer_state(param, optim_state_key):
    return require_engine(param, "safe_get_local_optimizer_state").read_local(param, _state(optim_state_key))


def safe_set_local_optimizer_state(param, value, optim_state_key):
    require_engine(param, "safe_set_local_optimizer_state").write_local(param, value, _state(optim_state_key))


def set_z3_leaf_modules(model, leaf_module_classes):
    """Modules of these classes (or names of classes) whose parameters are gathered together when they are called, and stay
    until the step: for those in which each rank takes another branch. Before initialize. Returns them. Where ranks share
    parameters nothing is gathered, and this changes nothing."""
    names = {each if isinstance(each, str) else each.__qualname__ for each in leaf_module_classes}
    found = [each for each in model.modules() if type(each).__name__ in names or type(each).__qualname__ in names]
    if not found:
        raise ValueError(f"no module of the model has one of the classes {', '.join(sorted(names))}")
    for each in found:
        each._z3_leaf = True
    return found


def unset_z3_leaf_modules(model, leaf_module_classes):
    found = set_z3_leaf_modules(model, leaf_module_classes)
    for each in found:
        each._z3_leaf = False
    return found


def set_z3_leaf_module(model, flag):
    """The same for one module."""
    model._z3_leaf = flag


def get_z3_leaf_modules(model):
    return [each for each in model.modules() if z3_leaf_module(each)]


def z3_leaf_module(model):
    return getattr(model, "_z3_leaf", False)


class RepeatingLoader:
    """An iterator that begins again where its loader ends."""

    def __init__(self, loader):
        self.loader = loader
        self._iterator = iter(loader)

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return next(self._iterator)
        except StopIteration:
            self._iterator = iter(self.loader)
            return next(self._iterator)
