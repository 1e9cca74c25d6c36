# SPDX-License-Identifier: Apache-2.0
"""Ulysses sequence parallelism: every rank has a part of each sequence. The second half of a sequence repeats the first one, so what a rank has to predict
lies on another rank.

    python sequence_parallel.py        outrigger run -n 2 -- python sequence_parallel.py
"""
import torch
from torch import nn
from torch.nn import functional

import outrigger.torch
from outrigger import Message

VOCABULARY, LENGTH, WIDTH, HEADS, BATCH, STEPS = 24, 33, 64, 4, 16, 300


def attention(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # from [batch, sequence, heads, width]
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.middle = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.attention = outrigger.torch.UlyssesAttention(attention)

    def forward(self, x):
        q, k, v = self.qkv(self.before(x)).view(*x.shape[:2], 3, HEADS, WIDTH // HEADS).unbind(2)
        x = x + self.out(self.attention(q, k, v).flatten(2))
        return x + self.feed(self.middle(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.head = nn.Sequential(Block(), Block()), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens, first):
        places = torch.arange(first, first + tokens.shape[1])
        return self.head(self.blocks(self.token(tokens) + self.place(places)))


torch.manual_seed(0)
config = {"train_micro_batch_size_per_gpu": BATCH, "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}}, "zero_optimization": {"stage": 2}}
engine = outrigger.torch.initialize(model=Model(), config=config)[0]
rank, ranks = engine.global_rank, engine.world_size
losses = []
for step in range(STEPS):
    half = torch.randint(VOCABULARY, (BATCH, LENGTH // 2 + 1), generator=torch.Generator().manual_seed(step))
    sequence = torch.cat([half, half], 1)[:, :LENGTH + 1]  # on all ranks the same
    lengths = Message.share(LENGTH, ranks)
    first = sum(lengths[:rank])
    mine = sequence[:, first:first + lengths[rank]]
    target = sequence[:, first + 1:first + 1 + lengths[rank]].clone()
    target[:, :max(0, LENGTH // 2 - first)] = -100  # the first half is noise

    loss = functional.cross_entropy(engine(mine, first).flatten(0, 1), target.flatten(), reduction="sum")
    repeated = BATCH * (LENGTH - LENGTH // 2)
    (loss * ranks / repeated).backward()  # the engine takes the mean over ranks, and this makes it the mean over the sequence
    engine.step()
    losses.append(loss.item() / repeated)  # this rank's share of it
first_loss, last_loss = sum(losses[:20]) / 20, sum(losses[-20:]) / 20
print(f"rank {rank}: its share of the loss in the first 20 steps {first_loss:.3f}, in the last 20 {last_loss:.3f}")
assert rank < ranks - 1 or last_loss < 0.2 * first_loss, "it does not learn"
