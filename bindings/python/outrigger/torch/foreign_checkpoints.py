# SPDX-License-Identifier: Apache-2.0
"""load_checkpoint of a folder that DeepSpeed or torch.distributed.checkpoint saved: its values become the engine's, on any number of ranks, at any stage and in any format."""
from __future__ import annotations

import logging
from typing import Any

import numpy
import torch

from .. import Checkpoint, foreign, lowlevel
from ..foreign.conversion import buffers_in
from ..foreign.objects import plain
from ..foreign.tensors import Tensor
from . import riders, tied
from .host_optimizer import HostOptimizer
from .partial import EVERYTHING, Choice

log = logging.getLogger("outrigger.torch")
_HYPERPARAMETERS = ("lr", "initial_lr", "weight_decay", "betas", "eps", "momentum", "dampening")


class Plan:
    """What of a checkpoint goes where in an engine. Made on each rank; making it changes nothing.

    ForeignError: the checkpoint cannot be read; ValueError: it does not fit."""

    def __init__(self, engine: Any, folder: str, strict: bool, states: bool) -> None:
        names = {parameter: engine.parameters_of.name_of(parameter) for parameter in engine.parameters_of.ids}
        order = [[names[each] for each in group["params"]] for group in engine.optimizer.param_groups]
        self.engine, self.states = engine, states
        self.source = foreign.open(folder, order=order)
        self.writes: list[tuple[torch.Tensor, str, str, int]] = []  # parameter, name there, value there, value here
        self.names = names
        self._match(strict)
        if states:
            self._require_states()

    def _match(self, strict: bool) -> None:
        there, root = self.source.parameters, self.source.aliases
        missing: list[str] = []
        taken: set[str] = set()
        several = tied.names_of(self.engine.module)
        for parameter, name in self.names.items():
            here = [root.get(each, each) for each in several.get(name, [name])]
            found = max((each for each in here if each in there), key=lambda each: len(self.source.values(each)), default=None)  # the one that was trained
            if found is None:
                missing.append(name)
                continue
            taken.update(each for each in here if each in there)
            if there[found] != tuple(parameter.shape):
                raise ValueError(f"load_checkpoint: the parameter {name!r} has shape {tuple(parameter.shape)}, in the checkpoint {there[found]}")
            self.writes.append((parameter, found, self._weight(found), lowlevel.VALUE_MASTER))
            if self.engine.global_rank == 0:
                tied.require_equal(lambda each: self.source.read(each, self._weight(each)), found, {each for each in here if each in there and each != found})
        # Of a distributed checkpoint, buffers may stand among the parameters.
        known = {name for name, _ in riders._places(self.engine)}
        more = sorted(set(there) - taken - known)
        if (missing or more) and (strict or self.states):
            raise ValueError(f"load_checkpoint: the parameters are not the checkpoint's: it has no {missing or 'other'}, and {more or 'no other'} too many; "
                             "load_module_strict=False with load_optimizer_states=False takes what both have")

    def _require_states(self) -> None:
        engine = self.engine
        if isinstance(engine.optimizer, HostOptimizer):
            raise ValueError(f"load_checkpoint: the states of {type(engine.basic_optimizer).__name__}, an optimizer of PyTorch, are not taken from a checkpoint of another library; "
                             "load with load_optimizer_states=False")
        if len(self.source.progress.groups) not in (0, len(engine.optimizer.param_groups)):
            raise ValueError(f"load_checkpoint: the checkpoint has {len(self.source.progress.groups)} parameter groups, this optimizer {len(engine.optimizer.param_groups)}; "
                             "make it with the same ones, or load with load_optimizer_states=False")
        for parameter, name, _, _ in list(self.writes):
            for text, value in tied.moments_of(engine, parameter).items():
                if text not in self.source.values(name):
                    raise tied.no_moment(engine, text, name)
                self.writes.append((parameter, name, text, value))

    def _weight(self, name: str) -> str:
        return "master" if "master" in self.source.values(name) else "published"

    def progress(self) -> dict[str, Any]:
        """The library's, as it is with the checkpoint's steps."""
        source, own = self.source.progress, self.engine._library.get_progress()
        applied = source.global_steps - source.skipped_steps
        own["steps"] = {"micro": source.global_steps * self.engine.gradient_accumulation_steps(), "applied": applied, "skipped": source.skipped_steps}
        scaler = {key: int(value) if key != "scale" else float(value) for key, value in (source.loss_scale or {}).items()}
        own["loss_scaler"].update(scaler)
        updates = {name: source.updates.get(there, applied) for parameter, there, value, _ in self.writes if value == "master"
                   for name in (self.names[parameter],) if self.engine.parameters_of.learns(parameter)}
        if updates:
            tied.set_updates(own, updates)
        return own

    def state(self) -> dict[str, Any]:
        """What rides along in an own checkpoint."""
        source = self.source
        gas = self.engine.gradient_accumulation_steps()
        groups = [{key: group[key] for key in _HYPERPARAMETERS if key in group and key in own}
                  for group, own in zip(source.progress.groups, self.engine.optimizer.param_groups)]
        counters = {"global_steps": source.progress.global_steps, "skipped_steps": source.progress.skipped_steps,
                    "_micro_steps": source.progress.global_steps * gas, "backwards": source.progress.global_steps * gas}
        parameters = {name for name, _ in self.engine.module.named_parameters(remove_duplicate=False)} - {name for name, _ in riders._places(self.engine)}
        buffers = {name: tensor for name, tensor in source._buffers.items() if name not in parameters}
        return {"buffers": plain(buffers, _torch), "scheduler": plain(source._scheduler, _torch), "client_state": plain(source._client, _torch),
                "groups": groups or None, "counters": counters}

    def write(self) -> None:
        """Collective. Rank 0 reads the values, the library gives each rank its part, rounded to nearest where its format is another."""
        engine = self.engine
        for parameter, name, value, here in self.writes:
            values = self.source.read(name, value) if engine.global_rank == 0 else numpy.empty(tuple(parameter.shape), numpy.float32)
            engine._library.write(engine.id_of(parameter), values, here)


