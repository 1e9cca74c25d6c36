# SPDX-License-Identifier: Apache-2.0
"""JAX: a pytree of parameters in an engine, one process a rank.

    engine = outrigger.jax.Engine(params, config)
    y, vjp = jax.vjp(lambda p: model(p, x), engine.parameters())
    engine.backward(vjp, cotangent)            # y's shape: scaled, pulled back, handed over
    report = engine.step()

Parameters are copies, as JAX's arrays are immutable; gradients come all at once, so the host holds one model of them more
(grads_at_once in estimates). Stages 0 to 2; on stage 3 the parameters are a list of blocks, each asked for by itself."""
from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from . import Checkpoint, OutriggerError, lowlevel
from . import Engine as _Engine
from . import step_many as _step_many
from .process import process_comm
from .pytrees import PART, has_latest, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from . import Comm
    from . import Pass as _Pass
    from .checkpoint import Patterns
    from .handle import Config
    from .snapshot import Snapshot

Tree: TypeAlias = Any  # a pytree; jax has no type for its form

__all__ = ["Engine", "Pass", "step_many"]


def _is_integer(cotangent: Any) -> bool:
    """The cotangent of an integer output, which JAX gives no numbers."""
    return getattr(cotangent, "dtype", None) == jax.dtypes.float0


class Pass:
    """One backward pass, from Engine.begin_pass. cotangents: what came in, scaled, as JAX arrays of the same tree, shapes and
    dtypes."""

    def __init__(self, engine: Engine, a_pass: _Pass, tree: jax.tree_util.PyTreeDef, leaves: list[jax.Array]) -> None:
        self._engine, self._pass = engine, a_pass
        index = itertools.count()
        scaled = [leaf if _is_integer(leaf) else jnp.array(a_pass.output_grad(next(index)), dtype=leaf.dtype, copy=True)
                  for leaf in leaves]
        self.cotangents: Tree = jax.tree.unflatten(tree, scaled)

    @property
    def scale(self) -> float:
        """The factor that begin_pass applied to the cotangents: loss scale / accumulation steps, or what a tag left to apply."""
        return self._pass.scale

    @property
    def tag(self) -> lowlevel.CallInfo:
        """What the gradients of this pass carry, those of inputs included: for begin_pass or backward of the engine that made
        the inputs, which applies what they lack."""
        return self._pass.tag

    def add(self, grads: Tree, block: int | None = None) -> None:
        """Adds gradients computed from the cotangents: a tree like the parameters, or like one block of them, of their shapes
        and any floating dtypes. None, and the zeros that JAX has for integers, count as no gradient. ValueError: another
        form or shape."""
        for (path, identity, shape), grad in zip(self._engine.leaves(block), self._engine.matching(grads, block), strict=True):
            if grad is None or grad.dtype == jax.dtypes.float0 or not self._engine.is_trainable(identity):
                continue
            if grad.shape != shape:
                raise ValueError(f"the gradient of {path} has shape {grad.shape}; the parameter has {shape}")
            self._pass.add_grad(identity, np.asarray(grad))

    def unscale(self, tree: Tree) -> Tree:
        """The gradients of inputs without the factors they carry, in their dtypes."""
        tag = self.tag
        carried = tag.loss_scale / max(1, tag.accumulation)

        def unscaled(leaf: jax.Array) -> jax.Array:
            if leaf.dtype == jax.dtypes.float0:
                return leaf
            wide = jnp.promote_types(leaf.dtype, jnp.float32)  # a scale may be beyond float16
            return (leaf.astype(wide) / carried).astype(leaf.dtype)
        return jax.tree.map(unscaled, tree)


