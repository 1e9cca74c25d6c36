# SPDX-License-Identifier: Apache-2.0
"""A GPT-2 of Hugging Face transformers, built from a configuration and trained from scratch in bfloat16 at stage 2, on
sentences of a small language of its own.

    python gpt2.py        outrigger run -n 2 --max-restarts 3 -- python gpt2.py --checkpoints DIR
"""
import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import outrigger.torch

config = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.01}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-2, "warmup_num_steps": 5}},
    "zero_optimization": {"stage": 2},
    "bf16": {"enabled": True},
}


def sentences(generator):
    """Each token follows from the one before it; the first is free."""
    tokens = torch.randint(0, 32, (8, 1), generator=generator)
    for _ in range(15):
        tokens = torch.cat([tokens, (5 * tokens[:, -1:] + 7) % 32], 1)
    return tokens


def main(folder):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=4, use_cache=False,
                                       bos_token_id=None, eos_token_id=None))
    engine, _, _, _ = outrigger.torch.initialize(model=model, config=config)
    _, state = engine.load_checkpoint(folder) if folder else (None, None)  # None, None: nothing is there yet
    losses = state["losses"] if state else []
    for micro in range(len(losses), 80):
        tokens = sentences(torch.Generator().manual_seed(1 + micro * engine.world_size + engine.global_rank))
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
        if folder and (micro + 1) % 20 == 0:
            engine.save_checkpoint(folder, client_state={"losses": losses})
    first, last = sum(losses[:10]) / 10, sum(losses[-10:]) / 10
    print(f"mean loss of the first 10 micro-batches {first:.3f}, of the last 10 {last:.3f}; updates: {engine.global_steps}")
    tied = engine.module
    assert tied.lm_head.weight is tied.transformer.wte.weight
    assert engine.global_steps == 40
    assert last < 0.5 * first, "it does not learn"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--checkpoints", metavar="DIR", help="save the training here, and go on from here")
main(parser.parse_args().checkpoints)
