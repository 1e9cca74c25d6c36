# SPDX-License-Identifier: Apache-2.0
"""Adam of both libraries behind one interface: weights, grads, and step(factor), which also clips."""
import contextlib
import os
import sys
from pathlib import Path

import configurations
import torch
from configurations import BETAS, CLIP, DECAY, EPS, LR

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Outrigger:
    """The update without an engine, on PyTorch's tensors. Factor and clipping happen inside of it, in float32."""

    rounds_gradients = False

    def __init__(self, form, weights, threads, clip=CLIP):
        import outrigger
        self.version = f"Outrigger {outrigger.version()}"
        self.weights, self.grads = weights, torch.zeros_like(weights)
        self._optimizer = outrigger.Optimizer(outrigger.Context(workers=threads), {
            "type": "AdamW", "params": {"lr": LR, "betas": list(BETAS), "eps": EPS, "weight_decay": DECAY},
            "states": configurations.states(form), "gradient_clipping": clip})
        # The other half of a split master begins as zero: the weights are exact.
        self._rest = torch.zeros(len(weights), dtype=torch.uint16) if form.master == "split" else None
        self._shard = outrigger.Shard(outrigger.Context(workers=threads), weights, self.grads, remainder=self._rest)

    def step(self, factor=1.0):
        if factor != 1.0:
            self._optimizer.set_value("gradient_factor", factor)
        self._optimizer.step([self._shard])


class DeepSpeed:
    """DeepSpeedCPUAdam, and what its engine does before: it multiplies the gradients, which have the weights' dtype."""

    rounds_gradients = True

    def __init__(self, form, weights, threads, clip=CLIP):
        with contextlib.redirect_stdout(sys.stderr):  # it says there what it compiles
            os.environ.setdefault("DS_ACCELERATOR", "cpu")
            os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
            import deepspeed
            from deepspeed.ops.adam import DeepSpeedCPUAdam
            self.version, self._clip = f"DeepSpeed {deepspeed.__version__}", clip
            self.weights, self.grads = weights, torch.zeros_like(weights)
            self._parameter = torch.nn.Parameter(weights)
            self._optimizer = DeepSpeedCPUAdam([self._parameter], lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY,
                                               fp32_optimizer_states=form.moments == "float32")
        self._parameter.grad = self.grads

    def step(self, factor=1.0):
        if self._clip:
            norm = factor * self.grads.double().norm().item()
            self.grads.mul_(factor * min(1.0, self._clip / (norm + 1e-6)))
        self._optimizer.step()


SIDES = {"outrigger": Outrigger, "deepspeed": DeepSpeed}


def make(library, name, weights, threads, **options):
    form = configurations.FORMS[name]
    torch.set_num_threads(threads)
    return SIDES[library](form, weights.to(DTYPES[form.weights]), threads, **options)
