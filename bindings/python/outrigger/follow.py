# SPDX-License-Identifier: Apache-2.0
"""python -m outrigger.follow: gives the records that a run writes into a folder to writers, whatever language the run is in."""
from __future__ import annotations

import argparse
import glob
import json
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

from . import watch

if TYPE_CHECKING:
    from collections.abc import Callable

_QUIET = 0.5  # seconds between two looks


class _File:
    """One rank's, read as it grows."""

    def __init__(self, path: str) -> None:
        self.path, self.start, self._ended = path, {}, False  # type: ignore[var-annotated]
        self._place, self._rest = 0, b""

    def news(self) -> list[dict[str, Any]]:
        """Records of steps that came since the last call."""
        with open(self.path, "rb") as file:
            file.seek(self._place)
            text = self._rest + file.read()
            self._place = file.tell()
        *lines, self._rest = text.split(b"\n")
        steps = []
        for line in lines:
            record = _record_of(line)
            kind = record.get("record")
            if kind == "start":
                self.start = record
            elif kind == "end":
                self._ended = True
            elif kind == "step":
                steps.append(record)
        return steps

    @property
    def rank(self) -> int:
        return int(self.start.get("rank", 0))

    @property
    def is_over(self) -> bool:
        """It has its last line, or its process was of this host and is no more."""
        return self._ended or (self.start.get("host") == socket.gethostname() and not _is_there(self.start["process"]))


def _record_of(line: bytes) -> dict[str, Any]:
    """Empty: a line of somebody else's."""
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrigger.follow", description=__doc__)
    parser.add_argument("folder", help="of records: outrigger run --records FOLDER")
    parser.add_argument("--tensorboard", metavar="FOLDER", help="a folder in it for each rank")
    parser.add_argument("--wandb", metavar="PROJECT", help="rank 0's numbers; WANDB_MODE=offline keeps them here")
    parser.add_argument("--csv", metavar="FILE", help="rank 0's numbers")
    parser.add_argument("--prometheus", metavar="FILE", help="the last numbers of every rank")
    parser.add_argument("--all-ranks", action="store_true", help="for TensorBoard every rank's numbers, not only rank 0's")
    parser.add_argument("--once", action="store_true", help="what is there now; default: until the run has ended")
    options = parser.parse_args()
    if not any((options.tensorboard, options.wandb, options.csv, options.prometheus)):
        parser.error("name where the numbers shall go: --tensorboard, --wandb, --csv or --prometheus")
    if not os.path.isdir(options.folder):
        parser.error(f"{options.folder} is no folder")
    return options


class _Follower:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._files: dict[str, _File] = {}
        self._writers: dict[str, list[Callable[[dict[str, Any]], object]]] = {}
        self._last: dict[str, tuple[str, dict[str, Any]]] = {}
        self._rank0 = [watch.CSV(options.csv)] if options.csv else []
        if options.wandb:
            self._rank0.append(watch.WandB(project=options.wandb))  # type: ignore[arg-type]

    def look(self) -> int:
        """Returns how many records were new."""
        count = 0
        for path in sorted(glob.glob(os.path.join(glob.escape(self._options.folder), "rank-*.jsonl"))):
            file = self._files.setdefault(path, _File(path))
            for record in file.news():
                count += 1
                for writer in self._of(file):
                    writer(record)
                name = os.path.splitext(os.path.basename(path))[0]
                self._last[path] = (watch.labels_of({"file": name, "rank": str(file.rank)}), record)
        if count and self._options.prometheus:
            watch.replace(self._options.prometheus, watch.exposition(list(self._last.values())))
        return count

    def _of(self, file: _File) -> list[Callable[[dict[str, Any]], object]]:
        if file.path not in self._writers:
            writers: list[Any] = list(self._rank0) if file.rank == 0 else []
            if self._options.tensorboard and (file.rank == 0 or self._options.all_ranks):
                name = os.path.splitext(os.path.basename(file.path))[0]
                writers.append(watch.TensorBoard(os.path.join(self._options.tensorboard, name)))
            self._writers[file.path] = writers
        return self._writers[file.path]

    @property
    def is_over(self) -> bool:
        begun = [file for file in self._files.values() if file.start]
        return bool(begun) and all(file.is_over for file in begun)

    def close(self) -> None:
        for writer in {id(each): each for group in [*self._writers.values(), self._rank0] for each in group}.values():
            if hasattr(writer, "close"):
                writer.close()


def main() -> NoReturn:
    options = _arguments()
    try:
        follower = _Follower(options)
    except ImportError as error:
        sys.exit(f"outrigger.follow: {error}")
    total, told = 0, time.monotonic()
    try:
        while True:
            total += follower.look()
            if options.once or follower.is_over:
                total += follower.look()  # what came before it ended
                break
            if time.monotonic() - told > 30:
                print(f"outrigger.follow: {total} records so far", file=sys.stderr, flush=True)
                told = time.monotonic()
            time.sleep(_QUIET)
    except KeyboardInterrupt:
        pass
    finally:
        follower.close()
    print(f"outrigger.follow: {total} records")
    sys.exit(0)


if __name__ == "__main__":
    main()