def buffers_of(engine: Any, checkpoint: Checkpoint, choice: Choice) -> dict[str, torch.Tensor]:
    """Of a checkpoint of this library that another program saved: those of a conversion, and what is a parameter there and a buffer here."""
    found = buffers_in(checkpoint)
    trainable = {each["name"]: each["trainable"] for each in checkpoint.description["parameters"]}
    for name, own in riders._places(engine):
        there = choice.there(name)
        if there in trainable and there not in found and own.is_floating_point():
            found[there] = checkpoint.read(there, lowlevel.VALUE_MASTER if trainable[there] else lowlevel.VALUE_PUBLISHED)
    return {name: torch.from_numpy(value.copy()) for name, value in found.items()}


def _torch(tensor: Tensor) -> torch.Tensor:
    tensor.check()
    if tensor.dtype == "bfloat16":
        return torch.from_numpy(tensor.float32()).to(torch.bfloat16)
    return torch.from_numpy(tensor.array().copy()).reshape(tensor.shape)


def load(engine: Any, folder: str, together: Any, strict: bool, states: bool, scheduler: bool, module_only: bool) -> tuple[str, Any]:
    """The body of load_checkpoint. together: runs a part of it on each rank, and raises on all what it raises on one."""
    def read() -> tuple[Plan, dict[str, Any], dict[str, Any]]:
        plan = Plan(engine, folder, strict, states)
        state = plan.state()
        if strict:
            riders.require_module(engine, state, EVERYTHING)
        if scheduler:
            riders.require_scheduler(engine, state)
        plan.source.verify(engine.global_rank, engine.world_size)
        return plan, state, plan.progress()

    plan, state, progress = together(engine._comm, "load_checkpoint", read)
    if states:
        engine._library.set_progress(progress)
    engine._take_what_was_written()
    plan.write()
    engine._restore(state, states, scheduler, module_only)
    if engine.global_rank == 0:
        log.info("load_checkpoint: %s is a checkpoint of %s; random states are not in it", folder, plan.source.kind)
    return folder, state["client_state"]