class Engine:
    """params: a pytree of floating arrays of any shapes, the same on all ranks (where values differ, rank 0's win and are
    sent). config: a dictionary or JSON. frozen: a tree of the same form with True where there is no gradient, or None
    (ValueError: another form). comm: an outrigger.Comm; default: the launcher's processes. NotImplementedError: stage 3
    without a list of blocks. Collective. As a context manager it finalizes on a normal exit and aborts on an exception.
    `library` is the outrigger.Engine, whose docstring lists the errors."""

    def __init__(self, params: Tree, config: Config = None, comm: Comm | None = None, frozen: Tree = None) -> None:
        comm = comm or process_comm()
        self._comm, self.rank, self.world_size = comm, comm.rank, comm.size
        self.library = _Engine(comm, config)
        stage = self.library.config["zero_optimization"]["stage"]["value"]
        self._blocks = list(params) if stage == 3 and isinstance(params, (list, tuple)) else None
        if stage == 3 and self._blocks is None:
            raise NotImplementedError("zero_optimization.stage = 3 needs the parameters as a list of blocks, each of which is asked for "
                                      "by itself (parameters(block)); give a list, or use stage 2")
        found, self._tree = jax.tree_util.tree_flatten_with_path(params)
        flags = [False] * len(found) if frozen is None else jax.tree.leaves(frozen)
        if len(flags) != len(found):
            raise ValueError(f"frozen has {len(flags)} leaves, the parameters {len(found)}: they must have one form")
        self._leaves: list[tuple[str, int, tuple[int, ...]]] = []
        self._frozen: set[int] = set()
        for (path, leaf), is_frozen in zip(found, flags, strict=True):
            name = jax.tree_util.keystr(path)
            identity = self.library.add_parameter(name, shape=np.shape(leaf), trainable=int(not is_frozen))
            self._leaves.append((name, identity, np.shape(leaf)))
            if is_frozen:
                self._frozen.add(identity)
        self.library.commit()
        for (_, identity, _), (_, leaf) in zip(self._leaves, found, strict=True):
            self.library.set_initial([identity], [np.asarray(leaf)])  # each rank keeps its part of its own, where they are equal
        self._shown: dict[str, Tree] = {}

    def leaves(self, block: int | None = None) -> list[tuple[str, int, tuple[int, ...]]]:
        """(path, id, shape) of each parameter."""
        if block is None:
            return self._leaves
        blocks = self._require_blocks()
        first = sum(len(jax.tree.leaves(each)) for each in blocks[:block])
        return self._leaves[first:first + len(jax.tree.leaves(blocks[block]))]

    def matching(self, tree: Tree, block: int | None = None) -> list[Any]:
        """The leaves of a tree that has the parameters' form (ValueError else); None is a leaf."""
        expected: Any = self._tree if block is None else jax.tree.structure(self._require_blocks()[block])
        try:
            return list(expected.flatten_up_to(tree))
        except (ValueError, TypeError) as error:
            found: Any = jax.tree.structure(tree, is_leaf=lambda each: each is None)
            raise ValueError(f"the gradients have {found.num_leaves} leaves, the parameters {expected.num_leaves}: they must have one form, "
                             f"{expected}, not {found}") from error

    def is_trainable(self, identity: int) -> bool:
        return identity not in self._frozen

    def _require_blocks(self) -> list[Tree]:
        if self._blocks is None:
            raise ValueError("block= is for stage 3, where the parameters are a list of blocks")
        return self._blocks

    def parameters(self, block: int | None = None) -> Tree:
        """The parameters in the compute dtype, as a tree of JAX arrays: copies, made once after each update. block: one block
        of stage 3, made each time. ValueError: all of them on stage 3, or a block elsewhere."""
        if block is None and self._blocks is not None:
            raise ValueError("on stage 3 there is no copy of all parameters; ask for parameters(block)")
        if block is None and self._shown:
            return self._shown["tree"]
        tree = self._tree if block is None else jax.tree.structure(self._require_blocks()[block])
        with self.library.acquire([identity for _, identity, _ in self.leaves(block)]) as arrays:
            shown = jax.tree.unflatten(tree, [jnp.array(array, copy=True) for array in arrays])
        if block is None:
            self._shown["tree"] = shown
        return shown

    @contextlib.contextmanager
    def begin_pass(self, cotangents: Tree, tag: lowlevel.CallInfo | None = None) -> Iterator[Pass]:
        """A Pass, ended with the block and given up by an exception. cotangents: a tree of arrays of any shapes and floating
        dtypes; float0 ones, of outputs that are integers, stay as they are. tag: of the other engine's Pass that they come from."""
        leaves, tree = jax.tree.flatten(cotangents)
        leaves = [leaf if _is_integer(leaf) else jnp.asarray(leaf) for leaf in leaves]
        given = [np.asarray(leaf) for leaf in leaves if not _is_integer(leaf)]
        with self.library.begin_pass(given, tag=tag, flags=lowlevel.PASS_KEEP_DTYPE) as a_pass:
            yield Pass(self, a_pass, tree, leaves)

    def backward(self, vjp: Callable[..., Any], cotangents: Tree, tag: lowlevel.CallInfo | None = None) -> tuple[Tree, ...]:
        """Pulls cotangents back through vjp, a function of jax.vjp whose first argument were the parameters, and hands their
        gradients over. Returns the gradients of the other arguments, unscaled: a tuple. tag: as in begin_pass. ValueError:
        gradients of another form or shape than the parameters."""
        with self.begin_pass(cotangents, tag) as a_pass:
            grads, *others = vjp(a_pass.cotangents)
            try:
                a_pass.add(grads)
            except ValueError as error:
                raise ValueError(f"{error}; the first argument of vjp's function must be the parameters") from error
            return tuple(a_pass.unscale(each) for each in others)

    def step(self) -> lowlevel.StepReport:
        """Ends a micro-batch; the report says what happened (outrigger.Engine.step). Collective."""
        return self.note_step(self.library.step())

    @property
    def loss_scale(self) -> float:
        """Of this window's passes; 1 without loss scaling."""
        return self.library.loss_scale

    def note_step(self, report: lowlevel.StepReport) -> lowlevel.StepReport:
        """To be told of a step that was not made by step(): of `library`, for example. parameters() are new after it."""
        if report.outcome == lowlevel.STEP_APPLIED:
            self._shown.clear()
        return report

    def masters(self) -> Tree:
        """The master weights as a tree of float32 NumPy arrays, whole. Collective."""
        read = [self.library.read(identity, lowlevel.VALUE_MASTER if self.is_trainable(identity) else lowlevel.VALUE_PUBLISHED)
                for _, identity, _ in self._leaves]
        return jax.tree.unflatten(self._tree, read)

    def save(self, directory: str | os.PathLike[str], tag: str, host: Tree = None, keep_last: int = 0, replace: bool = False) -> None:
        """Saves the training as directory/tag (outrigger.Engine.save), and with it this rank's host: a pytree of what the program needs
        to go on, arrays of JAX and NumPy, keys of jax.random, numbers, str and bytes. TypeError names another leaf. Collective."""
        self.library.save(directory, tag, None if host is None else {PART: pack(host)}, keep_last, replace)

    def load(self, directory: str | os.PathLike[str], tag: str | None = None, host: Tree = None, weights_only: bool = False,
             strict: bool = True, *, include: Patterns | None = None, exclude: Patterns = (), renamed: Mapping[str, str] | None = None,
             resized: Patterns = ()) -> Tree:
        """Goes on from a checkpoint, or takes a part of it (outrigger.Engine.load). host: a tree of the form that was saved, whose leaves
        do not count; returns what this rank's was (rank 0's where it did not save), or None where none is asked for. ValueError: it was
        of another form, and nothing has changed. An asynchronous save of `library` ends first. Collective."""
        self._wait_save()
        with Checkpoint(directory, tag) as checkpoint:
            rank = self.rank if self.rank < checkpoint.ranks else 0
            restored = None if host is None else unpack(checkpoint.part(PART, rank), host)
            self.library.load(directory, checkpoint.tag, weights_only, strict, include=include, exclude=exclude, renamed=renamed, resized=resized)
        self._shown.clear()
        return restored

    def _wait_save(self) -> None:
        """Before anything is read: the end of a save under way changes what is there. If it failed and a rank was not told of it, all raise. Collective."""
        error: OutriggerError | None = None
        try:
            self.library.wait_save()
        except OutriggerError as raised:
            error = raised
        told = self._comm.all_gather(bytes([error is not None]))
        if error is not None:
            raise error
        if any(told):
            raise RuntimeError(f"the asynchronous save failed, and rank {told.index(1)} had not been told; nothing was loaded: call it again")

    def snapshot(self, into: Snapshot, parts: Mapping[str, bytes] | None = None, replicas: int = 0) -> None:
        """Fills a Snapshot with this moment, in memory: see outrigger.Engine.snapshot. Collective."""
        self.library.snapshot(into, parts, replicas)

    def restore(self, *snapshots: Snapshot) -> None:
        """Goes back to the latest moment that all ranks' snapshots have together: see outrigger.Engine.restore. Collective."""
        self.library.restore(*snapshots)

    def resume(self, directory: str | os.PathLike[str], host: Tree = None) -> Tree:
        """Goes on from the directory's latest checkpoint and returns its host, or the one that was given where there is none and the
        training begins. Collective. Errors as of load."""
        self._wait_save()
        return self.load(directory, host=host) if has_latest(directory) else host

    def __enter__(self) -> Engine:
        self.library.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.library.__exit__(kind, value, traceback)


def step_many(engines: Iterable[Engine], joint: Comm | None = None) -> list[lowlevel.StepReport]:
    """One step of several engines, all or none (outrigger.step_many). Collective over all of them."""
    engines = list(engines)
    reports = _step_many([engine.library for engine in engines], joint)
    return [engine.note_step(report) for engine, report in zip(engines, reports, strict=True)]
