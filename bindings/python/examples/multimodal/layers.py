# SPDX-License-Identifier: Apache-2.0
"""What both transformers are made of."""
from torch import nn
from torch.nn import functional


def attention(q, k, v, is_causal=False):
    """[batch, sequence, heads, width of a head]"""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self, width, heads, function=attention):
        super().__init__()
        self.heads, self.function = heads, function
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x, seen, **options):
        q, k, v = (each.unflatten(-1, (self.heads, -1)) for each in (self.q(x), *self.kv(seen).chunk(2, -1)))
        return self.out(self.function(q, k, v, **options).flatten(2))


class Feed(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
