# SPDX-License-Identifier: Apache-2.0
"""A small transformer that looks at strips. It knows nothing of groups, ranks and messages."""
import digits
import torch
from layers import Attention, Feed, attention
from torch import nn


class Look(nn.Module):
    def __init__(self, width, heads, function):
        super().__init__()
        self.before, self.attention, self.feed = nn.LayerNorm(width), Attention(width, heads, function), Feed(width)

    def forward(self, x):
        seen = self.before(x)
        x = x + self.attention(seen, seen)
        return x + self.feed(x)


class Vision(nn.Module):
    """Patches of strips → their embedding. function: the attention; with outrigger.torch.UlyssesAttention the ranks share each strip."""

    def __init__(self, settings, function=attention):
        super().__init__()
        torch.manual_seed(settings.seed)
        self.patch = nn.Linear(8 * digits.PATCH, settings.width)
        self.place = nn.Parameter(0.02 * torch.randn(digits.patches_of(settings), settings.width))
        self.blocks = nn.Sequential(*[Look(settings.width, settings.heads, function) for _ in range(settings.blocks)])
        self.after = nn.LayerNorm(settings.width)

    def forward(self, patches, first=0):
        """first: the number of the first patch here."""
        place = self.place[first:first + patches.shape[1]]
        return self.after(self.blocks(self.patch(patches) + place))
