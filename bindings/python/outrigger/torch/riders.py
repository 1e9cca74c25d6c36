# SPDX-License-Identifier: Apache-2.0
"""What rides along in a checkpoint of the library: the part of a rank's training that is PyTorch's or the script's.

One part for each rank, bytes of torch.save. They are read by torch.load(weights_only=True), which runs no code of theirs, and
what that would not read is refused when it is saved."""
from __future__ import annotations

import collections
import copy
import io
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch

from .host_optimizer import HostOptimizer
from .partial import Choice

PART = "torch"
_VERSION = 1
_DICTIONARIES = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_COUNTERS = ("global_steps", "skipped_steps", "_micro_steps", "backwards")
_SHOWN = {"scheduler": "lr_scheduler.state_dict()", "groups": "optimizer.param_groups", "optimizer": "the optimizer's state_dict()",
          "extra": "the modules' get_extra_state()"}


# ---- As bytes ----

def pack(engine: Any, client_state: Any) -> bytes:
    """TypeError: something in it could not be read again; names it."""
    state = {"version": _VERSION, "client_state": {} if client_state is None else client_state, "buffers": dict(_buffers(engine)),
             "tied": _tied(engine.module), "extra": _extra(engine.module), "scheduler": _scheduler(engine), "groups": _groups(engine), "optimizer": _optimizer(engine),
             "random": _random(engine), "counters": {name: getattr(engine, name) for name in _COUNTERS}}
    state = _plain(state)
    try:
        return _bytes(state)
    except Exception:
        for section, value in state.items():
            _require_readable(_SHOWN.get(section, section), value)
        raise


def unpack(data: bytes) -> dict[str, Any]:
    """ValueError: of a later release."""
    state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    if state["version"] > _VERSION:
        raise ValueError(f"the checkpoint's part {PART!r} has version {state['version']}; this release reads up to {_VERSION}: use a later one")
    return state


def _bytes(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    data = file.getvalue()
    try:
        torch.load(io.BytesIO(data), map_location="meta", weights_only=True)  # without the tensors' values
    except NotImplementedError:  # a kind of tensor that "meta" has not
        torch.load(io.BytesIO(data), weights_only=True)
    return data


def _require_readable(name: str, value: Any) -> None:
    """Goes down to what cannot be read, for its name."""
    try:
        _bytes(value)
    except Exception as error:
        for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ():
            _require_readable(f"the key {key!r} of {name}", key)
            _require_readable(f"{name}[{key!r}]", each)
        way = ("save a dict of it" if isinstance(value, collections.defaultdict) else  # torch.load fills none
               "save tensors, numbers, texts, and lists and dictionaries of them, or declare its class safe, here and where it is loaded, by "
               "torch.serialization.add_safe_globals")
        raise TypeError(f"save_checkpoint: {name} is a {type(value).__module__}.{type(value).__qualname__}, which torch.load(weights_only=True) does not "
                        f"read, and nothing else reads a checkpoint; {way}") from error


def _plain(value: Any) -> Any:
    """Numbers of NumPy, which schedules leave behind, are Python's, keys and elements of a set among them."""
    if type(value) in _DICTIONARIES:
        made = copy.copy(value)  # with its default, or attributes such as a state_dict's _metadata
        made.clear()
        for key, each in value.items():
            made[_plain(key)] = _plain(each)
        return made
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_plain(each) for each in value)
    numpy = sys.modules.get("numpy")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


# ---- The module ----

