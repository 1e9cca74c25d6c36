# SPDX-License-Identifier: Apache-2.0
"""A small transformer that looks at strips, and one that reads them out. They know nothing of groups, ranks and messages."""
import data
import torch
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
        self.patch = nn.Linear(8 * data.PATCH, settings.width)
        self.place = nn.Parameter(0.02 * torch.randn(data.patches_of(settings), settings.width))
        self.blocks = nn.Sequential(*[Look(settings.width, settings.heads, function) for _ in range(settings.blocks)])
        self.after = nn.LayerNorm(settings.width)

    def forward(self, patches, first=0):
        """first: the number of the first patch here."""
        place = self.place[first:first + patches.shape[1]]
        return self.after(self.blocks(self.patch(patches) + place))


class Speak(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.before, self.middle = nn.LayerNorm(width), nn.LayerNorm(width)
        self.said, self.seen, self.feed = Attention(width, heads), Attention(width, heads), Feed(width)

    def forward(self, x, embedding):
        said = self.before(x)
        x = x + self.said(said, said, is_causal=True)
        x = x + self.seen(self.middle(x), embedding)
        return x + self.feed(x)


class Language(nn.Module):
    """The words so far and a strip's embedding → scores of the next word, at every place."""

    def __init__(self, settings):
        super().__init__()
        torch.manual_seed(settings.seed + 1)
        self.word = nn.Embedding(len(data.WORDS), settings.width)
        self.place = nn.Parameter(0.02 * torch.randn(settings.digits + 1, settings.width))
        self.blocks = nn.ModuleList(Speak(settings.width, settings.heads) for _ in range(settings.blocks))
        self.head = nn.Sequential(nn.LayerNorm(settings.width), nn.Linear(settings.width, len(data.WORDS)))

    def forward(self, words, embedding):
        x = self.word(words) + self.place[:words.shape[1]]
        for block in self.blocks:
            x = block(x, embedding)
        return self.head(x)


def loss_of(language, words, embedding):
    """The mean over the words of these strips and their ends."""
    edge = words.new_ones(len(words), 1)
    scores = language(torch.cat([data.BEGIN * edge, words], 1), embedding)
    return functional.cross_entropy(scores.float().flatten(0, 1), torch.cat([words, data.END * edge], 1).flatten())


@torch.no_grad()
def read(language, embedding, digits):
    """The words that the model reads, one after the other, each the likeliest: [strips, digits]."""
    words = torch.full((len(embedding), 1), data.BEGIN)
    for _ in range(digits):
        words = torch.cat([words, language(words, embedding)[:, -1:].argmax(-1)], 1)
    return words[:, 1:]
