# SPDX-License-Identifier: Apache-2.0
"""Four ranks as two hosts of two, on one machine: gradients go between hosts as 8-bit blocks, in a quarter of the bytes, and
gathered weights as 8-bit integers.

    outrigger run -n 4 -- python compressed.py
"""
import numpy as np

import outrigger.numpy


def levels(comm, each):
    """On a cluster, world and across are outrigger.Comm.custom or outrigger.Comm.mpi, and host is outrigger.Comm.shared_memory."""
    host = comm.split(comm.rank // each, comm.rank)
    across = comm.split(comm.rank % each, comm.rank)
    return outrigger.Comm.hierarchical(comm, host, across)


def train(comm, **compressed):
    config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.02, "weight_decay": 0}},
              "zero_optimization": {"stage": 3, **compressed}}
    losses = []
    wanted = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    with outrigger.numpy.Engine({"w": np.zeros((64, 32))}, config, comm) as engine:
        random = np.random.default_rng(1 + engine.rank)
        for _ in range(200):
            x = random.normal(size=(16, 64)).astype(np.float32)
            with engine.parameters() as p:
                error = x @ (p["w"] - wanted)
                losses.append(float(np.mean(error**2)))
                with engine.backward(2 * error / error.size) as grads:
                    grads["w"] = x.T @ grads.output
            engine.step()
        return losses, engine.read("w"), np.abs(engine.read("w") - wanted).mean()


def main():
    with outrigger.Context() as context, outrigger.Comm.from_env(context) as comm:
        both = levels(comm, 2)
        plain, w, apart = train(both)
        print(f"rank {comm.rank}: loss {plain[0]:.1f} to {plain[-1]:.2e}; mean error of a weight {apart:.1e}")
        for compressed in ({"zero_quantized_gradients": True}, {"zero_quantized_gradients": True, "zero_quantized_weights": True}):
            losses, w_sent, apart = train(both, **compressed)
            print(f"rank {comm.rank}: with {' and '.join(compressed)} to {losses[-1]:.2e}; mean error of a weight {apart:.1e}")
            assert losses[-1] < 0.05 * losses[0], "it does not learn"
            assert not np.array_equal(w, w_sent), "nothing was rounded"
            assert np.abs(w - w_sent).max() < 0.1, "rounding leads elsewhere"


main()
