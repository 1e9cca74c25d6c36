# SPDX-License-Identifier: Apache-2.0
"""A parameter's master, moments and step in the host's memory, in the library's formats."""
from __future__ import annotations

from typing import Any

import torch

from .. import Context, Shard, lowlevel
from .offload_copies import Copies
from .offload_tensors import fingerprint, flat, is_dense, is_dtensor, local_of, part_name, shaped_like
from .shards import MOMENTS, moment_view


def rounds_to(master: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Where weights are the masters, rounded to their dtype; a split one rounds a tie away from zero."""
    bits = weights.view(torch.int16)
    same = master.to(weights.dtype).view(torch.int16) == bits
    if weights.dtype == torch.bfloat16:
        same |= ((master.view(torch.int32) + 0x8000) >> 16).to(torch.int16) == bits
    return same


class States:
    """master: the format of a 16-bit parameter's, "float32", "split" or its own dtype; a float32 parameter is its own. On the
    host a parameter that is its own master, or half of a split one, is updated where it is; a device's gets copies.

    The library prepares the shard before show()."""

    def __init__(self, context: Context, parameter: torch.Tensor, name: str, master: str, copies: Copies | None) -> None:
        local = local_of(parameter)
        if not is_dense(local):
            raise ValueError(f"{name} has shape {tuple(local.shape)} and strides {local.stride()}, with gaps between its elements; call "
                             ".contiguous() before you make it a parameter")
        self.parameter, self.name, self.copies = parameter, name, copies
        self.place = _place(local)
        self._local = flat(local)
        # What is rounded to the parameter's dtype: the parameter on the host, or what a device gets a copy of.
        host = self._local if copies is None else copies.memory(local.numel(), local.dtype)
        self._host = host
        self._separate = master == "float32" and local.dtype != torch.float32
        self._split = master == "split"
        remainder = torch.zeros(local.numel(), dtype=torch.int16) if self._split else None
        weights = torch.empty(local.numel()) if self._separate else host
        self._weights, self._remainder = weights, remainder
        self.shard = Shard(context, weights, None, host if self._separate else None, remainder, name=name + part_name(parameter))
        self.pending: torch.Tensor | None = None  # a master that was loaded
        self._sent: Any = None
        self._views: dict[str, torch.Tensor] = {}
        self._seen = parameter._version
        self._print: torch.Tensor | None = None
        self._take()

    # ---- The states as PyTorch shows them ----

    def show(self, formats: dict[str, str]) -> dict[str, Any]:
        """What state[parameter] is; moments in 8-bit blocks are in numbers() only."""
        self._views = {name: shaped_like(moment_view(self.shard, name), self.parameter)
                       for name in MOMENTS if formats[name] != "block8"}
        return {"step": torch.tensor(float(self.shard.step)), **self._views, **self._master_view()}

    def _master_view(self) -> dict[str, torch.Tensor]:
        return {"master": shaped_like(self._weights, self.parameter)} if self._separate else {}

    def numbers(self) -> dict[str, torch.Tensor]:
        """What belongs into a state_dict and has no memory to show: as float32, which is exact."""
        found = {name: self._read(value) for name, value in MOMENTS.items() if name not in self._views}
        if self.pending is not None:
            found["master"] = self.pending.clone()
        elif self._split:
            found["master"] = self._read(lowlevel.VALUE_MASTER)
        return {name: shaped_like(value, self.parameter) for name, value in found.items()}

    def _read(self, value: int) -> torch.Tensor:
        out = torch.empty(self._local.numel())
        self.shard.read(value, out)
        return out

    def adopt(self, state: dict[str, Any]) -> None:
        """Takes what was changed in or assigned to state[parameter]."""
        self.shard.step = int(state["step"])
        if not isinstance(state["step"], torch.Tensor):
            state["step"] = torch.tensor(float(state["step"]))
        for name in MOMENTS:
            view = self._views.get(name)
            if state.get(name) is not view:
                self._write(name, state.pop(name, None))
                if view is not None:
                    state[name] = view

    def load(self, state: dict[str, Any]) -> None:
        """From a state_dict, which has step and moments. ValueError: they do not fit."""
        for name in MOMENTS:
            self._write(name, state[name])
        self.shard.step = int(state["step"])
        if state.get("master") is not None and (self._separate or self._split):
            self.pending = self._fitting("master", state["master"]).to(torch.float32, copy=True)

    def _write(self, name: str, given: Any) -> None:
        self.shard.write(MOMENTS[name], self._fitting(name, given).to(torch.float32))

    def _fitting(self, name: str, given: Any) -> torch.Tensor:
        parameter = self.parameter
        if not isinstance(given, torch.Tensor):
            raise ValueError(f"{name} of {self.name} is {given!r}, no tensor")
        if is_dtensor(given) != is_dtensor(parameter) or (
                is_dtensor(given) and given.placements != parameter.placements):  # type: ignore[attr-defined]
            raise ValueError(f"{name} of {self.name} is {_kind(given)}, the parameter {_kind(parameter)}; load with "
                             "torch.distributed.checkpoint.state_dict.set_optimizer_state_dict, which places it")
        local, like = local_of(given), local_of(parameter)
        if local.shape != like.shape:
            raise ValueError(f"{name} of {self.name} has shape {tuple(local.shape)}, the parameter {tuple(like.shape)}")
        laid_out = torch.empty_strided(like.shape, like.stride(), dtype=local.dtype)
        return flat(laid_out.copy_(local))

    # ---- Weights ----

    def _take(self) -> None:
        """The parameter's values become the master's."""
        if self.copies is not None:
            self._host.copy_(self._local)
        if self._separate:
            self._weights.copy_(self._host)
        elif self._split:
            self.shard.write(lowlevel.VALUE_MASTER, self._host.to(torch.float32))

    def watched(self) -> torch.Tensor | None:
        """The fingerprint of the parameter as the last step left it, where others' writes into it would be lost."""
        return self._print

    def now(self) -> torch.Tensor:
        return fingerprint(self._local)

    def settle(self, changed: bool) -> None:
        """Before an update: what others have written into the parameter counts. A master that was loaded, or that is kept
        apart, stays where it rounds to what is there."""
        changed = changed or self._seen != self.parameter._version
        master = self.pending if self.pending is not None else self._weights.clone() if changed and self._separate else None
        if changed:
            self._take()
        if master is not None:
            kept = torch.where(rounds_to(master, self._host), master, self._host.to(torch.float32))
            self.shard.write(lowlevel.VALUE_MASTER, kept)
            self.pending = None

    def free(self) -> None:
        """Before an update: the last copy to the device has read the weights."""
        if self.copies is not None and self._sent is not None:
            self.copies.wait(self._sent)
            self._sent = None

    def publish(self) -> None:
        """After an update: to the device."""
        if self.copies is not None:
            self._sent = self.copies.up(self._host, self._local)

    def note(self) -> None:
        """After an update, on the stream that sees it: what the parameter is, for settle."""
        torch.autograd.graph.increment_version(self.parameter)
        self._seen = self.parameter._version
        if self.copies is not None or self._separate:
            self._print = self.now()

    def check_place(self) -> None:
        """RuntimeError: the parameter has been moved or converted."""
        place = _place(local_of(self.parameter))
        if place[1:] != self.place[1:]:
            raise RuntimeError(f"{self.name} is {_place_text(place)}, and was {_place_text(self.place)} when its states were made; construct "
                               "the optimizer after the parameters have been moved and converted, and load its state_dict into it")

    def has_moved(self) -> bool:
        """Its memory is another, as after `parameter.data = …`."""
        return local_of(self.parameter).data_ptr() != self.place[0]

    def go_on(self, old: States) -> None:
        """Takes the states of the same parameter at its old place."""
        for value in MOMENTS.values():
            self.shard.write(value, old._read(value))
        self.shard.step = old.shard.step
        if self._separate or self._split:
            self.pending = old.pending if old.pending is not None else old._read(lowlevel.VALUE_MASTER)

    def host_bytes(self) -> int:
        """Besides the parameter."""
        own = 0 if self.copies is None else self._host.numel() * self._host.element_size()
        if self._separate:
            own += 4 * self._weights.numel()
        if self._remainder is not None:
            own += 2 * self._remainder.numel()
        return own + self.shard.state_bytes


def _place(local: torch.Tensor) -> tuple[int, Any, Any, Any, Any]:
    return local.data_ptr(), local.dtype, local.device, tuple(local.shape), local.stride()


def _place_text(place: tuple[Any, ...]) -> str:
    _, dtype, device, shape, strides = place
    return f"{dtype} on {device} of shape {shape} and strides {strides}"


def _kind(tensor: torch.Tensor) -> str:
    if not is_dtensor(tensor):
        return "a plain tensor"
    return f"a DTensor placed {tuple(tensor.placements)}"  # type: ignore[attr-defined]
