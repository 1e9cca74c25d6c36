# SPDX-License-Identifier: Apache-2.0
"""Four ranks in two groups of two: each group has the whole training, and its two ranks share it out.

    outrigger run -n 4 -- python mesh.py
"""
import numpy as np

import outrigger.numpy


def train(comm, shard):
    config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.02}}, "zero_optimization": {"stage": 3}, "bf16": {"enabled": True},
              "outrigger": {"mesh": {"shard": shard}}}
    with outrigger.numpy.Engine({"w": np.zeros((64, 32)), "b": np.zeros(32)}, config, comm) as engine:
        random = np.random.default_rng(engine.rank)
        losses = []
        for _ in range(200):
            x = random.normal(size=(16, 64)).astype(np.float32)
            with engine.parameters() as p:
                error = x @ p["w"] + p["b"] - 2 * x[:, :32]
                losses.append(float(np.mean(error**2)))
                with engine.backward(2 * error / error.size) as grads:
                    grads["w"] = x.T @ grads.output
                    grads["b"] = grads.output.sum(0)
            engine.step()
        first, count = engine.library.local_range(engine.ids["w"])
        return losses, (first, first + count), engine.read("w")


def main():
    with outrigger.Context() as context, outrigger.Comm.from_env(context) as comm:
        losses, range_in_group, w = train(comm.duplicate(), 2)
        _, range_of_all, flat = train(comm.duplicate(), 4)
        print(f"rank {comm.rank} of {comm.size}: loss {losses[0]:.2f} to {losses[-1]:.3f}; it keeps {range_in_group} of w, without groups {range_of_all}")
        assert losses[-1] < 0.1 * losses[0], "it does not learn"
        assert range_in_group[1] - range_in_group[0] > range_of_all[1] - range_of_all[0], "a group is cut over fewer ranks"
        assert np.abs(w - flat).max() < 0.02, "another order of additions, no other training"


main()
