# SPDX-License-Identifier: Apache-2.0
"""Two questions with known answers, asked of an engine: does the second moment follow gradients that shrink, and do weights
follow updates that are small beside them?"""

from typing import Any

import numpy as np
from variants import configuration

ELEMENTS = 4096


def engine_of(variant: str, lr: float) -> Any:
    import outrigger.numpy

    config = {**configuration(variant, lr=lr, weight_decay=0), "gradient_clipping": 0}
    comm = outrigger.Comm.self_group(outrigger.Context(workers=1, log_level=outrigger.lowlevel.LOG_ERROR))
    return outrigger.numpy.Engine({"w": np.ones(ELEMENTS, np.float32)}, config, comm=comm)


def step(engine: Any, gradient: np.ndarray) -> Any:
    with engine.backward(np.zeros(1, np.float32)) as grads:
        grads["w"] = gradient
    return engine.step()


def second_moment(variant: str, before: int, after: int, shrink: float, every: int) -> dict[str, Any]:
    """Gradients of deviation 1, then of deviation `shrink`; the mean of the second moment every so many steps."""
    from outrigger import lowlevel

    random = np.random.default_rng(5)
    means = []
    with engine_of(variant, lr=0.0) as engine:
        for k in range(before + after):
            step(engine, random.normal(0, 1 if k < before else shrink, ELEMENTS).astype(np.float32))
            if (k + 1) % every == 0:
                means.append(float(np.mean(engine.read("w", lowlevel.VALUE_EXP_AVG_SQ), dtype=np.float64)))
    return {"means": means, "left": means[-1] / means[before // every - 1]}


def constant_gradient(variant: str, steps: int, lr: float, every: int) -> dict[str, Any]:
    """Weights 1, gradients 1: Adam's update is lr at every step, so the weight has to come to 1 − lr · steps. Half a unit of
    bfloat16 below 1 is 2⁻⁹; a smaller update, rounded to nearest, leaves the weight where it is, for ever."""
    gradient = np.ones(ELEMENTS, np.float32)
    means, updates, vanished = [], 0, 0
    with engine_of(variant, lr=lr) as engine:
        for k in range(steps):
            report = step(engine, gradient)
            updates += report.updates
            vanished += report.vanished
            if (k + 1) % every == 0:
                means.append(float(np.mean(engine.read("w"), dtype=np.float64)))
    return {"means": means, "way": (1 - means[-1]) / (lr * steps), "updates": updates, "vanished": vanished}
