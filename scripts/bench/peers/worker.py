# SPDX-License-Identifier: Apache-2.0
"""The worker's end of the line protocol that scripts/bench/sides.py speaks.

A worker answers one line of JSON for each line it reads:
    (start)        -> {"ready": {facts}}
    check FOLDER   -> {"checked": {facts}}      computes, leaves files in FOLDER
    shape ARGUMENTS -> {"ready": {facts}}       sets up anew, in another size; few workers can
    run TIMES      -> {"run": [start_ns, end_ns, {facts}]}
    quit           -> (end)
or {"error": text}. The clock is the system's monotonic one, which all processes of a host share.
"""

import json
import os
import sys
import time
import traceback


class Worker:
    """Subclasses fill in setup, check, prepare and work."""

    def setup(self):
        """Allocates everything; returns facts for the report."""
        return {}

    def shape(self, *arguments):
        """Sets up anew, in another size; returns facts."""
        raise NotImplementedError

    def check(self, folder):
        """Computes what is compared with the other side and writes it to `folder`; returns facts."""
        raise NotImplementedError

    def prepare(self):
        """Before each run, not timed; the last thing it does is a barrier over the side's ranks."""

    def work(self):
        """What is timed; returns facts or None."""
        raise NotImplementedError

    def rest(self):
        """After each run, not timed: waits for what work() left running, which would disturb the next side."""


def serve(make_worker):
    """Answers lines until "quit" or the end of input. Libraries that print go to standard error."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(message):
        out.write(json.dumps(message) + "\n")

    try:
        worker = make_worker()
        answer({"ready": worker.setup()})
        for line in sys.stdin:
            command, _, argument = line.strip().partition(" ")
            if command == "quit":
                break
            if command == "check":
                answer({"checked": worker.check(argument)})
            elif command == "shape":
                answer({"ready": worker.shape(*argument.split())})
            elif command == "run":
                worker.prepare()
                start = time.monotonic_ns()
                for _ in range(int(argument)):
                    facts = worker.work()
                end = time.monotonic_ns()
                worker.rest()
                answer({"run": [start, end, facts or {}]})
            else:
                raise ValueError(f"unknown command {command!r}")
    except BaseException as error:  # the driver has to hear of everything
        traceback.print_exc()
        answer({"error": f"{type(error).__name__}: {error}"})
        out.flush()
        os._exit(1)
    out.flush()
    os._exit(0)  # no teardown of process groups: the driver has what it wants


def write_samples(folder, name, values):
    """values: a torch tensor; written as raw float32."""
    values.float().contiguous().numpy().tofile(os.path.join(folder, name))