def _places(engine: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """What the module's state_dict has beside the engine's parameters: persistent buffers, and frozen parameters of integers."""
    for prefix, module in engine.module.named_modules():
        kept = {key: each for key, each in module._buffers.items() if key not in module._non_persistent_buffers_set}
        kept.update((key, each) for key, each in module._parameters.items() if each is not None and each not in engine.parameters_of.ids)
        for key, each in kept.items():
            if each is not None:
                yield f"{prefix}.{key}" if prefix else key, each


def _buffers(engine: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for name, each in _places(engine):
        yield name, each.detach().clone().cpu()


def _tied(module: torch.nn.Module) -> dict[str, str]:
    """Of a parameter with several names each other one: the first. For who reads a checkpoint without the module."""
    first = {parameter: name for name, parameter in module.named_parameters()}
    return {name: first[parameter] for name, parameter in module.named_parameters(remove_duplicate=False) if name != first[parameter]}


def _extra(module: torch.nn.Module) -> dict[str, Any]:
    return {name: each.get_extra_state() for name, each in module.named_modules() if _has_extra(each)}


def _has_extra(module: torch.nn.Module) -> bool:
    return type(module).get_extra_state is not torch.nn.Module.get_extra_state


def extra_keys(module: torch.nn.Module) -> list[str]:
    """What a state_dict calls them."""
    return [_extra_key(name) for name, each in module.named_modules() if _has_extra(each)]


def require_module(engine: Any, state: dict[str, Any], choice: Choice) -> None:
    """ValueError: other buffers here than there; of a choice of some, one that is not there."""
    here, there = {choice.there(name): own for name, own in _places(engine) if choice.takes(name)}, state.get("buffers", {})
    missing, more = sorted(here.keys() - there.keys()), [] if choice.chooses else sorted(there.keys() - here.keys())
    if missing or more:
        raise ValueError(f"load_checkpoint: the module's buffers are not the checkpoint's: it has no {missing or 'other'}, and {more or 'no other'} too many; "
                         "load_module_strict=False with load_module_only=True takes what both have")
    for name, own in here.items():
        if own.shape != there[name].shape:
            raise ValueError(f"load_checkpoint: the buffer {name!r} has shape {tuple(own.shape)}, in the checkpoint {tuple(there[name].shape)}")


def restore_module(engine: Any, state: dict[str, Any], choice: Choice) -> None:
    """Those that are here and there in one shape, and chosen. A module's extra state has the name of its key in a state_dict."""
    there = state.get("buffers", {})
    with torch.no_grad():
        for name, own in _places(engine):
            found = there.get(choice.there(name)) if choice.takes(name) else None
            if found is not None and own.shape == found.shape:
                own.copy_(found)
    extra = {_extra_key(name): each for name, each in state.get("extra", {}).items()}
    for name, each in engine.module.named_modules():
        key = _extra_key(name)
        if choice.takes(key) and choice.there(key) in extra:
            each.set_extra_state(extra[choice.there(key)])


def _extra_key(module: str) -> str:
    return f"{module}._extra_state" if module else "_extra_state"


# ---- The optimizer, its groups and the schedule ----

def _groups(engine: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in group.items() if name != "params"} for group in engine.optimizer.param_groups]


def _scheduler(engine: Any) -> Any:
    return engine.lr_scheduler.state_dict() if hasattr(engine.lr_scheduler, "state_dict") else None


def _optimizer(engine: Any) -> dict[str, Any] | None:
    """Of an optimizer of PyTorch, which has states of its own."""
    if not isinstance(engine.optimizer, HostOptimizer):
        return None
    return {"type": type(engine.basic_optimizer).__name__, "slices": engine.optimizer.slices(), "state": engine.optimizer.state_dict(),
            "world": engine.world_size, "stage": engine.zero_optimization_stage()}


def require_optimizer(engine: Any, state: dict[str, Any], choice: Choice) -> None:
    """ValueError: the checkpoint's states do not fit the optimizer that there is."""
    groups = state.get("groups")
    if groups is not None and len(groups) != len(engine.optimizer.param_groups):
        raise ValueError(f"load_checkpoint: the checkpoint has {len(groups)} parameter groups, this optimizer {len(engine.optimizer.param_groups)}; make it "
                         "with the same ones, or load with load_optimizer_states=False")
    if not isinstance(engine.optimizer, HostOptimizer):
        return  # the library knows
    saved, kind = state.get("optimizer"), type(engine.basic_optimizer).__name__
    if saved is None or saved["type"] != kind:
        there = "none of PyTorch's" if saved is None else saved["type"]
        raise ValueError(f"load_checkpoint: the checkpoint's optimizer is {there}, and this engine's is {kind}; use the one that it was made with, or load "
                         "with load_optimizer_states=False")
    if saved["slices"] != [[choice.there(name), *range] for name, *range in engine.optimizer.slices()]:
        raise ValueError(f"load_checkpoint: the states of {kind} are slices of the {saved['world']} ranks that saved them at zero_optimization.stage "
                         f"{saved['stage']}, and here are other slices ({engine.world_size} ranks, stage {engine.zero_optimization_stage()}); load on as many "
                         "ranks at that stage, or with load_optimizer_states=False")


def require_scheduler(engine: Any, state: dict[str, Any]) -> None:
    """ValueError: there is a schedule that the checkpoint has nothing of."""
    if hasattr(engine.lr_scheduler, "load_state_dict") and state.get("scheduler") is None:
        raise ValueError(f"load_checkpoint: the checkpoint has no schedule, and this engine has a {type(engine.lr_scheduler).__name__}; load with "
                         "load_lr_scheduler_states=False, which lets it start anew")


def restore_optimizer(engine: Any, state: dict[str, Any]) -> None:
    if state.get("optimizer") is not None and isinstance(engine.optimizer, HostOptimizer):
        engine.optimizer.load_state_dict(state["optimizer"]["state"])
    engine.optimizer.resumed(state.get("groups"))


def restore_scheduler(engine: Any, state: dict[str, Any]) -> None:
    if hasattr(engine.lr_scheduler, "load_state_dict"):
        engine.lr_scheduler.load_state_dict(state["scheduler"])


# ---- Counters and random states ----

def restore_counters(engine: Any, state: dict[str, Any]) -> None:
    for name, value in state.get("counters", {}).items():
        if name in _COUNTERS:
            setattr(engine, name, value)


def _random(engine: Any) -> dict[str, Any]:
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, key, *rest = numpy.random.get_state(legacy=True)
        if kind == "MT19937":  # unless the script has put another in its place
            states["numpy"] = (kind, key.tolist(), *rest)
    device = engine._device.random_state()
    if device is not None:
        states[engine.device.type] = device
    return states


def restore_random(engine: Any, state: dict[str, Any]) -> None:
    states = state.get("random", {})
    if "torch" in states:
        torch.set_rng_state(states["torch"])
    if "python" in states:
        random.setstate(states["python"])
    if "numpy" in states:
        import numpy
        numpy.random.set_state(states["numpy"])
    if engine._device.place is not None and engine.device.type in states:
        engine._device.set_random_state(states[engine.device.type])
