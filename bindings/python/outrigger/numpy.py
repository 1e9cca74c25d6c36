# SPDX-License-Identifier: Apache-2.0
"""Hand-written gradients: named NumPy arrays in an engine.

    engine = outrigger.numpy.Engine({"w": w, "b": b}, config)
    with engine.parameters() as p:
        y = x @ p["w"] + p["b"]
    with engine.backward(loss_gradient(y)) as grads:
        dy = grads.output                      # scaled: loss scale / accumulation steps
        grads["w"] = x.T @ dy                  # copied in; or grads.slot("w") to write into
        grads["b"] = dy.sum(0)
    report = engine.step()

Ranks come from the launcher (outrigger run, torchrun), or as comm=."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy
import numpy.typing

from . import Engine as _Engine
from . import lowlevel
from .process import process_comm

if TYPE_CHECKING:
    from . import Comm, Pass
    from .checkpoint import Patterns
    from .handle import Config
    from .snapshot import Snapshot

Array: TypeAlias = numpy.typing.NDArray[Any]
ArrayLike: TypeAlias = numpy.typing.ArrayLike
# Named arrays: dictionaries and lists of them, nested as the caller likes.
Tree: TypeAlias = dict[str, Any] | list[Any] | tuple[Any, ...]

__all__ = ["Engine", "Gradients"]


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """{"layer": {"w": a}, "b": [c, d]} → {"layer.w": a, "b.0": c, "b.1": d}, sorted by name, so that ranks agree."""
    items: Iterable[tuple[Any, Any]]
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, (list, tuple)):
        items = enumerate(tree)
    else:
        return {prefix: tree}
    flat: dict[str, Any] = {}
    for name, value in items:
        flat.update(flatten(value, f"{prefix}.{name}" if prefix else str(name)))
    return dict(sorted(flat.items()))


class Gradients:
    """One backward pass, from Engine.backward. output or outputs: the scaled gradients that came in, float32, of their
    shapes; grads[name] = array adds a parameter's gradient, computed from them: of the parameter's shape, any floating
    dtype, copied. KeyError: no such parameter; OutriggerError: E_SHAPE, E_STATE (frozen, or the block has ended)."""

    def __init__(self, engine: Engine, a_pass: Pass, count: int) -> None:
        self._engine, self._pass = engine, a_pass
        self.outputs: list[Array] = [a_pass.output_grad(index) for index in range(count)]

    @property
    def output(self) -> Array:
        """The one output's. ValueError: the pass has not one output."""
        if len(self.outputs) != 1:
            raise ValueError(f"this pass has {len(self.outputs)} output gradients; use outputs")
        return self.outputs[0]

    @property
    def scale(self) -> float:
        """The factor that backward applied to the outputs: loss scale / accumulation steps, or what a tag left to apply."""
        return self._pass.scale

    @property
    def tag(self) -> lowlevel.CallInfo:
        """What the gradients of this pass carry, those of inputs included: for backward of the engine that made the inputs."""
        return self._pass.tag

    def __setitem__(self, name: str, grad: ArrayLike) -> None:
        self._pass.add_grad(self._engine.id_of(name), numpy.asarray(grad))

    @contextlib.contextmanager
    def slot(self, name: str) -> Iterator[Array]:
        """The gradient's own place in its bucket, compute dtype, uninitialised; it is added at the end of the block."""
        identity = self._engine.id_of(name)
        array = self._pass.slot(identity)
        yield array
        self._pass.add_grad(identity, array)

    def unscale(self, grad: ArrayLike) -> numpy.typing.NDArray[numpy.float32]:
        """An input's gradient without the factors it carries, as a new float32 array of its shape."""
        return self._pass.unscale(numpy.asarray(grad))


