# SPDX-License-Identifier: Apache-2.0
"""A small causal language model with tied embeddings and activation checkpointing at stage 3, bf16, cosine schedule."""
import deepspeed
import torch
from common import tell
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (each.view(b, t, self.heads, -1).transpose(1, 2) for each in self.qkv(self.norms[0](x)).split(w, 2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norms[1](x))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=64, width=32, context=24, layers=2):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        logits = self.head(self.norm(x)).float()
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


config = {
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 3, "total_num_steps": 12}},
    "bf16": {"enabled": True}, "zero_optimization": {"stage": 3},
}
deepspeed.init_distributed()
torch.manual_seed(5)
model = LanguageModel()
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
engine.train()
for micro in range(24):
    generator = torch.Generator().manual_seed(1000 * torch.distributed.get_rank() + micro)
    start = torch.randint(0, 64, (4, 1), generator=generator)
    loss = engine((start + 5 * torch.arange(24)) % 64)
    engine.backward(loss)
    engine.step()
    tell(micro, loss)
