# SPDX-License-Identifier: Apache-2.0
"""A GPT-2 of Hugging Face transformers in Accelerate's loop, with a DeepSpeedPlugin: stage 2, bfloat16, accumulation.

    outrigger run -n 2 -- python accelerate_gpt2.py [--checkpoints DIR]        torchrun --nproc-per-node 2 accelerate_gpt2.py
"""
import argparse

import outrigger.torch.compat

outrigger.torch.compat.install()  # before accelerate and transformers are imported

import torch  # noqa: E402
from accelerate import Accelerator, DeepSpeedPlugin, InitProcessGroupKwargs  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402


def sentences():
    """Each token follows from the one before it; the first is free."""
    tokens = torch.randint(0, 32, (1024, 1), generator=torch.Generator().manual_seed(1))
    for _ in range(15):
        tokens = torch.cat([tokens, (5 * tokens[:, -1:] + 7) % 32], 1)
    return torch.utils.data.TensorDataset(tokens)


def main(saves):
    plugin = DeepSpeedPlugin(zero_stage=2, gradient_accumulation_steps=2, gradient_clipping=1.0)
    accelerator = Accelerator(mixed_precision="bf16", deepspeed_plugin=plugin,
                              kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])  # where there is no GPU
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=4, use_cache=False,
                                       bos_token_id=None, eos_token_id=None))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = torch.utils.data.DataLoader(sentences(), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(0))
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    if saves and (found := model.load_checkpoint(saves)[1]):
        losses = found["losses"]
    for (tokens,) in accelerator.skip_first_batches(loader, len(losses)):  # the same order: the generator's seed is the same
        with accelerator.accumulate(model):
            loss = model(input_ids=tokens, labels=tokens).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())
        if saves and len(losses) % 16 == 0:  # a multiple of the accumulation
            model.save_checkpoint(saves, client_state={"losses": losses})
    accelerator.print(f"loss {losses[0]:.3f}, at the end {losses[-1]:.3f}; an engine of {type(model).__module__}")
    assert type(model) is outrigger.torch.Engine
    assert losses[-1] < 0.6 * losses[0], "it does not learn"
    accelerator.end_training()


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--checkpoints", metavar="DIR", help="save the training here, and go on from here")
main(parser.parse_args().checkpoints)
