# SPDX-License-Identifier: Apache-2.0
"""An update on the host: links to the GPUs, and DRAM that all GPUs of a host share."""

# What the update of a parameter moves in DRAM, in bytes, with bfloat16 gradients in and parameters out.
FLOAT32, BFLOAT16, EIGHT_BIT = 28.0, 14.0, 10.06
DOWN = UP = 2.0  # bytes a parameter over the link


def down(cluster, owned):
    """Seconds of the gradients' copy; owned: parameters of one GPU."""
    return DOWN * owned / cluster.host.pcie


def whole(backward, down, update, up):
    """Clipping needs the norm of all gradients, so the update begins behind the backward. Copies go on beside both."""
    return max(backward, down) + max(update, up)


def after_norm(cluster, owned, moved):
    """The second half of it. DMA reads DRAM, too."""
    of_host = owned * cluster.on_host
    return whole(0, 0, (moved + UP) * of_host / cluster.host.dram, UP * owned / cluster.host.pcie)


def one_after_the_other(pcie, dram, owned, on_host, moved, down_bytes, up_bytes):
    """DeepSpeed's step behind the backward: nothing beside anything."""
    return down_bytes * owned / pcie + moved * owned * on_host / dram + up_bytes * owned / pcie
