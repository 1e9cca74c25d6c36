# SPDX-License-Identifier: Apache-2.0
"""Weights and moments go to another program and come back by way of NumPy: the training goes on with the same bits.

    python exchange.py [FOLDER]
"""
import sys

import numpy as np

import outrigger.numpy
from outrigger import lowlevel

config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}
STATES = (lowlevel.VALUE_MASTER, lowlevel.VALUE_EXP_AVG, lowlevel.VALUE_EXP_AVG_SQ)


def train(engine, begin, end):
    for step in range(begin, end):
        x = np.random.default_rng(step).normal(size=(16, 8)).astype(np.float32)
        with engine.parameters() as p:
            error = x @ p["w"] + p["b"] - np.sin(x[:, :4])
            with engine.backward(2 * error / error.size) as grads:
                grads["w"] = x.T @ grads.output
                grads["b"] = grads.output.sum(0)
        engine.step()
    return [engine.read(name, value) for name in engine.ids for value in STATES]


def main(folder):
    parameters = {"w": np.zeros((8, 4)), "b": np.zeros(4)}
    with outrigger.numpy.Engine(parameters, config) as engine:
        train(engine, 0, 30)
        engine.save(folder, "saved", replace=True)
        expected = train(engine, 30, 60)

    with outrigger.Checkpoint(folder, "saved") as checkpoint:  # as plain arrays, and as a file that any reader opens
        values = {name: [checkpoint.read(name, state) for state in STATES] for name in parameters}
        checkpoint.export(f"{folder}/model.safetensors", dtype="bfloat16", replace=True)

    with outrigger.CheckpointWriter(folder, "made", exp_avg="float32", exp_avg_sq="float32", applied_steps=30, replace=True) as writer:
        for name, array in parameters.items():
            writer.add_parameter(name, array.shape)
        for name, (weight, exp_avg, exp_avg_sq) in values.items():
            writer.write(name, weight)
            writer.write(name, exp_avg, lowlevel.VALUE_EXP_AVG)
            writer.write(name, exp_avg_sq, lowlevel.VALUE_EXP_AVG_SQ)
    with outrigger.numpy.Engine(parameters, config) as engine:
        engine.load(folder, "made")
        resumed = train(engine, 30, 60)
    assert all(np.array_equal(a, b) for a, b in zip(expected, resumed, strict=True)), "other bits"

    outrigger.import_weights(f"{folder}/model.safetensors", folder, "imported", replace=True)
    with outrigger.numpy.Engine(parameters, config) as engine:
        engine.load(folder, "imported", weights_only=True)
        assert all(np.allclose(engine.read(name), values[name][0], rtol=2**-8) for name in parameters)
    print("out and in again: the same bits")


main(sys.argv[1] if len(sys.argv) > 1 else "exchange.checkpoints")
