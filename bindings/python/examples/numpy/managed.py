# SPDX-License-Identifier: Apache-2.0
"""The layer below outrigger.numpy: context managers, log lines, a stop by Ctrl-C that leaves whole steps behind it.

    python managed.py        outrigger run -n 2 --max-restarts 3 -- python managed.py --checkpoints DIR
"""
import argparse
import logging

import numpy as np

from outrigger import Comm, Context, Engine, lowlevel

config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, "zero_optimization": {"stage": 1}}


def main(folder):
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    target = np.linspace(-1, 1, 100, dtype=np.float32)
    with Context(workers=1) as context, Comm.from_env(context, timeout=60) as comm, Engine(comm, config) as engine:
        w = engine.add_parameter("w", np.zeros(100, np.float32))
        engine.commit()
        applied = int(engine.resume(folder).get("applied", "0")) if folder else 0
        try:
            for step in range(engine.get_progress()["steps"]["micro"], 200):
                with engine.acquire([w]) as (weight,):
                    error = weight - target
                with engine.begin_pass([2 * error]) as backward:  # abandoned where an exception leaves it
                    backward.add_grad(w, backward.output_grad())
                applied += engine.step().outcome == lowlevel.STEP_APPLIED
                if folder and (step + 1) % 50 == 0:
                    engine.save(folder, f"step{step + 1}", parts={"applied": str(applied).encode()}, keep_last=2, replace=True)
        except KeyboardInterrupt:
            logging.info("stopped after %d steps", applied)
            raise  # the engine tells the other ranks
        distance = float(np.abs(engine.read(w) - target).max())
    print(f"{applied} steps, largest distance {distance:.3f}")
    assert distance < 0.05, "it does not learn"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--checkpoints", metavar="DIR", help="save the training here, and go on from here")
main(parser.parse_args().checkpoints)
