# SPDX-License-Identifier: Apache-2.0
"""A whole training step of a GPT under PyTorch: by Outrigger's adapter, by DeepSpeed, by DistributedDataParallel with
PyTorch's fused AdamW, or by that alone. The model, the data and autograd are the same. `autograd` is what all of them
contain: forward and backward of the module in the precision that ours and DeepSpeed use, nothing reduced or updated.

torch_training.py SIDE RANK WORLD PORT CONFIG_FILE LAYERS WIDTH BATCH CONTEXT
SIDE: outrigger, deepspeed, ddp, ddp_bf16 (module and states in bfloat16), plain, plain_ours (PyTorch alone, and our optimizer on flat
memory), autograd
"""

import json
import os
import pathlib
import sys

import torch
import worker
from torch import nn

VOCABULARY = 8192
CHECK_STEPS = 4


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = width // 64
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.before(x)).split(width, 2)
        q, k, v = (each.view(batch, length, self.heads, 64).transpose(1, 2) for each in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.between(x)), approximate="tanh"))


class GPT(nn.Module):
    """Returns the loss."""

    def __init__(self, layers, width, context):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


class OurStep:
    """What the engine's step is without the engine: the norm, the clipping and the update of the same library, on one flat tensor."""

    def __init__(self, model, config):
        import outrigger

        self.parameters = list(model.parameters())
        sizes = [each.numel() for each in self.parameters]
        self.weights, self.grads = torch.empty(sum(sizes)), torch.empty(sum(sizes))
        for parameter, weight in zip(self.parameters, self.weights.split(sizes), strict=True):
            weight.copy_(parameter.detach().flatten())
            parameter.data = weight.view(parameter.shape)
        self.views = [view.view(each.shape) for each, view in zip(self.parameters, self.grads.split(sizes), strict=True)]
        context = outrigger.Context()
        self.optimizer = outrigger.Optimizer(context, {**config["optimizer"], "gradient_clipping": config["gradient_clipping"]})
        self.shard = outrigger.Shard(context, self.weights, self.grads)

    def step(self):
        torch._foreach_copy_(self.views, [each.grad for each in self.parameters])
        self.optimizer.step([self.shard])

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None


class Training(worker.Worker):
    def __init__(self, side, rank, world, port, config, layers, width, batch, context):
        self.side, self.rank, self.batch, self.context = side, rank, batch, context
        self.sizes = layers, width
        self.config = json.loads(pathlib.Path(config).read_text())
        self.step_number = 0
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_SIZE=str(world),
                          LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))

    def setup(self):
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        torch.manual_seed(1)
        model = GPT(*self.sizes, self.context)
        facts = {"torch": torch.__version__, "parameters": sum(each.numel() for each in model.parameters()),
                 "tensors": len(list(model.parameters()))}
        if self.side == "autograd":
            self.model = model.bfloat16()
            return facts
        if self.side == "plain_ours":
            self.model, self.optimizer = model, OurStep(model, self.config)
            return facts
        if self.side in ("ddp", "ddp_bf16", "plain"):
            self.model = model = model.bfloat16() if self.side == "ddp_bf16" else model
            if self.side != "plain":
                torch.distributed.init_process_group("gloo")
                self.model = nn.parallel.DistributedDataParallel(model)
            options = self.config["optimizer"]["params"]
            self.optimizer = torch.optim.AdamW(model.parameters(), fused=True, **options)
            return facts
        if self.side == "deepspeed":
            import deepspeed as library
            library.init_distributed(dist_backend="gloo", verbose=False)
            facts["deepspeed"] = library.__version__
        else:
            import outrigger.torch as library
            library.init_distributed()
            facts["outrigger"] = __import__("outrigger").version()
        self.model, *_ = library.initialize(model=model, config=self.config, model_parameters=model.parameters())
        return facts

    def ids(self):
        generator = torch.Generator().manual_seed(1000 * self.rank + self.step_number)
        self.step_number += 1
        start = torch.randint(0, VOCABULARY, (self.batch, 1), generator=generator)
        return (start + 7 * torch.arange(self.context)) % VOCABULARY

    def prepare(self):
        if torch.distributed.is_initialized():
            torch.distributed.barrier()

    def work(self):
        ids = self.ids()
        if self.side not in ("outrigger", "deepspeed"):
            with torch.autocast("cpu", torch.bfloat16, enabled="torch_autocast" in self.config):
                loss = self.model(ids)
            loss.backward()
            if self.side == "autograd":
                self.model.zero_grad()
                return {"loss": loss.item()}
            if self.side != "plain_ours":  # its step clips
                nn.utils.clip_grad_norm_(self.model.parameters(), self.config["gradient_clipping"])
            self.optimizer.step()
            self.optimizer.zero_grad()
        else:
            loss = self.model(ids)
            self.model.backward(loss)
            self.model.step()
        return {"loss": loss.item()}

    def check(self, folder):
        return {"losses": [self.work()["loss"] for _ in range(CHECK_STEPS)]}


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[2:5]], [int(each) for each in sys.argv[6:10]]
    worker.serve(lambda: Training(sys.argv[1], *numbers[0], sys.argv[5], *numbers[1]))
