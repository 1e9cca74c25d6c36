# SPDX-License-Identifier: Apache-2.0
"""What a call costs in Python: a gradient of 16 elements added to an open pass, or a pass without gradients and its step.

    calls.py OPERATION      add_grad, step"""

import os
import sys

import numpy as np
import outrigger

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
from worker import Worker, serve  # noqa: E402

VALUES = 16
CONFIG = {"optimizer": {"type": "SGD", "params": {"lr": 0.0}}, "gradient_clipping": 0}


class Calls(Worker):
    def __init__(self, adds):
        self.adds, self.open = adds, None
        self.gradient = np.ones(VALUES, np.float32)
        self.engine = outrigger.Engine(outrigger.Comm.self_group(outrigger.Context(workers=1)), CONFIG)
        self.id = self.engine.add_parameter("w", self.gradient)
        self.engine.commit()
        self.work = self.add_grad if adds else self.step

    def check(self, folder):
        return {}

    def prepare(self):
        if self.adds:
            self.open = self.engine.begin_pass()

    def add_grad(self):
        self.open.add_grad(self.id, self.gradient)

    def step(self):
        with self.engine.begin_pass():
            pass
        self.engine.step()

    def rest(self):
        if self.adds:
            self.open.end()
            self.open.close()
            self.engine.step()


serve(lambda: Calls(sys.argv[1] == "add_grad"))
