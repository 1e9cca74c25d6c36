# SPDX-License-Identifier: Apache-2.0
"""A small transformer that reads strips out. It knows nothing of groups, ranks and messages."""
import digits
import torch
from layers import Attention, Feed
from torch import nn
from torch.nn import functional


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
        self.word = nn.Embedding(len(digits.WORDS), settings.width)
        self.place = nn.Parameter(0.02 * torch.randn(settings.digits + 1, settings.width))
        self.blocks = nn.ModuleList(Speak(settings.width, settings.heads) for _ in range(settings.blocks))
        self.head = nn.Sequential(nn.LayerNorm(settings.width), nn.Linear(settings.width, len(digits.WORDS)))

    def forward(self, words, embedding):
        x = self.word(words) + self.place[:words.shape[1]]
        for block in self.blocks:
            x = block(x, embedding)
        return self.head(x)


def loss_of(language, words, embedding):
    """The mean over the words of these strips and their ends."""
    edge = words.new_ones(len(words), 1)
    scores = language(torch.cat([digits.BEGIN * edge, words], 1), embedding)
    return functional.cross_entropy(scores.float().flatten(0, 1), torch.cat([words, digits.END * edge], 1).flatten())


@torch.no_grad()
def read(language, embedding, count):
    """The words that the model reads, one after the other, each the likeliest: [strips, count]."""
    words = torch.full((len(embedding), 1), digits.BEGIN)
    for _ in range(count):
        words = torch.cat([words, language(words, embedding)[:, -1:].argmax(-1)], 1)
    return words[:, 1:]
