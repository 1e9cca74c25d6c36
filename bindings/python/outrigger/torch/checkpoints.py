# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's save_checkpoint and load_checkpoint. Weights, moments and what the library counts are the library's; what else a
training is rides along (riders.py)."""
from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from .. import Checkpoint, foreign, lowlevel
from . import foreign_checkpoints, riders, tied, zero_to_fp32
from .partial import EVERYTHING, Choice
from .pytorch import untraced

if TYPE_CHECKING:
    import torch

    from .. import Comm
    from .. import Engine as LibraryEngine
    from ..checkpoint import Patterns
    from .calls import Calls
    from .devices import Device
    from .optimizer import ZeroOptimizer
    from .parameters import Parameters

log = logging.getLogger("outrigger.torch")
Path = str | os.PathLike[str]
T = TypeVar("T")
_TEXT = 400  # bytes of a rank's error that others hear


class Checkpoints:
    """Both calls are collective, between two windows, and raise the same on all ranks: OutriggerError as outrigger.Engine.save
    and load do, RuntimeError for another rank's fault. Until values are written a failure leaves all as it was."""

    world_size: int
    global_rank: int
    global_steps: int
    parameters_of: Parameters
    _device: Device
    optimizer: ZeroOptimizer
    calls: Calls | None
    module: torch.nn.Module
    _library: LibraryEngine
    _comm: Comm
    _boundary: int

    if TYPE_CHECKING:  # of the engine
        def close_pass(self) -> None: ...
        def is_window_empty(self) -> bool: ...
        def _take_what_was_written(self) -> None: ...

    @untraced
    def save_checkpoint(self, save_dir: Path, tag: str | int | None = None, client_state: Any = None, save_latest: bool = True,
                        exclude_frozen_parameters: bool = False, asynchronous: bool = False) -> bool:
        """Saves the training as save_dir/tag (default "global_step<N>"), in the place of what has that name, and makes it the latest.
        client_state: what the script wants back, this rank's. True: it is durable; with asynchronous=True, it is being
        written: wait_save() waits for its end, as does the next save_checkpoint.

        TypeError: client_state has what torch.load(weights_only=True) does not read; NotImplementedError: save_latest=False, or
        exclude_frozen_parameters=True where some are frozen; RuntimeError: in the middle of a window."""
        if not save_dir:
            raise ValueError(f"save_checkpoint: save_dir is {save_dir!r}; give a folder")
        if not save_latest:
            raise NotImplementedError("save_checkpoint: save_latest=False is not supported, a checkpoint becomes the latest with its last byte; save it "
                                      "into a folder of its own")
        if exclude_frozen_parameters and any(not self.parameters_of.learns(each) for each in self.parameters_of.ids):
            raise NotImplementedError("save_checkpoint: exclude_frozen_parameters=True is not supported where parameters are frozen; leave it out")
        self._require_between_windows("save_checkpoint")
        self._take_what_was_written()
        self.optimizer.send_hyperparameters()
        name = f"global_step{self.global_steps}" if tag is None else str(tag)

        def pack() -> bytes:
            os.makedirs(save_dir, exist_ok=True)
            return riders.pack(self, client_state)

        part = _together(self._comm, "save_checkpoint", pack)
        self._library.save(save_dir, name, parts={riders.PART: part}, replace=True, asynchronous=asynchronous)
        return True

    def wait_save(self, timeout: float = -1.0) -> lowlevel.SaveStatus:
        """How the last asynchronous save_checkpoint is getting on: see outrigger.Engine.wait_save."""
        return self._library.wait_save(timeout)

    @untraced
    def load_checkpoint(self, load_dir: Path, tag: str | int | None = None, load_module_strict: bool = True,
                        load_optimizer_states: bool = True, load_lr_scheduler_states: bool = True, load_module_only: bool = False,
                        custom_load_fn: Callable[..., Any] | None = None, *, include: Patterns | None = None, exclude: Patterns = (),
                        renamed: Mapping[str, str] | None = None, resized: Patterns = ()) -> tuple[str | None, Any]:
        """Goes on from load_dir/tag (None: the latest), whatever ranks, stage and formats it was made with, and also if DeepSpeed 0.19.8 saved
        it (foreign_checkpoints.py). Returns its path and the client_state; (None, None) with a warning where tag is None and no file names the latest.
        An asynchronous save of this engine ends first; if it failed, that is the error, once, and nothing has changed.

        load_module_only: parameters and buffers, nothing else. load_optimizer_states False: no moments, loss scale and
        hyperparameters, which start anew. load_module_strict False: parameters and buffers that are both here and there; with
        optimizer states all must be. custom_load_fn, with load_module_only: custom_load_fn(src=state_dict, dst=module) writes what it
        wants of the checkpoint's whole weights in float32 and rank 0's buffers into the module, on every rank alike, with
        load_state_dict or in GatheredParameters; what it does not write stays.

        include, exclude, resized, without optimizer states: patterns of the module's names of parameters and buffers, as of
        outrigger.Engine.load, which are taken, are not, and whose first dimension may be another one. renamed: what names here are in
        the checkpoint. With include or exclude load_module_strict is about what they choose, and counters and random states come along as
        without them.

        NotImplementedError: custom_load_fn with other states than the module's, or it or a choice of names of another library's checkpoint; ValueError: the
        checkpoint has other buffers, groups, or states of an optimizer of PyTorch than fit here, or no schedule; RuntimeError: in the
        middle of a window."""
        if custom_load_fn is not None and not load_module_only:
            raise NotImplementedError("load_checkpoint: custom_load_fn is not supported with the states of an optimizer, which belong to the weights that "
                                      "they were made with; add load_module_only=True")
        self._require_between_windows("load_checkpoint")
        # Before anything is read: the end of a save under way changes what is there.
        _together(self._comm, "load_checkpoint", self._library.wait_save)
        choice = Choice(include, exclude, renamed, resized)
        if choice.given and custom_load_fn is not None:
            raise ValueError(f"load_checkpoint: custom_load_fn chooses and renames by itself; leave out {' and '.join(choice.given)}")
        states = load_optimizer_states and not load_module_only
        if states and set(choice.given) - {"renamed"}:
            raise ValueError(f"load_checkpoint: {' and '.join(choice.given)} take a part of the weights, to which the optimizer's states and the progress do not "
                             "belong; add load_module_only=True or load_optimizer_states=False")
        schedule = load_lr_scheduler_states and not load_module_only
        folder = _together(self._comm, "load_checkpoint", lambda: foreign.find(load_dir, None if tag is None else str(tag)))
        if folder is not None and (custom_load_fn is not None or choice.given):
            raise NotImplementedError(f"load_checkpoint: {' and '.join(choice.given) or 'custom_load_fn'} is not supported for a checkpoint of another library; "
                                      "outrigger.foreign.convert makes it one of this")
        if folder is not None:
            return foreign_checkpoints.load(self, folder, _together, load_module_strict, states, schedule, load_module_only)
        latest = os.path.join(load_dir, "latest")
        if tag is None and not self._comm.all_gather(bytes([os.path.isfile(latest)]))[0]:
            log.warning("load_checkpoint: there is no file %s, so nothing was loaded; name the checkpoint by tag= if there is one", latest)
            return None, None
        if custom_load_fn is not None:
            return self._load_by(custom_load_fn, load_dir, None if tag is None else str(tag))

        def read() -> tuple[str, dict[str, Any], int, tied.Match, dict[str, Any] | None]:
            with Checkpoint(load_dir, None if tag is None else str(tag)) as checkpoint:
                state = self._part_of(checkpoint, choice)
                names = tied.Match(self, checkpoint, choice)
                if states and not load_module_strict:
                    self._require_same_parameters(checkpoint, names)
                if load_module_strict:
                    riders.require_module(self, state, choice)
                if states:
                    riders.require_optimizer(self, state, choice)
                if schedule:
                    riders.require_scheduler(self, state)
                progress = names.progress() if states and names.is_apart else None
                if progress is not None and self.global_rank == 0:
                    checkpoint.verify()
                return checkpoint.tag, state, checkpoint.ranks, names, progress

        name, state, ranks, names, progress = _together(self._comm, "load_checkpoint", read)
        if not states and (choice.given or not load_module_strict):
            self._take_what_was_written()  # of which the checkpoint may have nothing
        if progress is not None:
            names.load(load_dir, name, progress)
        elif (arguments := names.arguments()) is not None:
            self._library.load(load_dir, name, weights_only=not states, strict=load_module_strict or states, **arguments)
        self._restore(state, states, schedule, load_module_only, choice)
        if not load_module_only:
            if self.global_rank < ranks:
                riders.restore_random(self, state)
            if self.global_rank == 0 and ranks != self.world_size:
                log.warning("load_checkpoint: %s is of %d rank(s), and here are %d: those whose number it has not take rank 0's buffers, "
                            "schedule and counters, and keep their own random states", name, ranks, self.world_size)
        return os.path.join(load_dir, name), state.get("client_state", {})

    def _load_by(self, function: Callable[..., Any], load_dir: Path, tag: str | None) -> tuple[str, Any]:
        def read() -> tuple[str, dict[str, Any], dict[str, Any]]:
            with Checkpoint(load_dir, tag) as checkpoint:
                return checkpoint.tag, self._part_of(checkpoint, EVERYTHING), zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(load_dir, checkpoint.tag)

        name, state, weights = _together(self._comm, "load_checkpoint", read)
        self._take_what_was_written()  # before, which may fail
        _together(self._comm, "load_checkpoint", lambda: function(src=weights, dst=self.module))
        self._take_what_was_written()
        return os.path.join(load_dir, name), state.get("client_state", {})

    def _restore(self, state: dict[str, Any], states: bool, schedule: bool, module_only: bool, choice: Choice = EVERYTHING) -> None:
        """What rides along, after the library has taken other values. Local."""
        self._library.set_boundary(self._boundary)  # who ends windows is the script's to say
        if self.calls is not None:
            self.calls.forget()
        self.parameters_of.let_go()  # published() acquires them once more
        self.parameters_of.published()
        riders.restore_module(self, state, choice)
        if states:
            riders.restore_optimizer(self, state)
        if schedule:
            riders.restore_scheduler(self, state)
        if not module_only:
            riders.restore_counters(self, state)

    def _part_of(self, checkpoint: Checkpoint, choice: Choice) -> dict[str, Any]:
        data = checkpoint.parts(self.global_rank).get(riders.PART)
        if data is None:
            log.warning("load_checkpoint: %s has no part of PyTorch; another program saved it", checkpoint.tag)
            return {"buffers": foreign_checkpoints.buffers_of(self, checkpoint, choice)}
        return riders.unpack(data)

    def _require_same_parameters(self, checkpoint: Checkpoint, names: tied.Match) -> None:
        there = {each["name"] for each in checkpoint.description["parameters"]} - names.more
        other = there ^ {names.there(each) for each in self.parameters_of.ids}
        if other:
            raise ValueError(f"load_checkpoint: load_module_strict=False with optimizer states needs the same parameters here and there, and these are not: "
                             f"{', '.join(sorted(other))}; load with load_optimizer_states=False")

    def _require_between_windows(self, call: str) -> None:
        if not self.is_window_empty():
            raise RuntimeError(f"{call}: gradients of this window wait for their step and would be lost; call it after the step() that ends the "
                               "window, or after zero_grad()")
        self.close_pass()
        self._device.wait()


def _together(comm: Comm, call: str, body: Callable[[], T]) -> T:
    """What body returns; if it raises on a rank, every rank raises. Collective."""
    error: Exception | None = None
    try:
        result = body()
    except Exception as raised:
        error = raised
    mine = b"" if error is None else f"{type(error).__name__}: {error}".encode()[:_TEXT] or b"?"
    texts = comm.all_gather(mine.ljust(_TEXT, b"\0"))
    if error is not None:
        raise error
    for rank in range(comm.size):
        text = texts[rank * _TEXT:(rank + 1) * _TEXT].rstrip(b"\0")
        if text:
            raise RuntimeError(f"{call}: rank {rank} failed, and so do all: {text.decode(errors='replace')}")
    return result
