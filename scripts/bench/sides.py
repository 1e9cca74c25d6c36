# SPDX-License-Identifier: Apache-2.0
"""One side of a comparison: the processes of its ranks, driven line by line (see peers/worker.py)."""

import ctypes
import json
import os
import selectors
import signal
import subprocess
import time


class SideFailed(Exception):
    """A worker answered with an error, ended or was silent; the text says which and where its log is."""


def shown(path):
    """As seen from here, without this machine's own folders: texts go into results."""
    return os.path.relpath(path)


def _confine(cores):
    """In the child: these cores only, and no life after the driver's."""
    os.sched_setaffinity(0, cores)
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Side:
    """The ranks of one side. `name` is shown; commands: one argument list a rank; cores: one set a rank."""

    def __init__(self, name, commands, cores, log_folder, environment=None):
        self.name = name
        self.logs = [log_folder / f"{name.replace(' ', '-')}.{rank}.log" for rank in range(len(commands))]
        self.processes = []
        for rank, (command, allowed) in enumerate(zip(commands, cores, strict=True)):
            with self.logs[rank].open("wb") as log:
                process = subprocess.Popen(
                    [str(word) for word in command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env={**os.environ, **(environment or {})},
                    start_new_session=True,
                    preexec_fn=lambda allowed=allowed: _confine(allowed),
                )
            self.processes.append(process)

    def ready(self, timeout):
        return [answer["ready"] for answer in self._answers(timeout)]

    def check(self, folder, timeout):
        """Runs the numerics check on all ranks; returns each rank's facts."""
        self._tell(f"check {folder}")
        return [answer["checked"] for answer in self._answers(timeout)]

    def shape(self, arguments, timeout):
        """Sets the workers up anew, in another size; returns each rank's facts."""
        self._tell(f"shape {arguments}")
        return [answer["ready"] for answer in self._answers(timeout)]

    def run(self, timeout, times=1):
        """Seconds from the first rank's start to the last one's end, of one of so many `times` in a row, and each rank's facts."""
        self._tell(f"run {times}")
        spans = [answer["run"] for answer in self._answers(timeout)]
        seconds = (max(end for _, end, _ in spans) - min(start for start, _, _ in spans)) / 1e9 / times
        return seconds, [facts for _, _, facts in spans]

    def close(self):
        """Ends the processes: asked first, killed after five seconds. Closing it again is a no-op."""
        for process in self.processes:
            try:
                process.stdin.write(b"quit\n")
                process.stdin.close()
            except OSError:
                pass
        deadline = time.monotonic() + 5
        for process in self.processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # the session that Popen made
                process.wait()
            process.stdout.close()
        self.processes = []

    def _tell(self, line):
        for process in self.processes:
            try:
                process.stdin.write(line.encode() + b"\n")
                process.stdin.flush()
            except OSError:
                pass  # its end of output tells more

    def _answers(self, timeout):
        """One answer of each rank, or SideFailed as soon as one cannot come."""
        deadline = time.monotonic() + timeout
        answers, buffers = [None] * len(self.processes), [b""] * len(self.processes)
        with selectors.DefaultSelector() as selector:
            for rank, process in enumerate(self.processes):
                selector.register(process.stdout, selectors.EVENT_READ, rank)
            while selector.get_map():
                events = selector.select(max(0.0, deadline - time.monotonic()))
                if not events:
                    late = [rank for rank, answer in enumerate(answers) if answer is None]
                    raise SideFailed(
                        f"{self.name}: no answer of rank {late[0]} within {timeout:.0f} s, see {shown(self.logs[late[0]])}"
                    )
                for key, _ in events:
                    rank = key.data
                    chunk = os.read(key.fd, 65536)
                    buffers[rank] += chunk
                    if not chunk or buffers[rank].endswith(b"\n"):
                        selector.unregister(key.fileobj)
                        answers[rank] = self._parse(rank, buffers[rank])
        return answers

    def _parse(self, rank, line):
        if not line.endswith(b"\n"):
            code = self.processes[rank].wait()
            raise SideFailed(f"{self.name}: rank {rank} ended with status {code}, see {shown(self.logs[rank])}")
        answer = json.loads(line)
        if "error" in answer:
            raise SideFailed(f"{self.name}: rank {rank}: {answer['error']}")
        return answer
