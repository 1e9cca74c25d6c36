# SPDX-License-Identifier: Apache-2.0
"""What every case needs: places, time left, starting sides, rows."""

import array
import contextlib
import dataclasses
import math
import os
import pathlib
import socket
import time

import measure
from sides import Side, SideFailed

OURS = "outrigger"
MEMORY = "memory"
CORES = 2  # what every case uses: one a rank, or two threads


@dataclasses.dataclass
class Bench:
    """One call of the benchmark."""

    programs: pathlib.Path  # folder of our benchmark programs
    package: pathlib.Path  # folder of our Python package
    peer_python: pathlib.Path
    peer_missing: str  # why no peer can run; empty if they can
    mpi_missing: str  # the same for MPI
    output: pathlib.Path
    cores: list
    deadline: float  # time.monotonic()
    seed: int
    facts: dict = dataclasses.field(default_factory=dict)  # side → what it said of itself
    curves: list = dataclasses.field(default_factory=list)  # see cases/optimizer_curves.py

    @property
    def tree(self):
        return pathlib.Path(__file__).resolve().parents[2]

    @property
    def build(self):
        """Where the library and the packages of all languages are."""
        return self.package.parent

    @property
    def callers(self):
        return pathlib.Path(__file__).resolve().parent / "callers"

    def peer_command(self, script, *arguments):
        folder = pathlib.Path(__file__).resolve().parent / "peers"
        return [self.peer_python, folder / script, *arguments]

    def peer_environment(self, threads):
        python_bin = self.peer_python.parent
        return {
            "PATH": f"{python_bin}:/usr/local/bin:/usr/bin:/bin",
            "DS_ACCELERATOR": "cpu",
            "OMP_NUM_THREADS": str(threads),
            "OMP_PROC_BIND": "true",  # else two threads often share a core for some milliseconds
            "PYTHONDONTWRITEBYTECODE": "1",
            "TORCH_EXTENSIONS_DIR": str(python_bin.parent / "torch_extensions"),
        }

    @contextlib.contextmanager
    def sides(self, specifications):
        """Starts the sides (dictionaries of Side's arguments), and one that measures the machine's plain memory
        speed; waits until all are ready; ends them."""
        folder = self.output / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        memory = {
            "name": MEMORY,
            "commands": [[self.programs / "bench_memory_speed", 2]],
            "cores": [set(self.cores[:2])],
        }
        started = []
        try:
            for specification in [*specifications, memory]:
                started.append(Side(log_folder=folder, **specification))
            for side in started:
                self.facts[side.name] = side.ready(timeout=300)[0]
            yield started
        finally:
            for side in started:
                side.close()

    def measured(self, missing, body, needs_peers=True):
        """The rows of body(), or missing(reason) where they cannot be had."""
        reason = self.peer_missing if needs_peers else ""
        if not reason and len(self.cores) < CORES:
            reason = f"needs {CORES} cores, has {len(self.cores)}"
        if not reason and time.monotonic() > self.deadline:
            reason = "no time was left"
        if reason:
            return missing(reason)
        try:
            return body()
        except SideFailed as failure:
            return missing(str(failure))

    def scratch(self, name):
        folder = self.output / "work" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def read_floats(path):
    values = array.array("f")
    values.frombytes(pathlib.Path(path).read_bytes())
    return values


def compare(ours, peer, significant_bits, floor=0.0):
    """Two sets of samples: the largest difference in units of the last place of a format with `significant_bits`
    (of `floor` where both values are smaller), and the share of values that are the same."""
    if len(ours) != len(peer) or not ours:
        raise SideFailed(f"{len(ours)} samples of ours against {len(peer)} of the peer's")
    worst, same = 0.0, 0
    for own, other in zip(ours, peer, strict=True):
        if own == other:
            same += 1
            continue
        exponent = measure.exponent_of(max(abs(own), abs(other), floor))
        difference = abs(own - other) / 2.0 ** (exponent - significant_bits)
        worst = max(worst, math.inf if math.isnan(difference) else difference)
    return {"largest_difference_ulp": worst, "same": same / len(ours), "samples": len(ours)}


def compare_losses(ours, peer, tolerance):
    """Lists of losses, one for each rank."""
    pairs = [pair for own, other in zip(ours, peer, strict=True) for pair in zip(own, other, strict=True)]
    worst = max(abs(a - b) / abs(b) for a, b in pairs)
    return {"agree": worst <= tolerance, "largest_relative_difference": worst, "ours_losses": ours[0], "peer_losses": peer[0]}


def remove_deepspeed_buffers(port):
    """DeepSpeed never unlinks its shared-memory buffers; these are the ones of the job that just ended."""
    for path in pathlib.Path("/dev/shm").glob(f"deepspeed_allreduce_buffer_*_{port}_*"):
        if path.stat().st_uid == os.getuid():
            path.unlink(missing_ok=True)


def row(case, peer, target, timed, rounds=None, peer_side=None, ours=OURS, **more):
    """One line of the report; without rounds it is "not measured" and `reason` says why."""
    result = {"case": case, "peer": peer, "ratio": None, "target": target, "met": None, "timed": timed, **more}
    if rounds is not None:
        ratio = rounds.ratio(peer_side, ours)
        result.update(
            ratio=ratio["median"],
            met=ratio["median"] >= target,
            ratio_p10=ratio["p10"],
            ratio_p90=ratio["p90"],
            rounds=len(rounds),
            ours_seconds=measure.summary(rounds.seconds[ours]),
            peer_seconds=measure.summary(rounds.seconds[peer_side]),
        )
    return result


def memory_speed(rounds):
    """Medians over the rounds, in GB/s."""
    facts = [fact[0] for fact in rounds.facts[MEMORY]]
    return {key: measure.summary([fact[key] for fact in facts])["median"] for key in facts[0]}
