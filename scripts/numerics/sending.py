# SPDX-License-Identifier: Apache-2.0
"""What training loses by gradients that go between ranks as 8-bit blocks, and by weights that go as 8-bit integers: the
regression on four ranks, which are threads of this process, each with batches of its own."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from regression import BATCH, INPUTS, NOISE, network, output, rate, step_once, teacher
from runs import Run, run_of
from variants import FLOAT32, HOSTS, RANKS


def train(way: str, seed: int, steps: int, lr: float, last: float) -> Run:
    import outrigger

    context = outrigger.Context(workers=1, log_level=outrigger.lowlevel.LOG_ERROR)
    with ThreadPoolExecutor(RANKS) as threads:
        ranks = list(threads.map(lambda comm: _rank(comm, way, seed, steps, lr, last), outrigger.Comm.threads(context, RANKS)))
    losses = np.mean([losses for losses, _ in ranks], axis=0).tolist()
    return run_of(seed, losses, ranks[0][1], 1, 0)


def _rank(comm: Any, way: str, seed: int, steps: int, lr: float, last: float) -> tuple[list[float], float]:
    import outrigger.numpy

    if way in ("hosts", "both"):
        each = RANKS // HOSTS
        comm = outrigger.Comm.hierarchical(comm, comm.split(comm.rank // each, comm.rank), comm.split(comm.rank % each, comm.rank))
    config = {"gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"weight_decay": 0.01}},
              "zero_optimization": {"stage": 3, "zero_quantized_gradients": way not in (FLOAT32, "weights"),
                                    "zero_quantized_weights": way in ("weights", "both")}}
    goal, initial = teacher(0), network(np.random.default_rng([3, seed]), gain=1.0)
    random, losses = np.random.default_rng([7, seed, comm.rank]), []
    with outrigger.numpy.Engine(initial, config, comm=comm) as engine:
        for step in range(steps):
            x = random.normal(size=(BATCH // RANKS, INPUTS)).astype(np.float32)
            y = output(goal, x)[2] + NOISE * random.normal(size=(len(x), 1)).astype(np.float32)
            engine.library.set_group_value("lr", rate(step, steps, lr, last))
            losses.append(step_once(engine, x, y)[0])
        x = np.random.default_rng(99).normal(size=(8192, INPUTS)).astype(np.float32)
        with engine.parameters() as p:
            held_out = float(np.mean((output(p, x)[2] - output(goal, x)[2]) ** 2))
    return losses, held_out
