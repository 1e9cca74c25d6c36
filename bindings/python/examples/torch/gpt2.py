# SPDX-License-Identifier: Apache-2.0
"""A GPT-2 of Hugging Face transformers, built from a configuration and trained from scratch in bfloat16 at stage 2, on
sentences of a small language of its own.

    python gpt2.py        outrigger run -n 2 --max-restarts 3 -- python gpt2.py --checkpoints DIR
"""
import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import outrigger.torch

STEPS, EVERY = 40, 10
config = {
    "train_batch_size": 24,  # over all ranks: 1, 2, 3 or 6 of them make the same steps
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.01}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-2, "warmup_num_steps": 5}},
    "zero_optimization": {"stage": 2},
    "bf16": {"enabled": True},
}


def sentences(number, count):
    """Each token follows from the one before it; the first is free."""
    tokens = torch.randint(0, 32, (count, 1), generator=torch.Generator().manual_seed(number))
    for _ in range(15):
        tokens = torch.cat([tokens, (5 * tokens[:, -1:] + 7) % 32], 1)
    return tokens


def train(engine, step):
    """This rank's micro-batches are every world_size-th of the step's."""
    micros = engine.gradient_accumulation_steps()
    for micro in range(micros):
        tokens = sentences(1 + (step * micros + micro) * engine.world_size + engine.global_rank, 4)
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()


def main(folder):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=4, use_cache=False,
                                       bos_token_id=None, eos_token_id=None, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    engine, _, _, _ = outrigger.torch.initialize(model=model, config=config)
    _, state = engine.load_checkpoint(folder) if folder else (None, None)  # None, None: nothing is there yet
    losses = state["losses"] if state else []
    held_out = sentences(0, 32)
    for step in range(engine.global_steps, STEPS):
        train(engine, step)
        if (step + 1) % EVERY == 0:
            with torch.no_grad():
                losses.append(engine(input_ids=held_out, labels=held_out).loss.item())
            if folder:
                engine.save_checkpoint(folder, client_state={"losses": losses})
    print("held-out losses: " + " ".join(f"{loss:.4f}" for loss in losses))
    tied = engine.module
    assert tied.lm_head.weight is tied.transformer.wte.weight
    assert engine.global_steps == STEPS
    assert losses[-1] < 0.5 * losses[0], "it does not learn"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--checkpoints", metavar="DIR", help="save the training here, and go on from here")
main(parser.parse_args().checkpoints)
