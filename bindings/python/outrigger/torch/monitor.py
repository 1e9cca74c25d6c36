# SPDX-License-Identifier: Apache-2.0
"""The sections "tensorboard", "wandb" and "csv_monitor" of a configuration: DeepSpeed's curves, under its names and in its files."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..watch import WandB, step_of, summary_writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..watch import Record, Writer

_JOB = "DeepSpeedJobName"


class _Monitor:
    """A writer of records. x is DeepSpeed's: the samples until this step."""

    def __init__(self, section: Mapping[str, Any], batch_size: int, is_scaled: bool) -> None:
        self._batch_size, self._is_scaled = batch_size, is_scaled
        self.folder = os.path.join(section.get("output_path") or "", section.get("job_name") or _JOB)

    def __call__(self, record: Record) -> None:
        self.write(dict(self._events(record)), step_of(record) * self._batch_size)

    def write(self, events: dict[str, float], samples: int) -> None:
        raise NotImplementedError

    def _events(self, record: Record) -> Iterator[tuple[str, float]]:
        if record["notes"].get("loss") is not None:
            yield "Train/Samples/train_loss", record["notes"]["loss"]
        yield "Train/Samples/lr", record["lr"]
        if self._is_scaled:
            yield "Train/Samples/loss_scale", record["loss_scale"]


class _TensorBoard(_Monitor):
    def __init__(self, section: Mapping[str, Any], batch_size: int, is_scaled: bool) -> None:
        super().__init__(section, batch_size, is_scaled)
        self._writer = summary_writer()(self.folder)

    def write(self, events: dict[str, float], samples: int) -> None:
        for name, value in events.items():
            self._writer.add_scalar(name, value, samples)
        self._writer.flush()


class _WandB(_Monitor):
    def __init__(self, section: Mapping[str, Any], batch_size: int, is_scaled: bool) -> None:
        super().__init__(section, batch_size, is_scaled)
        names = {"project": section.get("project") or "deepspeed", "group": section.get("group"), "entity": section.get("team")}
        self._run = WandB(**{name: value for name, value in names.items() if value is not None}).run

    def write(self, events: dict[str, float], samples: int) -> None:
        self._run.log(events, step=samples, commit=True)


class _CSV(_Monitor):
    """A file for each curve, with lines of samples and value."""

    def __init__(self, section: Mapping[str, Any], batch_size: int, is_scaled: bool) -> None:
        super().__init__(section, batch_size, is_scaled)
        os.makedirs(self.folder, exist_ok=True)
        self._begun: set[str] = set()

    def write(self, events: dict[str, float], samples: int) -> None:
        for name, value in events.items():
            with open(os.path.join(self.folder, name.replace("/", "_") + ".csv"), "a", encoding="utf-8") as file:
                if name not in self._begun:
                    self._begun.add(name)
                    file.write(f"step,{name.rsplit('/', 1)[-1]}\n")
                file.write(f"{samples},{value}\n")


_SECTIONS: dict[str, type[_Monitor]] = {"tensorboard": _TensorBoard, "wandb": _WandB, "csv_monitor": _CSV}


def monitors(config: Mapping[str, Any], batch_size: int) -> list[Writer]:
    """What a configuration switches on. ImportError: the library of a section is not installed."""
    found: list[Writer] = []
    is_scaled = bool((config.get("fp16") or {}).get("enabled"))
    for name, kind in _SECTIONS.items():
        section = config.get(name) or {}
        if section.get("enabled"):
            try:
                found.append(kind(section, batch_size, is_scaled))
            except ImportError as error:
                raise ImportError(f'"{name}" is enabled in the configuration: {error}', name=error.name) from error
    return found
