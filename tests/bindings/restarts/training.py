# SPDX-License-Identifier: Apache-2.0
"""A training that goes on from FOLDER, and whose rank 1 kills itself at a step that SEED chooses, in the first attempts.

    outrigger run -n 2 --max-restarts 2 -- python training.py FOLDER OUTPUT SEED ATTEMPTS
"""
import os
import random
import signal
import sys

import numpy as np

import outrigger.numpy
from outrigger import lowlevel

STEPS, EVERY, LAST = 40, 6, 36
folder, output, seed, attempts = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
chance = random.Random(f"{seed} {attempt}")
# Momentum, without a norm: a gradient that counts twice is another training.
config = {"optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}}, "zero_optimization": {"stage": 1 + seed % 3},
          "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
          "outrigger": {"states": {"master": {"rounding": "stochastic"}}}}


def die(step, moment):
    if engine.rank == 1 and attempt < attempts and step >= death[0] and moment == death[1]:
        os.kill(os.getpid(), signal.SIGKILL)


with outrigger.numpy.Engine({"w": np.zeros((8, 40)), "b": np.zeros(40)}, config) as engine:
    begin = int(engine.resume(folder).get("step", 0))
    # Behind the first checkpoint, before the last one: before a pass, in it, behind the step, or where rank 0 saves already.
    death = chance.randrange(max(begin, EVERY + 1), LAST), chance.choice(("before", "in", "behind", "save"))
    if engine.rank == 0:
        print("begins at", begin, flush=True)
    for step in range(begin, STEPS):
        die(step, "before")
        data = np.random.default_rng((step, engine.rank))
        x = data.normal(size=(16, 8)).astype(np.float32)
        with engine.parameters() as p:
            error = x @ p["w"] + p["b"] - np.sin(np.tile(x, 5))
            with engine.backward(2 * error / error.size) as grads:
                grads["w"] = x.T @ grads.output
                die(step, "in")
                grads["b"] = grads.output.sum(0)
        engine.step()
        die(step, "behind")
        if (step + 1) % EVERY == 0:
            die(step, "save")
            engine.save(folder, f"step{step + 1}", parts={"step": b"%d" % (step + 1)}, keep_last=2, replace=True)
    values = {f"{name} {value}": engine.read(name, value) for name in engine.ids for value in (lowlevel.VALUE_MASTER, lowlevel.VALUE_EXP_AVG)}
    if engine.rank == 0:
        np.savez(output, **values)
