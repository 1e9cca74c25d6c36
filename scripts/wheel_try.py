# SPDX-License-Identifier: Apache-2.0
"""Trains a few steps with an installed wheel, and compares with the same in NumPy."""
import platform

import numpy as np
import outrigger

config = {"gradient_clipping": 0, "zero_optimization": {"stage": 3},
          "optimizer": {"type": "AdamW", "params": {"lr": 0.125, "betas": [0.5, 0.75], "eps": 1e-8, "weight_decay": 0.0}}}
w = np.linspace(-1, 1, 1000, dtype=np.float32)
m, v = np.zeros_like(w), np.zeros_like(w)
with outrigger.Context(workers=1) as context, outrigger.Comm.self_group(context) as comm, outrigger.Engine(comm, config) as engine:
    id = engine.add_parameter("w", w)
    engine.commit()
    for step in range(1, 6):
        gradient = (w - 0.25).astype(np.float32)
        with engine.begin_pass() as backward:
            backward.add_grad(id, gradient)
        engine.step()
        m, v = m + 0.5 * (gradient - m), v + 0.25 * (gradient * gradient - v)
        w = w - 0.125 * (m / (1 - 0.5**step)) / (np.sqrt(v / (1 - 0.75**step)) + 1e-8)
        found = engine.read(id)
        np.testing.assert_allclose(found, w, rtol=1e-5, atol=1e-6)
        w = found
print(f"the wheel trains on {platform.machine()}, Python {platform.python_version()}: {outrigger.lowlevel.build_info()}")
