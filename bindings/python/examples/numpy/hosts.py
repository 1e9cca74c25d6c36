# SPDX-License-Identifier: Apache-2.0
"""Four ranks as two hosts of two, on one machine: gradients are summed on a host first, then across hosts.

    outrigger run -n 4 -- python hosts.py
"""
import numpy as np

import outrigger.numpy


def levels(comm, each):
    """On a cluster, world and across are outrigger.Comm.custom, and host is outrigger.Comm.shared_memory."""
    host = comm.split(comm.rank // each, comm.rank)
    across = comm.split(comm.rank % each, comm.rank)
    return outrigger.Comm.hierarchical(comm, host, across)


def train(comm):
    config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.02}}, "zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}
    losses = []
    with outrigger.numpy.Engine({"w": np.zeros((8, 4)), "b": np.zeros(4)}, config, comm) as engine:
        random = np.random.default_rng(engine.rank)
        for _ in range(200):
            x = random.normal(size=(16, 8)).astype(np.float32)
            with engine.parameters() as p:
                error = x @ p["w"] + p["b"] - 2 * x[:, :4]
                losses.append(float(np.mean(error**2)))
                with engine.backward(2 * error / error.size) as grads:
                    grads["w"] = x.T @ grads.output
                    grads["b"] = grads.output.sum(0)
            engine.step()
        return losses, engine.read("w")


def main():
    with outrigger.Context() as context, outrigger.Comm.from_env(context) as comm:
        losses, w = train(levels(comm, 2))
        flat, w_flat = train(comm.duplicate())
        print(f"rank {comm.rank} of {comm.size}: loss {losses[0]:.2f} to {losses[-1]:.3f}, on one level to {flat[-1]:.3f}")
        assert losses[-1] < 0.1 * losses[0], "it does not learn"
        assert np.abs(w - w_flat).max() < 0.02, "two levels are not one"


main()
