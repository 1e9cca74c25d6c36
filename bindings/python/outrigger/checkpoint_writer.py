# SPDX-License-Identifier: Apache-2.0
"""CheckpointWriter: a checkpoint that is made without an engine; and weights of others as one."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import lowlevel
from .handle import Handle

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from .arrays import Memory, Tensor


class CheckpointWriter(Handle[lowlevel.CheckpointWriter]):
    """Makes the checkpoint directory/tag of what another program kept: declare all parameters, write their values, finish. The end
    of a with block finishes; an exception in it, or close() before finish(), leaves nothing. Until then nobody else can write there. The
    directory is made if it is not there.

    master, exp_avg, exp_avg_sq: what weights and moments are kept as, "float32", "bfloat16" or "float16"; None: there is no such moment.
    applied_steps: how many updates were made, from which bias corrections and schedules go on; None: not known, and
    Engine.load takes weights only. replace: one of that tag is replaced. Any thread. E_STATE: another one is writing there; E_DUPLICATE:
    the tag is taken; E_IO."""

    def __init__(self, directory: str | os.PathLike[str], tag: str, *, master: str = "float32", exp_avg: str | None = None,
                 exp_avg_sq: str | None = None, applied_steps: int | None = None, replace: bool = False) -> None:
        options = lowlevel.WriterOptions()
        options.master, options.exp_avg, options.exp_avg_sq = master, exp_avg, exp_avg_sq
        options.applied_steps, options.replace = -1 if applied_steps is None else applied_steps, int(replace)
        os.makedirs(directory, exist_ok=True)
        super().__init__(lowlevel.checkpoint_writer_create(os.fspath(directory), tag, options))
        self._finished = False

    def add_parameter(self, name: str, shape: Iterable[int], *, trainable: bool = True, alias_of: str | None = None, group: str | None = None,
                      updates: int | None = None, exp_avg: bool = True, exp_avg_sq: bool = True) -> None:
        """Declares a parameter, before the first write. trainable False: frozen, with a weight only. alias_of: the name of an earlier one that this
        name shares; it is not written itself. updates: how many it had; None: applied_steps. exp_avg, exp_avg_sq False: it lacks
        that moment, which others have. E_DUPLICATE: the name was added before; E_NOT_FOUND, E_SHAPE: what it shares."""
        options = lowlevel.WriterParamOptions()
        options.trainable, options.alias_of, options.group = int(trainable), alias_of, group
        options.updates, options.exp_avg, options.exp_avg_sq = -1 if updates is None else updates, int(exp_avg), int(exp_avg_sq)
        lowlevel.checkpoint_writer_add_parameter(self.handle, name, shape, options)

    def add_part(self, name: str, data: Memory) -> None:
        """Bytes that ride along, before the first write: Checkpoint.part(name) gives them back."""
        lowlevel.checkpoint_writer_add_part(self.handle, name, data)

    def write(self, name: str, values: Tensor, value: int = lowlevel.VALUE_MASTER, first: int = 0) -> None:
        """Writes as many elements as `values` has, from first on in row-major order: any array of float32, float16, bfloat16 or float64,
        rounded to nearest even. value: lowlevel.VALUE_MASTER (the weight), VALUE_EXP_AVG or VALUE_EXP_AVG_SQ. Any order, each element once.
        E_NOT_FOUND: no such parameter or moment; E_ARGUMENT: no such elements; E_STATE: written before; E_IO: only close() is left."""
        lowlevel.checkpoint_writer_write(self.handle, name, value, first, values)

    def finish(self) -> None:
        """Makes the checkpoint durable and names it the latest. E_STATE: values are missing, which can still be written; E_IO."""
        lowlevel.checkpoint_writer_finish(self.handle)
        self._finished = True

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            if kind is None and not self._finished:
                self.finish()
        finally:
            self.close()


def import_weights(source: str | os.PathLike[str], directory: str | os.PathLike[str], tag: str, replace: bool = False,
                   skip_other_dtypes: bool = False) -> None:
    """Makes the checkpoint directory/tag, of weights only, from a safetensors file or a folder of a Hugging Face model. Engine.load takes it
    with weights_only. skip_other_dtypes: leaves out tensors that are no floats. Takes < 100 MiB of memory. E_NOT_FOUND; E_CORRUPT: a file is
    damaged, or index and files differ; E_UNSUPPORTED: a tensor is no float; E_DUPLICATE: the tag is taken; E_IO."""
    options = lowlevel.ImportOptions()
    options.replace, options.skip_other_dtypes = int(replace), int(skip_other_dtypes)
    os.makedirs(directory, exist_ok=True)
    lowlevel.checkpoint_import(os.fspath(source), os.fspath(directory), tag, options)
