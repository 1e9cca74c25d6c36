# SPDX-License-Identifier: Apache-2.0
"""AdamW in float64, and how far from it AdamW may be whose weights, moments or gradients are rounded to bfloat16.

A number rounded to nearest differs from itself by at most U = 2^-8 of it. Of one element, with gradients g that are the same in both:

    moments     m' = b1 m + (1 - b1) g, v' = b2 v + (1 - b2) g^2. Rounded ones differ by e(m') <= b1 e(m) + U (|m'| + b1 e(m)), and, because all
                terms of v are positive, by a factor between (1 - U)^t and (1 + U)^t after t steps.
    update      u = (m / c1) / (sqrt(v / c2) + eps): e(u) <= e(m) / c1 / least + |m| / c1 (1 / least - 1 / (sqrt(v / c2) + eps)), where
                least is the denominator with the smallest v; likewise with the largest.
    weight      w' = (1 - lr d) w - lr u: e(w') <= r + U (|w'| + r), r = (1 - lr d) e(w) + lr e(u).

Without rounding of a kind its U is 0. Float32 arithmetic adds F = 2^-20 of each magnitude: 16 roundings. A gradient that is rounded once more
adds (1 - b1) U |g| to e(m') and 2 U + U^2 to the factor of v. All of it is computed along the way, element by element, not estimated.
"""
import torch
from configurations import BETAS, DECAY, EPS, LR

U, F = 2.0**-8, 2.0**-20


class Reference:
    """Float64 weights and moments, and the bound of each weight's error."""

    def __init__(self, weights, rounds_weights, rounds_moments, rounds_gradients):
        self.weights = weights.double()
        self._first, self._second = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self._steps, self._least, self._most = 0, 1.0, 1.0
        self._first_error, self.bound = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self._of_weights, self._of_moments, self._of_gradients = (U if each else 0.0 for each in (rounds_weights, rounds_moments, rounds_gradients))

    def step(self, grads):
        """grads: float64, times factor and clip coefficient."""
        self._steps += 1
        (b1, b2), t, moments = BETAS, self._steps, self._of_moments + F
        self._first = b1 * self._first + (1 - b1) * grads
        self._second = b2 * self._second + (1 - b2) * grads * grads
        error = b1 * self._first_error + (1 - b1) * (self._of_gradients + F) * grads.abs()
        self._first_error = error + moments * (self._first.abs() + error)
        again = (1 + self._of_gradients) ** 2 - 1 + F
        self._least, self._most = (1 - moments) * min(self._least, 1 - again), (1 + moments) * max(self._most, 1 + again)
        c1, c2 = 1 - b1**t, 1 - b2**t
        exact, low, high = ((factor * self._second / c2).sqrt() + EPS for factor in (1.0, self._least, self._most))
        update = self._first / c1 / exact
        of_update = self._first_error / c1 / low + self._first.abs() / c1 * torch.maximum(1 / low - 1 / exact, 1 / exact - 1 / high)
        self.weights = (1 - LR * DECAY) * self.weights - LR * update
        before = (1 - LR * DECAY) * self.bound + LR * (of_update + F * update.abs())
        self.bound = before + (self._of_weights + F) * (self.weights.abs() + before)
