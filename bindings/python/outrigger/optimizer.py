# SPDX-License-Identifier: Apache-2.0
"""Shard and Optimizer: the update without an engine, on the caller's memory."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import lowlevel
from .arrays import view_of
from .checkpoint import load_options, save_options
from .handle import Handle, options_of, text_of
from .snapshot import snapshot_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Unpack

    from .arrays import Array, Tensor
    from .context import Context
    from .snapshot import Snapshot


class Shard(Handle[lowlevel.Shard]):
    """A flat piece of parameters and gradients, which stay the caller's arrays, and the states that belong to it.

    weights, grads: 1-D, contiguous, of one count, each float32, bfloat16 or float16; both are used until close(), weights
    are written; grads None: set_grads gives them later. published: bfloat16 or float16 of the same count, receives the updated weights. remainder: uint16 of the same
    count beside bfloat16 weights: the other half of a split master, together a float32. Options: name (of the
    random stream of stochastic rounding), first_element, rows (for Muon: the shard is a matrix of so many rows, row by row;
    default 0: it is none, and AdamW's). OutriggerError: E_SHAPE, E_DTYPE, E_ARGUMENT (rows do not divide the count)."""

    def __init__(self, context: Context, weights: Tensor, grads: Tensor | None = None, published: Tensor | None = None,
                 remainder: Tensor | None = None, **options: Unpack[lowlevel._ShardOptions]) -> None:
        made = options_of(lowlevel.ShardOptions, options) or lowlevel.ShardOptions()
        made.set_published(published)
        made.set_remainder(remainder)
        super().__init__(lowlevel.shard_wrap(context.handle, weights, grads, made))
        # The library keeps their memory by reference.
        self._arrays: tuple[Tensor | None, ...] | None = (weights, published, remainder)
        self._grads = grads

    def close(self) -> None:
        super().close()
        self._arrays = self._grads = None

    def set_grads(self, grads: Tensor | None) -> None:
        """The gradients of the next steps, in another place than the last ones, which are let go; None: none."""
        lowlevel.shard_set_grads(self.handle, grads)
        self._grads = grads

    def state(self, value: int) -> Array:
        """lowlevel.VALUE_EXP_AVG or VALUE_EXP_AVG_SQ, 1-D, as it is stored; from the first step or Optimizer.prepare on
        (OutriggerError E_NOT_FOUND before; E_UNSUPPORTED for 8-bit blocks: read). A view."""
        return view_of(lowlevel.shard_state(self.handle, value))

    def read(self, value: int, out: Tensor) -> None:
        """Copies lowlevel.VALUE_MASTER (the weights, of a split master both halves), VALUE_EXP_AVG or VALUE_EXP_AVG_SQ into
        `out`: 1-D, of the shard's count, any float dtype. OutriggerError E_NOT_FOUND: no states yet."""
        lowlevel.shard_read(self.handle, value, out)

    def write(self, value: int, source: Tensor) -> None:
        """The other way; rounded to nearest."""
        lowlevel.shard_write(self.handle, value, source)

    @property
    def step(self) -> int:
        """How many updates the shard has had; set it when a checkpoint is loaded."""
        return lowlevel.shard_get_step(self.handle)

    @step.setter
    def step(self, updates: int) -> None:
        lowlevel.shard_set_step(self.handle, updates)

    @property
    def state_bytes(self) -> int:
        """Bytes of states that the shard owns."""
        return lowlevel.shard_state_bytes(self.handle)


class Optimizer(Handle[lowlevel.Optimizer]):
    """An update rule with its hyperparameters. config: {"type": "AdamW", "params": {"lr": …}, …} as a dictionary or JSON;
    docs/configuration.md lists the keys. OutriggerError E_CONFIG names path and remedy."""

    def __init__(self, context: Context, config: dict[str, Any] | str) -> None:
        super().__init__(lowlevel.optimizer_create(context.handle, text_of(config)))

    def set_value(self, name: str, value: float) -> None:
        """name: "lr", "weight_decay", and what else the rule has of "adam_lr", "eps", "beta1", "beta2", "momentum", "dampening"; "gradient_factor",
        which gradients are multiplied by before norm and clipping. OutriggerError: E_NOT_FOUND, another name; E_ARGUMENT, out of range; E_STATE, the schedule alone gives the value."""
        lowlevel.optimizer_set_value(self.handle, name, value)

    def norm(self, shards: Iterable[Shard]) -> float:
        """Of the shards' gradients times "gradient_factor", as a step would report it; inf: one has Inf or NaN."""
        return lowlevel.optimizer_norm(self.handle, [shard.handle for shard in shards])

    def prepare(self, shards: Iterable[Shard]) -> None:
        """Gives shards that have none their states, zero: to load a checkpoint into them. Errors as of step."""
        lowlevel.optimizer_prepare(self.handle, [shard.handle for shard in shards])

    def step(self, shards: Iterable[Shard]) -> lowlevel.StepReport:
        """One update of all shards with the gradients they wrap, or none: norm over all, Inf/NaN check, clip, update. The
        report's nonfinite_param is the shard's index. OutriggerError E_STATE: a shard was stepped with other formats."""
        return lowlevel.optimizer_step(self.handle, [shard.handle for shard in shards])

    def save(self, shards: Iterable[Shard], directory: str | os.PathLike[str], tag: str, parts: Mapping[str, bytes] | None = None,
             keep_last: int = 0, replace: bool = False) -> None:
        """Saves shards as the checkpoint directory/tag of this process: weights and moments as they are stored, updates, and the
        optimizer's hyperparameters, but not its gradient_factor. The directory is made if it is not there. Each shard is a parameter
        of its name, which shards have each their own (E_DUPLICATE). parts, keep_last, replace, and what is durable when: as Engine.save
        has them. Checkpoint reads it, and Engine.load of an engine with parameters of these names and shapes. Local. E_UNSUPPORTED:
        states of different formats."""
        os.makedirs(directory, exist_ok=True)
        lowlevel.optimizer_save(self.handle, [shard.handle for shard in shards], os.fspath(directory), tag,
                                save_options(parts, keep_last, replace))

    def load(self, shards: Iterable[Shard], directory: str | os.PathLike[str], tag: str | None = None, weights_only: bool = False,
             strict: bool = True) -> None:
        """Shards go on from a checkpoint, by their names: one of save, of an engine, or imported. tag None: the latest. In the same formats
        every bit comes back. weights_only: neither moments nor progress; with strict False, those that are both here and there.
        Everything is read and checked before anything changes. Local. E_NOT_FOUND: no such checkpoint, parameter or moment; E_SHAPE:
        another number of elements; E_CORRUPT: a file is damaged."""
        lowlevel.optimizer_load(self.handle, [shard.handle for shard in shards], os.fspath(directory), tag, load_options(weights_only, strict))

    def snapshot(self, shards: Iterable[Shard], into: Snapshot, parts: Mapping[str, bytes] | None = None) -> None:
        """The same as save, into memory: for restore. What `into` had before is gone. Local."""
        lowlevel.optimizer_snapshot(self.handle, [shard.handle for shard in shards], into.handle, snapshot_options(parts, 0))

    def restore(self, shards: Iterable[Shard], snapshot: Snapshot) -> None:
        """Back to a snapshot of these shards, or of others of their names, formats and counts (else E_MISMATCH). Local."""
        lowlevel.optimizer_restore(self.handle, [shard.handle for shard in shards], snapshot.handle)
