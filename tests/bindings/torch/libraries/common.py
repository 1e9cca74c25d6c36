# SPDX-License-Identifier: Apache-2.0
"""What the scripts train, and what they print; the rest of each is as the library's documentation writes it."""
import deepspeed
import torch
from transformers import GPT2Config, GPT2LMHeadModel

VOCABULARY, LENGTH, COUNT = 32, 16, 192


class Sentences(torch.utils.data.Dataset):
    """Each token follows from the one before it; the first is free, and some are wrong."""

    def __init__(self):
        generator = torch.Generator().manual_seed(11)
        tokens = torch.randint(0, VOCABULARY, (COUNT, 1), generator=generator)
        for _ in range(LENGTH - 1):
            wrong = torch.randint(0, VOCABULARY, (COUNT, 1), generator=generator)
            follows = torch.rand(COUNT, 1, generator=generator) < 0.9
            tokens = torch.cat([tokens, torch.where(follows, (5 * tokens[:, -1:] + 7) % VOCABULARY, wrong)], 1)
        self.tokens = tokens

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def configuration():
    return GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4, use_cache=False, bos_token_id=None,
                      eos_token_id=None, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


def gpt2():
    torch.manual_seed(5)
    return GPT2LMHeadModel(configuration())


def tell(step, loss):
    """Rank 0 prints the mean over ranks."""
    value = torch.as_tensor(loss).detach().double().clone()
    torch.distributed.all_reduce(value)
    if torch.distributed.get_rank() == 0:
        print(f"loss {step} {value.item() / torch.distributed.get_world_size():.9g}", flush=True)


def tell_engine(engine):
    """With use_cpu=True both libraries silently take DistributedDataParallel instead."""
    assert isinstance(engine, deepspeed.DeepSpeedEngine), type(engine)
    if torch.distributed.get_rank() == 0:
        print("engine", type(engine).__module__, flush=True)
