# SPDX-License-Identifier: Apache-2.0
"""A run that is saved, stopped and continued in a new engine, beside one that is not stopped: the same bits.

    python resume.py        outrigger run -n 2 -- python resume.py
"""
import json
import tempfile
from pathlib import Path

import numpy as np

import outrigger.numpy
from outrigger import lowlevel

config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 1},
          "bf16": {"enabled": True}, "gradient_clipping": 1,
          "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 60, "warmup_num_steps": 10}},
          "outrigger": {"seed": 7, "states": {"master": {"format": "bfloat16", "rounding": "stochastic"},
                                              "exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}}}
STATES = {"master": lowlevel.VALUE_MASTER, "exp_avg": lowlevel.VALUE_EXP_AVG, "exp_avg_sq": lowlevel.VALUE_EXP_AVG_SQ}


def save(engine, folder):
    values = {f"{name}/{state}": engine.read(name, value) for name in engine.ids for state, value in STATES.items()}
    np.savez(folder / "values.npz", **values)
    (folder / "progress.json").write_text(json.dumps(engine.get_progress()))


def load(engine, folder):
    with np.load(folder / "values.npz") as values:
        for name in engine.ids:
            for state, value in STATES.items():
                engine.write(name, values[f"{name}/{state}"], value)
    engine.set_progress(json.loads((folder / "progress.json").read_text()))


def train(engine, begin, end):
    for step in range(begin, end):
        random = np.random.default_rng((step, engine.rank))  # the data of a step follows from its number
        x = random.normal(size=(16, 8)).astype(np.float32)
        with engine.parameters() as p:
            error = x @ p["w"] + p["b"] - np.sin(x[:, :4])
            with engine.backward(2 * error / error.size) as grads:
                grads["w"] = x.T @ grads.output
                grads["b"] = grads.output.sum(0)
        engine.step()
    return [engine.read(name, value) for name in engine.ids for value in STATES.values()]


def main():
    parameters = {"w": np.zeros((8, 4)), "b": np.zeros(4)}
    with tempfile.TemporaryDirectory() as name:  # one for each rank
        folder = Path(name)
        with outrigger.numpy.Engine(parameters, config) as engine:
            train(engine, 0, 30)
            save(engine, folder)
            expected = train(engine, 30, 60)
        with outrigger.numpy.Engine(parameters, config) as engine:
            load(engine, folder)
            resumed = train(engine, 30, 60)
    assert all(np.array_equal(a, b) for a, b in zip(expected, resumed, strict=True)), "other bits"
    print("stopped at step 30 and resumed: the same bits")


main()
