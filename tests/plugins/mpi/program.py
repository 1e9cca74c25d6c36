# SPDX-License-Identifier: Apache-2.0
"""A program with mpi4py: its own communicators become groups, and both libraries are used side by side."""
import numpy as np
from mpi4py import MPI

import outrigger.numpy

world = MPI.COMM_WORLD
odd = world.Split(world.rank % 2, -world.rank)  # in reverse, to tell its ranks from the world's

with outrigger.Context() as context:
    with outrigger.Comm.mpi(context, odd, timeout=60) as comm:
        assert (comm.rank, comm.size) == (odd.rank, odd.size), (comm.rank, odd.rank)
        assert not comm.shares_memory
        odd.Free()  # a copy is used
        values = np.array([world.rank + 1.0])
        comm.all_reduce_sum(values)
        assert values[0] == sum(r + 1.0 for r in range(world.size) if r % 2 == world.rank % 2), values
    with outrigger.Comm.mpi(context, world) as comm:
        config = {"optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "zero_optimization": {"stage": 2}, "gradient_clipping": 0}
        with outrigger.numpy.Engine({"w": np.zeros(6)}, config, comm) as engine:
            with engine.backward(np.ones(3)) as grads:
                grads["w"] = np.arange(6.0) * (world.rank + 1)
            world.Barrier()  # the host's own, while the engine's thread sums
            engine.step()
            mean = sum(r + 1 for r in range(world.size)) / world.size
            assert np.allclose(engine.read("w"), -0.5 * np.arange(6.0) * mean), engine.read("w")
    try:
        outrigger.Comm.mpi(context, "world")
    except TypeError:
        print(f"rank {world.rank} ends well", flush=True)
