# SPDX-License-Identifier: Apache-2.0
"""For tests of whole jobs: a port for their ranks to meet at, and what a training has left."""
import socket

from outrigger import Checkpoint, lowlevel


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def stored(folder, tag=None):
    """All that a checkpoint has of a training, as it is stored: masters and moments, and its progress. tag: default the latest."""
    with Checkpoint(folder, tag) as checkpoint:
        values = {(name, value): checkpoint.read(name, value).tobytes() for name in checkpoint.shapes
                  for value in (lowlevel.VALUE_MASTER, lowlevel.VALUE_EXP_AVG, lowlevel.VALUE_EXP_AVG_SQ)}
        return {**values, "tag": checkpoint.tag, "progress": checkpoint.progress}
