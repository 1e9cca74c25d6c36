# SPDX-License-Identifier: Apache-2.0
"""A GPT in plain PyTorch: pre-norm blocks, causal attention, GELU, an output layer of its own."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Product(torch.autograd.Function):
    """A linear layer that multiplies in float32 what is stored in fewer bits, and rounds the result once: what hardware for
    bfloat16 does. A CPU without such instructions is many times quicker this way. It saves what nn.Linear saves."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        with torch.autocast("cpu", enabled=False):
            return F.linear(x.float(), weight.float(), bias.float() if ctx.biased else None).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):
            rows = grad.flatten(0, -2).float()
            return ((rows @ weight.float()).view(x.shape).to(x.dtype), (rows.t() @ x.flatten(0, -2).float()).to(weight.dtype),
                    rows.sum(0).to(weight.dtype) if ctx.biased else None)


class Linear(nn.Linear):
    """nn.Linear, or the same by way of float32."""

    widened = False

    def forward(self, x):
        if not self.widened:
            return super().forward(x)
        if torch.is_autocast_enabled("cpu"):
            x = x.to(torch.get_autocast_dtype("cpu"))
        return Product.apply(x, self.weight, self.bias)


def attention(query, key, value, widened):
    if not widened:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(query.float(), key.float(), value.float(), is_causal=True).to(query.dtype)


class Block(nn.Module):
    """Attention, then two layers with GELU between; each reads the normalised stream and adds to it."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.attended = Linear(width, 3 * width), Linear(width, width)
        self.up, self.down = Linear(width, 4 * width), Linear(4 * width, width)

    def forward(self, x):
        rows, length, width = x.shape
        parts = self.qkv(self.before(x)).split(width, 2)
        query, key, value = (part.view(rows, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = attention(query, key, value, self.qkv.widened)
        x = x + self.attended(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(F.gelu(self.up(self.between(x))))


class GPT(nn.Module):
    """Called with rows of length + 1 tokens; returns the mean loss of predicting each from those before it."""

    def __init__(self, vocabulary, layers, width, heads, length, checkpointing=False):
        super().__init__()
        if width % heads:
            raise ValueError(f"hidden_dim {width} is not divisible by num_heads {heads}")
        self.checkpointing = checkpointing
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = self.tokens(inputs) + self.places(torch.arange(inputs.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def widen(model):
    """From now on its matrix products go by way of float32."""
    for module in model.modules():
        if isinstance(module, Linear):
            module.widened = True
    return model


def initialize(model, seed):
    """Weights from the seed, in float32 and as bfloat16 has them: all configurations and both libraries begin with the same."""
    generator = torch.Generator().manual_seed(seed)
    depth = (2 * len(model.blocks)) ** -0.5  # layers that write into the stream begin smaller the more there are
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                small = name.endswith(("attended.weight", "down.weight"))
                parameter.normal_(std=0.02 * (depth if small else 1.0), generator=generator)
            elif name.endswith("bias"):
                parameter.zero_()
            parameter.copy_(parameter.bfloat16())
    return model
