# SPDX-License-Identifier: Apache-2.0
"""A two-layer network with gradients written by hand, in fp16 with loss scaling, sharded over the ranks.

    python regression.py        outrigger run -n 2 --max-restarts 3 -- python regression.py --checkpoints DIR
"""
import argparse
import json

import numpy as np

import outrigger.numpy

config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 2},
          "fp16": {"enabled": True, "initial_scale_power": 12}, "gradient_accumulation_steps": 2}


def main(folder):
    random = np.random.default_rng(0)
    parameters = {"first": {"w": random.normal(0, 0.3, (8, 32)), "b": np.zeros(32)},
                  "second": {"w": random.normal(0, 0.3, (32, 4)), "b": np.zeros(4)}}
    with outrigger.numpy.Engine(parameters, config) as engine:
        losses = json.loads(engine.resume(folder).get("losses", "[]")) if folder else []
        for micro in range(len(losses), 600):
            random = np.random.default_rng((1 + micro, engine.rank))  # its data follow from its number
            x = random.normal(size=(16, 8)).astype(np.float32)
            target = x[:, :4] * x[:, 4:]
            with engine.parameters() as p:
                hidden = np.tanh(x @ p["first.w"] + p["first.b"])
                error = hidden @ p["second.w"] + p["second.b"] - target
                losses.append(float(np.mean(error**2)))

                with engine.backward(2 * error / error.size) as grads:
                    dy = grads.output
                    grads["second.w"] = hidden.T @ dy
                    grads["second.b"] = dy.sum(0)
                    dh = dy @ p["second.w"].T * (1 - hidden**2)
                    grads["first.w"] = x.T @ dh
                    with grads.slot("first.b") as db:
                        db[:] = dh.sum(0)
            engine.step()
            if folder and (micro + 1) % 100 == 0:
                engine.save(folder, f"micro{micro + 1}", parts={"losses": json.dumps(losses).encode()}, keep_last=2, replace=True)
    first, last = np.mean(losses[:60]), np.mean(losses[-60:])
    print(f"mean loss of the first 60 micro-batches {first:.3f}, of the last 60 {last:.3f}")
    assert last < 0.6 * first, "it does not learn"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--checkpoints", metavar="DIR", help="save the training here, and go on from here")
main(parser.parse_args().checkpoints)
