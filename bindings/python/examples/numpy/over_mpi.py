# SPDX-License-Identifier: Apache-2.0
"""Ranks that MPI started, on any hosts:

    mpirun -n 4 python over_mpi.py
"""
import numpy as np

import outrigger.numpy


def train(comm):
    config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.02}}, "zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}
    losses = []
    with outrigger.numpy.Engine({"w": np.zeros((8, 4)), "b": np.zeros(4)}, config, comm) as engine:
        random = np.random.default_rng(engine.rank)
        for _ in range(100):
            x = random.normal(size=(16, 8)).astype(np.float32)
            with engine.parameters() as p:
                error = x @ p["w"] + p["b"] - 2 * x[:, :4]
                losses.append(float(np.mean(error**2)))
                with engine.backward(2 * error / error.size) as grads:
                    grads["w"] = x.T @ grads.output
                    grads["b"] = grads.output.sum(0)
            engine.step()
    return losses


def main():
    with outrigger.Context() as context, outrigger.Comm.mpi(context) as comm:
        losses = train(comm)
        print(f"rank {comm.rank} of {comm.size}: loss {losses[0]:.2f} to {losses[-1]:.3f}")
        assert losses[-1] < 0.3 * losses[0], "it does not learn"


main()
