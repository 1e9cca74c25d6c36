# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint of DeepSpeed has, and its weights in an engine of arrays. Neither DeepSpeed nor PyTorch is needed.

    python from_deepspeed.py FOLDER [TAG]
"""
import sys

import outrigger.foreign
import outrigger.numpy


def main(folder, tag=None):
    checkpoint = outrigger.foreign.open(folder, tag)
    checkpoint.verify()
    print(checkpoint.kind, checkpoint.progress.global_steps, checkpoint.client_state)
    weights = {name: checkpoint.read(name, "master") for name in checkpoint.parameters if "master" in checkpoint.values(name)}
    with outrigger.numpy.Engine(weights, {"optimizer": {"type": "AdamW"}}) as engine:
        for name, values in weights.items():
            assert (engine.read(name) == values).all(), name
    return weights


if __name__ == "__main__":
    main(*sys.argv[1:])