class Engine:
    """parameters: named arrays of any shapes, nested dictionaries and lists of them allowed; float32, float64, float16 or
    ml_dtypes.bfloat16. Each rank copies its part of them; where ranks have others, rank 0's win and are sent. Names are
    joined by dots. config: a dictionary or JSON. comm: an outrigger.Comm; default: the launcher's processes. frozen: names
    without a gradient (ValueError for others). Collective. As a context manager it finalizes on a normal exit and aborts on
    an exception. `library` is the outrigger.Engine, whose docstring lists the errors."""

    def __init__(self, parameters: Tree, config: Config = None, comm: Comm | None = None, frozen: Iterable[str] = ()) -> None:
        flat, frozen = flatten(parameters), set(frozen)
        unknown = sorted(frozen - set(flat))
        if unknown:
            raise ValueError(f"frozen names no parameter: {', '.join(unknown)}; there are {', '.join(flat)}")
        comm = comm or process_comm()
        self.rank, self.world_size = comm.rank, comm.size
        self.library = _Engine(comm, config)
        values = [numpy.asarray(value) for value in flat.values()]
        self.ids = {name: self.library.add_parameter(name, shape=value.shape, trainable=int(name not in frozen))
                    for name, value in zip(flat, values)}
        self.library.commit()
        self.library.set_initial(self.ids.values(), values)  # each rank keeps its part of its own, where they are equal

    def id_of(self, name: str) -> int:
        """The library's number. KeyError lists the names."""
        if name not in self.ids:
            raise KeyError(f"no parameter {name!r}; there are {', '.join(self.ids)}")
        return self.ids[name]

    @contextlib.contextmanager
    def parameters(self, names: Iterable[str] | None = None, float32: bool = True) -> Iterator[dict[str, Array]]:
        """A dictionary of read-only arrays, valid inside the block: float32 copies, which NumPy computes fastest with, or
        with float32=False the compute dtype, without a copy."""
        names = list(self.ids) if names is None else list(names)
        with self.library.acquire([self.id_of(name) for name in names], float32=float32) as arrays:
            yield dict(zip(names, arrays))

    @contextlib.contextmanager
    def backward(self, *output_grads: ArrayLike, tag: lowlevel.CallInfo | None = None) -> Iterator[Gradients]:
        """One pass, from the gradients of the outputs, of any shapes and floating dtypes. An exception gives it up. tag: of the
        other engine's Gradients that they come from."""
        with self.library.begin_pass([numpy.asarray(each) for each in output_grads], tag=tag) as a_pass:
            yield Gradients(self, a_pass, len(output_grads))

    @property
    def loss_scale(self) -> float:
        """Of this window's passes; 1 without loss scaling."""
        return self.library.loss_scale

    def step(self) -> lowlevel.StepReport:
        """Ends a micro-batch; the report says what happened (outrigger.Engine.step). Collective."""
        return self.library.step()

    def read(self, name: str, value: int = lowlevel.VALUE_MASTER) -> numpy.typing.NDArray[numpy.float32]:
        """A whole value as float32, of the parameter's shape: the master weight, or lowlevel.VALUE_EXP_AVG, VALUE_EXP_AVG_SQ. Collective."""
        return self.library.read(self.id_of(name), value)

    def write(self, name: str, array: ArrayLike, value: int = lowlevel.VALUE_MASTER) -> None:
        """Sets it from rank 0's array, of the parameter's shape. Collective."""
        self.library.write(self.id_of(name), numpy.asarray(array), value)

    def save(self, directory: str | os.PathLike[str], tag: str, parts: Mapping[str, bytes] | None = None, keep_last: int = 0,
             replace: bool = False, asynchronous: bool = False, when_busy: str = "wait") -> None:
        """Saves the training as directory/tag: see outrigger.Engine.save. Collective."""
        self.library.save(directory, tag, parts, keep_last, replace, asynchronous, when_busy)

    def wait_save(self, timeout: float = -1.0) -> lowlevel.SaveStatus:
        """How the last asynchronous save is getting on: see outrigger.Engine.wait_save."""
        return self.library.wait_save(timeout)

    def load(self, directory: str | os.PathLike[str], tag: str | None = None, weights_only: bool = False, strict: bool = True, *,
             include: Patterns | None = None, exclude: Patterns = (), renamed: Mapping[str, str] | None = None, resized: Patterns = ()) -> None:
        """Goes on from a checkpoint, or takes a part of it: see outrigger.Engine.load. Collective."""
        self.library.load(directory, tag, weights_only, strict, include=include, exclude=exclude, renamed=renamed, resized=resized)

    def snapshot(self, into: Snapshot, parts: Mapping[str, bytes] | None = None, replicas: int = 0) -> None:
        """Fills a Snapshot with this moment, in memory: see outrigger.Engine.snapshot. Collective."""
        self.library.snapshot(into, parts, replicas)

    def restore(self, *snapshots: Snapshot) -> None:
        """Goes back to the latest moment that all ranks' snapshots have together: see outrigger.Engine.restore. Collective."""
        self.library.restore(*snapshots)

    def resume(self, directory: str | os.PathLike[str]) -> dict[str, bytes]:
        """Goes on from the latest checkpoint, if there is one, and returns its parts: see outrigger.Engine.resume. Collective."""
        return self.library.resume(directory)

    def get_progress(self) -> dict[str, Any]:
        """All that the run is besides values, for a later engine: see outrigger.Engine.get_progress."""
        return self.library.get_progress()

    def set_progress(self, progress: dict[str, Any]) -> None:
        """Goes on from what get_progress gave; values are written apart. Collective."""
        self.library.set_progress(progress)

    def __enter__(self) -> Engine:
        self.library.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.library.__exit__(kind, value, traceback)
