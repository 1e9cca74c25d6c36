# SPDX-License-Identifier: Apache-2.0
"""Transformers as lists of parameters, and the operations of a step."""
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Transformer:
    """kv: width of keys and of values; gated: three matrices in the feed-forward part, else two; tied: no head of its own."""

    name: str
    layers: int
    width: int
    inner: int
    vocabulary: int
    kv: int
    gated: bool = True
    tied: bool = False

    def layer(self):
        """(name, rows, columns) of one layer's matrices; norms are one row."""
        up = ("gate", "up") if self.gated else ("up",)
        return [("q", self.width, self.width), ("k", self.kv, self.width), ("v", self.kv, self.width), ("o", self.width, self.width),
                *((name, self.inner, self.width) for name in up), ("down", self.width, self.inner),
                ("norm1", 1, self.width), ("norm2", 1, self.width)]

    def tensors(self):
        """All of them in the order of a forward pass."""
        body = [(f"{number}.{name}", rows, columns) for number in range(self.layers) for name, rows, columns in self.layer()]
        ends = [("norm", 1, self.width), *([] if self.tied else [("head", self.vocabulary, self.width)])]
        return [("embedding", self.vocabulary, self.width), *body, *ends]

    @cached_property
    def layer_parameters(self):
        return sum(rows * columns for _, rows, columns in self.layer())

    @cached_property
    def parameters(self):
        return sum(rows * columns for _, rows, columns in self.tensors())

    def layer_operations(self, tokens, sequence):
        """Of one layer's forward: two a parameter and token, and attention over the whole sequence, which no formula of the sources halves."""
        return tokens * (2 * self.layer_parameters + 4 * sequence * self.width)

    def head_operations(self, tokens):
        return 2 * tokens * self.vocabulary * self.width

    def operations(self, tokens, sequence, recompute):
        """Of forward and backward, and of the layers' second forward where activations are recomputed."""
        layers = self.layers * self.layer_operations(tokens, sequence)
        return (4 if recompute else 3) * layers + 3 * self.head_operations(tokens)


def gpt(name, layers, width, vocabulary=50257):
    """Two matrices of four times the width, as GPT-3 and DeepSpeed's runs."""
    return Transformer(name, layers, width, 4 * width, vocabulary, width, gated=False, tied=True)


LLAMA_7B = Transformer("7 B", 32, 4096, 11008, 32000, 4096)
LLAMA_8B = Transformer("8 B", 32, 4096, 14336, 128256, 1024)
LLAMA_13B = Transformer("13 B", 40, 5120, 13824, 32000, 5120)
LLAMA_34B = Transformer("34 B", 48, 8192, 22016, 32000, 1024)
LLAMA2_70B = Transformer("70 B", 80, 8192, 28672, 32000, 1024)
LLAMA_70B = Transformer("70 B", 80, 8192, 28672, 128256, 1024)
LLAMA_405B = Transformer("405 B", 126, 16384, 53248, 128256, 1024)
GPT_175B = gpt("175 B", 96, 12288)
GPT_530B = gpt("530 B", 105, 20480)
GPT_1T = gpt("1 T", 128, 25600)
GPT_2T = gpt("2 T", 160, 32768)
SCALE = (LLAMA_7B, LLAMA_70B, LLAMA_405B, GPT_2T)
