# SPDX-License-Identifier: Apache-2.0
"""A worker is killed in the middle of a training. Another process takes its place, by way of a survivor's memory: the bits of a
run in which nobody died, and no disk.

    python survivors.py
"""
import hashlib
import os
import signal
import subprocess
import sys
import time
import uuid

import numpy as np

import outrigger
import outrigger.numpy

WORLD, STEPS, EVERY = 3, 40, 5
GONE = ("OTR_E_PEER_DEAD", "OTR_E_ABORTED", "OTR_E_POISONED")  # the last from calls after the first that failed
config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 2}, "bf16": {"enabled": True},
          "outrigger": {"seed": 7, "states": {"master": {"format": "bfloat16", "rounding": "stochastic"}}}}


def step(engine, number):
    random = np.random.default_rng((number, engine.rank))  # the data of a step follows from its number
    x = random.normal(size=(16, 8)).astype(np.float32)
    with engine.parameters() as p:
        error = x @ p["w"] + p["b"] - np.sin(x[:, :4])
        with engine.backward(2 * error / error.size) as grads:
            grads["w"] = x.T @ grads.output
            grads["b"] = grads.output.sum(0)
    engine.step()


def train(comm, snapshots, dies_at):
    parameters = {"w": np.zeros((8, 4)), "b": np.zeros(4)}
    with outrigger.numpy.Engine(parameters, config, comm) as engine:
        if any(snapshot.info.rank >= 0 for snapshot in snapshots) or dies_at is None:
            engine.restore(*snapshots)
        for number in range(engine.get_progress()["steps"]["micro"], STEPS):
            if number == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            step(engine, number)
            if (number + 1) % EVERY == 0:  # in turn, so that one is whole at every moment
                engine.snapshot(snapshots[(number + 1) // EVERY % 2], replicas=1)
        return hashlib.sha256(b"".join(engine.read(name).tobytes() for name in engine.ids)).hexdigest()


def work(rank, job, attempt, dies_at):
    context, snapshots = outrigger.Context(), (outrigger.Snapshot(), outrigger.Snapshot())
    for group in range(attempt, attempt + 3):
        try:
            comm = outrigger.Comm.shared_memory(context, rank=rank, world_size=WORLD, job=f"{job}-{group}", timeout=30.0)
            print(train(comm, snapshots, dies_at if group == attempt else -1))
            return
        except outrigger.OutriggerError as error:
            if error.name not in GONE:
                raise
            print(f"rank {rank} goes on without a process: {error.name}", file=sys.stderr)
    sys.exit("too many have died")


def start(rank, job, attempt, dies_at):
    words = [str(rank), job, str(attempt), "new" if dies_at is None else str(dies_at)]
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), *words], stdout=subprocess.PIPE, text=True)


def run(killed):
    """What the ranks have in the end; killed: this one dies in step 17."""
    job = f"survivors-{uuid.uuid4()}"
    processes = [start(rank, job, 0, 17 if rank == killed else -1) for rank in range(WORLD)]
    deadline = time.monotonic() + 120
    while any(process.poll() is None for process in processes):
        if time.monotonic() > deadline:
            for process in processes:
                process.kill()
            sys.exit("the ranks did not end")
        for rank, process in enumerate(processes):
            if process.poll() == -signal.SIGKILL:
                process.communicate()
                processes[rank] = start(rank, job, 1, None)
        time.sleep(0.02)
    return [process.communicate()[0].strip() for process in processes]


def main():
    expected = run(killed=None)
    assert len(set(expected)) == 1 and expected[0], expected
    for rank in range(WORLD):
        assert run(killed=rank) == expected, "other bits"
    print(f"each of {WORLD} ranks was killed once and replaced: the same bits")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), None if sys.argv[4] == "new" else int(sys.argv[4]))
    else:
        main()
