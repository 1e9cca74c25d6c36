# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of a GPT on one GPU: plain PyTorch, and outrigger.torch with the states there and on the host; a line of JSON a row.

    python3 scripts/gpu/training.py [LAYERS [WIDTH]]

float32 weights, autocast to bfloat16, AdamW; plain PyTorch's is the fused one.
"""

import gc
import json
import statistics
import sys
import time

import torch

import outrigger.torch

LAYERS, WIDTH = (int(x) for x in (sys.argv[1:] + ["24", "1536"][len(sys.argv) - 1:])[:2])
VOCABULARY, LENGTH, BATCH, ROUNDS = 32000, 1024, 4, 12


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.feed = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        heads = self.qkv(self.first(x)).view(*x.shape[:2], 3, WIDTH // 128, 128).permute(2, 0, 3, 1, 4)
        attended = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.feed(self.second(x))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Embedding(LENGTH, WIDTH)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids[:, :-1]) + self.places.weight
        return torch.nn.functional.cross_entropy(self.head(self.blocks(x)).flatten(0, 1), ids[:, 1:].flatten())


def plain(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)

    def step(ids):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    return step


def ours(model, offload):
    zero = {"stage": 1, **({"offload_optimizer": {"device": "cpu"}} if offload else {})}
    engine, *_ = outrigger.torch.initialize(model=model, config={
        "train_micro_batch_size_per_gpu": BATCH, "torch_autocast": {"enabled": True, "dtype": "bfloat16"},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}}, "zero_optimization": zero})

    def step(ids):
        loss = engine(ids)
        engine.backward(loss)
        engine.step()
        return loss
    return step


def row(name, of):
    torch.manual_seed(0)
    model = Gpt().to("cuda")
    parameters = sum(each.numel() for each in model.parameters())
    step, times = of(model), []
    generator = torch.Generator(device="cuda").manual_seed(1)
    for round_ in range(-3, ROUNDS):
        ids = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), device="cuda", generator=generator)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = step(ids)
        torch.cuda.synchronize()
        if round_ >= 0:
            times.append(time.perf_counter() - begin)
    free, total = torch.cuda.mem_get_info()
    print(json.dumps({"row": name, "parameters": parameters, "seconds": statistics.median(times), "least": min(times), "loss": loss.item(),
                      "tokens_per_second": BATCH * LENGTH / statistics.median(times), "gpu_bytes": total - free}), flush=True)
    del step, model, loss
    gc.collect()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    for _ in range(2):
        row("plain PyTorch, fused AdamW", plain)
        row("outrigger.torch", lambda model: ours(model, False))
    row("outrigger.torch, states on the host", lambda model: ours(model, True))
