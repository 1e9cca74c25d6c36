# SPDX-License-Identifier: Apache-2.0
"""The grid: steps of 7 B to 2 T parameters on 8 to 16,384 H100, by the fitted model. All of it is simulated."""
from dataclasses import replace

import offload
import step
import transformers
from machines import H100, Cluster, fact
from planner import WORLDS

LARGE, SMALL = (8192, 4096), (1024, 1024)  # tokens of a GPU in a step, and of a sequence: the batch grows with the GPUs
LIMIT = H100.memory
# Title → what the job has, and the planner's configuration for its memory.
COLUMNS = {
    "stage 1": ({"stage": 1, "levels": True}, "stage 1"),
    "stage 2": ({"stage": 2, "levels": True}, "stage 2"),
    "stage 3, one ring": ({"stage": 3}, "stage 3"),
    "stage 3, ring or levels": ({"stage": 3, "levels": True}, "stage 3"),
    "mesh of a host": ({"stage": 3, "levels": True, "shard": 8}, "mesh"),
    "hpZ": ({"stage": 3, "levels": True, "shard": 8, "states_over_all": True}, "hpZ"),
    "8 bits between hosts": ({"stage": 3, "levels": True, "eight_bit": True}, "stage 3"),
    "offloaded, float32": ({"stage": 3, "levels": True, "offloaded": offload.FLOAT32}, "offload"),
    "offloaded, bfloat16": ({"stage": 3, "levels": True, "offloaded": offload.BFLOAT16}, "offload"),
}


def job(model, world, column, fitted, batch, reached=None):
    """With the efficiency and the straggling of torchtitan's compiled runs, the only ones of H100 that are both in bfloat16 and compiled."""
    numbers = fitted["titan_compiled"]
    cluster = Cluster(replace(H100, nvlink=numbers["nvlink"]), world, straggling=numbers["straggling"])
    if reached is not None:
        cluster = replace(cluster, reached=reached)
    return step.Job(model, cluster, tokens=batch[0], sequence=batch[1], efficiency=numbers["efficiency"], recompute=True, **COLUMNS[column][0])


def efficiency(job):
    """The part of a step in which a GPU that waits for nobody would compute: 1 is the same GPU alone without an update."""
    found = step.run(job)
    return found.compute / found.seconds


def activations(model, tokens):
    """Bytes that lie at the layers' borders, in bfloat16, with what one layer needs beside it, and the logits in both formats."""
    return 2 * tokens * model.width * model.layers + tokens * (34 * model.width + 6 * model.vocabulary)


def gathered(model, column):
    """Bytes of layers that are whole at a time at stage 3."""
    given = COLUMNS[column][0]
    return 3 * step.BYTES * model.layer_parameters if given["stage"] == 3 else 0


def bands(model, column, fitted, batch):
    """World → efficiency with the network's usual and with its low share."""
    low = fact("the same, low end")
    return {world: (efficiency(job(model, world, column, fitted, batch)), efficiency(job(model, world, column, fitted, batch, low))) for world in WORLDS}


MODELS = transformers.SCALE
