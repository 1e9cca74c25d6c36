# SPDX-License-Identifier: Apache-2.0
"""What the scenario must compute: gradients in exact dyadic numbers, AdamW by its published formulas in float64.

Independent of the library. Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (arXiv 1711.05101),
algorithm 2 with a constant schedule; the gradient is first scaled by clip / (norm + 1e-6) where the norm of the mean
gradient exceeds the clip.
"""
import dataclasses
import json

import numpy as np

NAMES = ["embed.weight", "linear.bias", "norm.empty", "frozen.table", "head.weight", "scale", "wide.weight", "unused.gain"]
SHAPES = [(5, 3), (7,), (0, 4), (2, 3), (5, 3), (), (3, 101), (4,)]
EMBED, BIAS, EMPTY, FROZEN, HEAD, SCALE, WIDE, UNUSED = range(8)
TRAINED = [EMBED, BIAS, EMPTY, SCALE, WIDE]  # the alias is EMBED; UNUSED gets no gradient and is left alone
INF_PASS = 3


def count(shape):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape)


def initial(d, rank=0):
    return ((7 * count(SHAPES[d]) + 3 * d) % 33 - 16) / 16 + rank


def outputs(p, rank):
    """The scaled gradients of the outputs: half of what is given, at two accumulation steps."""
    y0 = ((count((4, 3)) + rank + p) % 8 - 3) / 4
    y1 = ((3 * count((2, 7)) + 2 * rank + p) % 8 - 4) / 4
    return y0 / 2, y1 / 2, np.array(0.5)


def gradients(p, rank):
    dy0, dy1, dl = outputs(p, rank)
    row, column = np.indices((4, 5))
    x = ((row + 2 * column) % 5 - 2) / 2
    found = {EMBED: x.T @ dy0 + dl * dy0[np.arange(5) % 4], SCALE: dy0.sum() + dl, EMPTY: np.zeros((0, 4)),
             WIDE: dl * dy0.T[:, np.arange(101) % 4]}
    found[BIAS] = dy1.sum(axis=0) if rank == 0 or p % 2 == 0 else np.zeros(7)
    return found


def bfloat16(x):
    """Rounds to the nearest even, through the bits of float32."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def float32(x):
    return np.asarray(x, np.float32).astype(np.float64)


@dataclasses.dataclass
class Adam:
    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def update(self, w, m, v, g, t):
        m = self.beta1 * m + (1 - self.beta1) * g
        v = self.beta2 * v + (1 - self.beta2) * g * g
        decayed = w - self.lr * self.weight_decay * w
        step = self.lr * (m / (1 - self.beta1**t)) / (np.sqrt(v / (1 - self.beta2**t)) + self.eps)
        return decayed - step, m, v


class Chain:
    """Two engines in a chain and their one applied joint step, on any number of ranks: all have the same gradients."""
    SCALES = {"front": 4, "back": 64}
    LR = {"front": 0.25, "back": 0.5}
    START = np.array([[0.5, -1], [1, 0.25]])
    DY = np.array([[1, -0.5], [0.25, 2]])

    def __init__(self):
        self.grads = {"back": self.DY, "front": 2 * self.DY[::-1]}
        self.norm = np.sqrt(sum(float((g * g).sum()) for g in self.grads.values()))
        self.clip = min(1.0, 1 / (self.norm + 1e-6))
        self.values = {}
        for name, g in self.grads.items():
            zeros = np.zeros((2, 2))
            w, m, v = Adam(self.LR[name]).update(self.START, zeros, zeros, g * self.clip, 1)
            self.values[name] = [w, w, m, v]  # master, published, moments

    @staticmethod
    def window(index, last):
        """dy of one rank; `last`: it is the last rank."""
        dy = Chain.DY.copy()
        if index == 1 and last:
            dy[1, 0] = np.inf
        return dy


class Run:
    """One configuration on `world` ranks: the parameters after the three windows, and the steps' reports."""

    def __init__(self, config, world):
        options = json.loads(config)
        params = options["optimizer"]["params"]
        bf16 = options.get("bf16", {})
        self.published = bfloat16 if bf16.get("enabled") else float32
        self.master = bfloat16 if bf16.get("bf16_master_weights_and_grads") else float32
        self.moment = bfloat16 if bf16.get("bf16_optimizer_states") else float32
        self.adam = Adam(params["lr"], *params["betas"], params["eps"], params["weight_decay"])
        self.clip, self.world = options["gradient_clipping"], world
        self.w = {d: initial(d) for d in range(8) if d != HEAD}
        self.m = {d: np.zeros(SHAPES[d]) for d in self.w if d != FROZEN}
        self.v = {d: np.zeros(SHAPES[d]) for d in self.m}
        # The sum of the sizes of what a first moment was added up from: the measure of its rounding error.
        self.m_terms = {d: np.zeros(SHAPES[d]) for d in self.m}
        self.steps = []
        applied = skipped = 0
        for p in range(6):
            if p == 4:
                self.adam.lr = 0.03125
            report = {"outcome": 1, "reason": 0, "nonfinite_rank": -1, "nonfinite_param": -1, "nonfinite_count": 0}
            if p == INF_PASS:
                skipped += 1
                report.update(outcome=3, reason=1, nonfinite_rank=world - 1, nonfinite_param=WIDE, nonfinite_count=1)
            elif p % 2 == 1:
                applied += 1
                report.update(outcome=2, **self.apply(p, applied))
            report.update(micro_steps=p + 1, applied_steps=applied, skipped_steps=skipped, loss_scale=1.0)
            self.steps.append(report)

    def apply(self, p, t):
        """The window that ends with pass p."""
        parts = [gradients(q, rank) for q in (p - 1, p) for rank in range(self.world)]
        mean = {d: sum(part[d] for part in parts) / self.world for d in TRAINED}
        norm = np.sqrt(sum(float((g * g).sum()) for g in mean.values()))
        coefficient = min(1.0, self.clip / (norm + 1e-6))
        updates = vanished = 0
        for d, g in mean.items():
            w, m, v = self.adam.update(self.w[d], self.m[d], self.v[d], g * coefficient, t)
            self.m_terms[d] = self.adam.beta1 * self.m_terms[d] + (1 - self.adam.beta1) * np.abs(g * coefficient)
            stored = self.master(w)
            updates += int(np.count_nonzero(w != self.w[d]))
            vanished += int(np.count_nonzero((w != self.w[d]) & (stored == self.w[d])))
            self.w[d], self.m[d], self.v[d] = stored, self.moment(m), self.moment(v)
        return {"grad_norm": norm, "clip_coefficient": coefficient, "lr": self.adam.lr, "updates": updates,
                "vanished": vanished}

    def value(self, d, name):
        """The expected array, or None where the parameter has no such value."""
        d = EMBED if d == HEAD else d
        if name == "master":
            return self.w[d] if d != FROZEN else None
        if name == "published":
            return self.published(self.w[d])
        return {"exp_avg": self.m, "exp_avg_sq": self.v}[name].get(d)
