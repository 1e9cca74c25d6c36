# SPDX-License-Identifier: Apache-2.0
"""A training that is watched: records of its steps go to files, to a table in a file, and to a function.

    outrigger run -n 2 -- python watched.py FOLDER
    outrigger top FOLDER/records
    outrigger trace FOLDER/traces --output FOLDER/trace.json
"""
import sys
from pathlib import Path

import numpy as np

import outrigger.numpy
from outrigger.watch import CSV, Prometheus

config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, "gradient_clipping": 1.0, "zero_optimization": {"stage": 2}}


def main(folder):
    target = np.linspace(-1, 1, 100, dtype=np.float32)
    slow = []

    def note_slow(record):
        if record["seconds"]["elapsed"] > 0.5:
            slow.append(record["micro_steps"])

    with outrigger.numpy.Engine({"w": np.zeros(100)}, config) as engine:
        engine.library.watch(records=folder / "records", trace=folder / "traces", name="line")
        if engine.rank == 0:
            engine.library.watch(CSV(folder / "run.csv"))
            engine.library.watch(Prometheus(folder / "run.prom", job="line"))
        engine.library.watch(note_slow)
        for _ in range(100):
            with engine.parameters() as p:
                error = p["w"] - target
            with engine.backward(2 * error) as grads:
                grads["w"] = grads.output
            engine.library.note(loss=float(np.mean(error**2)))
            engine.step()
        last = engine.library.record
    print(f"loss {last['notes']['loss']:.2e} after {last['applied_steps']} steps, of which {len(slow)} were slow")
    assert last["notes"]["loss"] < 1e-2, "it does not learn"


main(Path(sys.argv[1]))
