# SPDX-License-Identifier: Apache-2.0
"""A run that is saved, stopped and continued in a new engine, beside one that is not stopped: the same bits.

    python resume.py [FOLDER]        outrigger run -n 2 -- python resume.py [FOLDER]
"""
import sys

import numpy as np

import outrigger.numpy
from outrigger import lowlevel

config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 1},
          "bf16": {"enabled": True}, "gradient_clipping": 1,
          "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 60, "warmup_num_steps": 10}},
          "outrigger": {"seed": 7, "states": {"master": {"format": "bfloat16", "rounding": "stochastic"},
                                              "exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}}}
STATES = (lowlevel.VALUE_MASTER, lowlevel.VALUE_EXP_AVG, lowlevel.VALUE_EXP_AVG_SQ)


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
    return [engine.read(name, value) for name in engine.ids for value in STATES]


def main(folder):
    parameters = {"w": np.zeros((8, 4)), "b": np.zeros(4)}
    with outrigger.numpy.Engine(parameters, config) as engine:
        train(engine, 0, 30)
        engine.save(folder, "step30", parts={"next step": b"30"}, keep_last=2, replace=True)
        expected = train(engine, 30, 60)
    with outrigger.numpy.Engine(parameters, config) as engine:
        engine.load(folder)
        begin = int(outrigger.Checkpoint(folder).part("next step"))
        resumed = train(engine, begin, 60)
    assert all(np.array_equal(a, b) for a, b in zip(expected, resumed, strict=True)), "other bits"
    print("stopped at step 30 and resumed: the same bits")
    with outrigger.numpy.Engine(parameters, config) as engine:
        engine.load(folder)
        engine.save(folder, "beside", replace=True, asynchronous=True)
        train(engine, 30, 60)
        status = engine.wait_save()  # of this rank: status.bytes, status.seconds, status.held_up_seconds
    print(f"{status.bytes} bytes were saved beside the training, which waited {status.held_up_seconds:.4f} of {status.seconds:.4f} s")


main(sys.argv[1] if len(sys.argv) > 1 else "resume.checkpoints")
