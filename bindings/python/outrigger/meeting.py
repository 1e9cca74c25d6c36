# SPDX-License-Identifier: Apache-2.0
"""Ranks that find each other on a board that all can write on, and on which former ranks have left what they wrote."""
from __future__ import annotations

import secrets
import time
from typing import Protocol

from . import lowlevel
from .lowlevel import OutriggerError

_NAMED = 16  # ranks of a text at most
_PATIENCE = 5.0  # seconds more than rank 0 has, so that it is rank 0 who says who did not come


class Board(Protocol):
    """Texts by key, which all ranks see."""

    def set(self, key: str, text: str) -> object: ...
    def get(self, key: str) -> str: ...  # that is there
    def has(self, key: str) -> bool: ...
    def wait(self, key: str, seconds: float) -> bool: ...  # until it is there; False: it did not come. May raise OutriggerError
    def pause(self, missing: list[int]) -> None: ...  # a moment, while these ranks are waited for. May raise OutriggerError


def agree(board: Board, rank: int, size: int, seconds: float) -> str:
    """A name that rank 0 has just made: the same on all ranks, and no other meeting's. OutriggerError E_TIMEOUT: the ranks that did not
    come; or what the board raises. Rank 0's error is that of all who came. Collective."""
    return _invite(board, size, seconds) if rank == 0 else _ask(board, rank, seconds)


def _ask(board: Board, rank: int, seconds: float) -> str:
    mine = secrets.token_hex(8)
    board.set(f"asks/{rank}", mine)  # in the place of what a former rank of this number asked
    end = time.monotonic() + seconds
    name = None
    if board.wait(f"answer/{mine}", seconds):
        name = board.get(f"answer/{mine}")
        board.set(f"{name}/joined/{rank}", mine)
    if name is None or not board.wait(f"{name}/end", max(0.0, end - time.monotonic()) + _PATIENCE):
        raise OutriggerError(lowlevel.E_TIMEOUT, f"rank {rank} waited {seconds:g} s for rank 0, which did not come: see what it printed, or give a longer timeout")
    code, text = board.get(f"{name}/end").split(" ", 1)
    if int(code) != lowlevel.OK:
        raise OutriggerError(int(code), text)
    return name


def _invite(board: Board, size: int, seconds: float) -> str:
    name = secrets.token_hex(8)
    answered: set[str] = set()  # one of them may be a dead rank's, which nobody reads
    missing = list(range(1, size))
    end = time.monotonic() + seconds
    try:
        while missing:
            _answer(board, name, missing, answered)
            missing = [rank for rank in missing if not board.has(f"{name}/joined/{rank}")]
            if missing and time.monotonic() > end:
                raise OutriggerError(lowlevel.E_TIMEOUT, f"{_named(missing)} of {size} did not come within {seconds:g} s: see what they printed, or give a longer timeout")
            if missing:
                board.pause(missing)
    except OutriggerError as error:
        board.set(f"{name}/end", f"{error.code} {error.text}")
        _answer(board, name, missing, answered)
        raise
    board.set(f"{name}/end", f"{lowlevel.OK} ")
    return name


def _answer(board: Board, name: str, ranks: list[int], answered: set[str]) -> None:
    for rank in ranks:
        if board.has(f"asks/{rank}") and (who := board.get(f"asks/{rank}")) not in answered:
            board.set(f"answer/{who}", name)
            answered.add(who)


def _named(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:_NAMED]))}{' and more' if len(ranks) > _NAMED else ''}"
