# SPDX-License-Identifier: Apache-2.0
"""Records of steps, for the tools that people watch a run with.

    engine.watch(outrigger.watch.TensorBoard("runs/a"))

A record is a dictionary, as docs/watching.md lists its members. A writer is a callable that takes one: each here, and any function of yours.
outrigger.follow gives the records of a run in any language to the same writers."""
from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

from . import lowlevel
from .lowlevel import OutriggerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Record: TypeAlias = dict[str, Any]
    Writer: TypeAlias = Callable[[Record], object]

__all__ = ["CSV", "Prometheus", "TensorBoard", "WandB", "scalars", "step_of"]


class Watchers:
    """The writers of one engine. They run on the thread that asks for a step's report, before it gets that."""

    def __init__(self) -> None:
        self.writers: list[Writer] = []
        self._told = ""

    def tell(self, handle: lowlevel.Engine) -> None:
        """The last record, once. After a call that may have ended a window; one that raises for the loss scale has."""
        if not self.writers:
            return
        try:
            text = lowlevel.engine_get_record(handle)
        except OutriggerError as error:
            if error.name == "OTR_E_NOT_FOUND":
                return
            raise
        if text == self._told:
            return
        self._told = text
        for writer in self.writers:
            writer(json.loads(text))


def step_of(record: Record) -> int:
    """The windows until this one, skipped ones among them: what writers count steps by."""
    count: int = record["applied_steps"] + record["skipped_steps"]
    return count


def scalars(record: Record) -> dict[str, float]:
    """The numbers of a record by names with slashes: "loss", "grad_norm", "seconds/update", "memory/host/resident". What is not finite is
    left out. "skipped" is 1 or 0."""
    found: dict[str, float] = {"skipped": float(record["outcome"] == "skipped")}

    def visit(prefix: str, value: object) -> None:
        if isinstance(value, dict):
            for name, each in value.items():
                visit(f"{prefix}/{name.replace(' ', '_')}" if prefix else name, each)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[prefix.removeprefix("notes/")] = float(value)

    for name, value in record.items():
        if name not in ("time", "nonfinite"):
            visit(name, value)
    return found


class TensorBoard:
    """Writes scalars for TensorBoard, with PyTorch's writer or tensorboardX. folder: of this run. options: of SummaryWriter. ImportError:
    neither is installed."""

    def __init__(self, folder: str | os.PathLike[str], **options: Any) -> None:
        self._writer = summary_writer()(os.fspath(folder), **options)

    def __call__(self, record: Record) -> None:
        for name, value in scalars(record).items():
            self._writer.add_scalar(name, value, step_of(record), walltime=record["time"])
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def summary_writer() -> Any:
    """The class SummaryWriter. ImportError: it is not installed."""
    reasons = []
    for module in ("torch.utils.tensorboard", "tensorboardX"):
        try:
            return __import__(module, fromlist=["SummaryWriter"]).SummaryWriter
        except ImportError as error:
            reasons.append(f"{module}: {error}")
    raise ImportError(f"TensorBoard's writer is not installed ({'; '.join(reasons)}): pip install tensorboard, beside PyTorch, or pip install "
                      "tensorboardX")


class WandB:
    """Logs scalars to Weights & Biases. run: what wandb.init returned; default: one that is begun with options, such as project= and
    mode="offline", and finished by close(). ImportError: wandb is not installed."""

    def __init__(self, run: Any = None, **options: Any) -> None:
        self._own = run is None
        if run is None:
            try:
                import wandb
            except ImportError as error:
                raise ImportError(f"Weights & Biases is not installed ({error}): pip install wandb") from error
            run = wandb.init(**options)
        elif options:
            raise TypeError(f"WandB: {', '.join(options)} is for a run that is begun here, and run= is given")
        self.run = run

    def __call__(self, record: Record) -> None:
        self.run.log(scalars(record), step=step_of(record), commit=True)  # at once, not with the next step

    def close(self) -> None:
        """Ends the run that it has begun."""
        if self._own:
            self.run.finish()


class CSV:
    """Appends scalars to a file: a line for each record, with the columns of the first one. OSError: the file cannot be written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self._columns = os.fspath(path), None if not os.path.exists(path) else _columns_of(path)

    def __call__(self, record: Record) -> None:
        numbers = {"step": float(step_of(record)), "time": float(record["time"]), **scalars(record)}
        with open(self._path, "a", encoding="utf-8") as file:
            if self._columns is None:
                self._columns = list(numbers)
                file.write(",".join(self._columns) + "\n")
            file.write(",".join(_number(numbers[name]) if name in numbers else "" for name in self._columns) + "\n")


def _columns_of(path: str | os.PathLike[str]) -> list[str] | None:
    with open(path, encoding="utf-8") as file:
        return file.readline().strip().split(",") or None


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


class Prometheus:
    """Keeps a file of gauges in Prometheus' text format, for the textfile collector of node_exporter or any server of files. path: replaced
    as a whole at each record. labels: of every sample, such as rank="0". OSError: it cannot be written; ValueError: no name of a label."""

    def __init__(self, path: str | os.PathLike[str], **labels: str) -> None:
        self._path = os.fspath(path)
        self._labels = labels_of(labels)

    def __call__(self, record: Record) -> None:
        replace(self._path, exposition([(self._labels, record)]))


def labels_of(labels: dict[str, str]) -> str:
    """As the text format has them between braces."""
    def escaped(value: object) -> str:
        return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    for name in labels:
        if not name.isidentifier() or not name.isascii() or name.startswith("__"):
            raise ValueError(f"{name!r} is no name of a Prometheus label: letters, digits and underscores, beginning with no digit")
    return ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())


def exposition(samples: list[tuple[str, Record]]) -> str:
    """Samples with their labels, those of a metric together, as the text format wants it."""
    metrics: dict[str, list[str]] = {}
    for labels, record in samples:
        for name, value in {**scalars(record), "time_seconds": record["time"]}.items():
            metric = "outrigger_" + "".join(each if each.isascii() and each.isalnum() else "_" for each in name)
            metrics.setdefault(metric, []).append(f"{metric}{{{labels}}} {value!r}" if labels else f"{metric} {value!r}")
    return "".join(f"# TYPE {metric} gauge\n" + "\n".join(lines) + "\n" for metric, lines in metrics.items())


def replace(path: str, text: str) -> None:
    """The file has the old text or the new one, whenever it is read."""
    unfinished = f"{path}.{os.getpid()}"
    try:
        with open(unfinished, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(unfinished, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
