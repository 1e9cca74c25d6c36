# SPDX-License-Identifier: Apache-2.0
"""A model with more classes begins from the weights of another one, of whose names it has others.

    python finetune.py [FOLDER]        outrigger run -n 2 -- python finetune.py [FOLDER]
"""
import sys

import numpy as np

import outrigger.numpy

config = {"zero_optimization": {"stage": 3}, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}


def train(engine, names, classes, steps):
    encoder, head = names
    for step in range(steps):
        random = np.random.default_rng(step)
        x, wanted = random.normal(size=(16, 8)).astype(np.float32), random.integers(classes, size=16)
        with engine.parameters() as p:
            h = np.tanh(x @ p[encoder])
            scores = np.exp(h @ p[head].T)
            error = scores / scores.sum(1, keepdims=True) - np.eye(classes, dtype=np.float32)[wanted]
            with engine.backward(error / 16) as grads:
                grads[head] = grads.output.T @ h
                grads[encoder] = x.T @ (grads.output @ p[head] * (1 - h * h))
        engine.step()


def main(folder):
    old = {"model": {"encoder": {"w": np.eye(8)}, "head": {"w": np.zeros((4, 8))}}}
    with outrigger.numpy.Engine(old, config) as engine:
        train(engine, ("model.encoder.w", "model.head.w"), 4, 30)
        engine.save(folder, "classes4", replace=True)
        encoder, head = engine.read("model.encoder.w"), engine.read("model.head.w")

    new = {"encoder": {"w": np.zeros((8, 8))}, "head": {"w": np.full((6, 8), 0.125)}}
    with outrigger.numpy.Engine(new, config) as engine:
        engine.load(folder, weights_only=True, include="encoder.*", renamed={"encoder.*": "model.encoder.*"})
        assert np.array_equal(engine.read("encoder.w"), encoder) and np.all(engine.read("head.w") == 0.125)
        engine.load(folder, weights_only=True, renamed={"*": "model.*"}, resized="head.w")
        assert np.array_equal(engine.read("head.w"), np.vstack([head, np.full((2, 8), 0.125)]))
        train(engine, ("encoder.w", "head.w"), 6, 10)
    with outrigger.numpy.Engine({"encoder": {"w": np.zeros((8, 8))}, "head": {"w": np.zeros((4, 8))}}, config) as engine:
        engine.load(folder, renamed={"*": "model.*"})
        train(engine, ("encoder.w", "head.w"), 4, 10)
    print("a part, under other names, with more rows")


main(sys.argv[1] if len(sys.argv) > 1 else "finetune.checkpoints")
