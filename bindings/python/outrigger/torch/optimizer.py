# SPDX-License-Identifier: Apache-2.0
"""The engine's optimizer, as training loops and schedulers of PyTorch see one."""
import torch

from .. import lowlevel
from .parameters import group_name, hyperparameters


class ZeroOptimizer(torch.optim.Optimizer):
    """param_groups are live: a changed "lr", "betas", "eps" or "weight_decay" holds from the next step on. The states
    live in the engine; state is empty."""

    def __init__(self, engine, groups, defaults, client=None):
        super().__init__(groups, defaults)
        self._engine, self._client = engine, client
        self._sent = {}
        self._seen = False

    def send_hyperparameters(self):
        for index, group in enumerate(self.param_groups):
            for name, value in hyperparameters(group):
                if self._sent.get((index, name)) != value:
                    lowlevel.engine_set_group_value(self._engine.handle, group_name(index), name, value)
                    self._sent[index, name] = value

    def step(self, closure=None):
        """The engine's step. closure: called first, with gradients enabled; its result is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._seen is not None:
            self._engine.step()
        return loss

    def seen(self):
        """A schedule of PyTorch warns unless its optimizer, the caller's own or this one, has made a step before it. The
        first time they make one that does nothing: the gradients are not in the parameters."""
        if not self._seen:
            self._seen = None
            for each in (self, self._client):
                if each is not None:
                    each.step()
            self._seen = True

    def zero_grad(self, set_to_none=True):
        self._engine.zero_grad()

    def backward(self, loss, retain_graph=False):
        self._engine.backward(loss, retain_graph=retain_graph)

    @property
    def cur_scale(self):
        """The loss scale of the next pass; 1 without loss scaling."""
        return lowlevel.engine_get_loss_scale(self._engine.handle)

    loss_scale = cur_scale

    @property
    def overflow(self):
        """Whether the last step was skipped for Inf or NaN."""
        report = self._engine.report
        return report is not None and report.outcome == lowlevel.STEP_SKIPPED
