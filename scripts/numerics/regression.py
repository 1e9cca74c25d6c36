# SPDX-License-Identifier: Apache-2.0
"""The second play: a network of three layers in NumPy learns what another network computes, through outrigger.numpy. Its
loss has no floor but the noise of the targets, so what precision costs shows more than in a text."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from runs import Run, run_of
from variants import configuration

INPUTS, HIDDEN, BATCH, NOISE = 16, 64, 64, 0.02
Weights = dict[str, np.ndarray]


def network(random: np.random.Generator, gain: float) -> Weights:
    shapes = {"w1": (INPUTS, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, HIDDEN), "b2": (HIDDEN,), "w3": (HIDDEN, 1)}
    return {name: (random.normal(0, gain / math.sqrt(shape[0]), shape) if len(shape) == 2 else np.zeros(shape)).astype(np.float32)
            for name, shape in shapes.items()}


def teacher(task: int) -> Weights:
    """Task 0, and others that are near it: fine-tuning goes from one to the next."""
    result = network(np.random.default_rng(1000), gain=1.5)
    if task > 0:
        change = network(np.random.default_rng(1000 + task), gain=0.3)
        result = {name: value + change[name] for name, value in result.items()}
    return result


def output(p: Weights, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    first = np.tanh(x @ p["w1"] + p["b1"])
    second = np.tanh(first @ p["w2"] + p["b2"])
    return first, second, second @ p["w3"]


def batches(goal: Weights, seed: int, steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng([7, seed])
    for _ in range(steps):
        x = random.normal(size=(BATCH, INPUTS)).astype(np.float32)
        yield x, output(goal, x)[2] + NOISE * random.normal(size=(BATCH, 1)).astype(np.float32)


def rate(step: int, steps: int, highest: float, last: float) -> float:
    """Half a cosine down to the fraction `last`; 1 keeps it."""
    return highest * (last + (1 - last) * 0.5 * (1 + math.cos(math.pi * step / steps)))


def step_once(engine: Any, x: np.ndarray, y: np.ndarray) -> tuple[float, Any]:
    with engine.parameters() as p:
        first, second, out = output(p, x)
        error = out - y
        with engine.backward(2 * error / error.size) as grads:
            dy = grads.output
            grads["w3"] = second.T @ dy
            d2 = dy @ p["w3"].T * (1 - second**2)
            grads["w2"], grads["b2"] = first.T @ d2, d2.sum(0)
            d1 = d2 @ p["w2"].T * (1 - first**2)
            grads["w1"], grads["b1"] = x.T @ d1, d1.sum(0)
    return float(np.mean(error**2)), engine.step()


def train(variant: str, seed: int, steps: int, lr: float, last: float, task: int = 0,
          start: Weights | None = None) -> tuple[Run, Weights]:
    """start: weights to go on with; default: new ones of this seed."""
    import outrigger.numpy

    goal = teacher(task)
    initial = network(np.random.default_rng([3, seed]), gain=1.0) if start is None else start
    comm = outrigger.Comm.self_group(outrigger.Context(workers=1, log_level=outrigger.lowlevel.LOG_ERROR))
    losses, updates, vanished = [], 0, 0
    with outrigger.numpy.Engine(initial, configuration(variant, seed), comm=comm) as engine:
        for step, (x, y) in enumerate(batches(goal, seed, steps)):
            engine.library.set_group_value("lr", rate(step, steps, lr, last))
            loss, report = step_once(engine, x, y)
            losses.append(loss)
            updates += report.updates
            vanished += report.vanished
        x = np.random.default_rng(99).normal(size=(8192, INPUTS)).astype(np.float32)
        with engine.parameters() as p:
            held_out = float(np.mean((output(p, x)[2] - output(goal, x)[2]) ** 2)) + NOISE**2
        weights = {name: engine.read(name) for name in initial}
    return run_of(seed, losses, held_out, updates, vanished), weights
