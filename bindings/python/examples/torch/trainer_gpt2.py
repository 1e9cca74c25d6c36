# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer with a DeepSpeed configuration whose values it fills in: stage 3, so the model is made under zero.Init.

    outrigger run -n 2 -- python trainer_gpt2.py [--checkpoints DIR]        torchrun --nproc-per-node 2 trainer_gpt2.py
"""
import argparse
import os
import tempfile

import outrigger.torch.compat

outrigger.torch.compat.install()  # before accelerate and transformers are imported

import torch  # noqa: E402
from accelerate import PartialState  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments  # noqa: E402
from transformers.trainer_utils import get_last_checkpoint  # noqa: E402

config = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
                          "stage3_param_persistence_threshold": "auto", "stage3_gather_16bit_weights_on_model_save": True},
}


class Sentences(torch.utils.data.Dataset):
    """Each token follows from the one before it; the first is free."""

    def __len__(self):
        return 1024

    def __getitem__(self, index):
        tokens = [index % 32]
        for _ in range(15):
            tokens.append((5 * tokens[-1] + 7) % 32)
        return {"input_ids": torch.tensor(tokens), "labels": torch.tensor(tokens)}


def main(folder, saves):
    # Where there is no GPU: how the processes talk.
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    PartialState(backend="gloo")
    arguments = TrainingArguments(folder, deepspeed=config, accelerator_config={"use_configured_state": True}, max_steps=40,
                                  per_device_train_batch_size=8, learning_rate=1e-2, logging_steps=5, report_to=[], disable_tqdm=True,
                                  save_strategy="steps" if saves else "no", save_steps=10, save_total_limit=2)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=4, use_cache=False,
                                       bos_token_id=None, eos_token_id=None))
    trainer = Trainer(model, arguments, train_dataset=Sentences())
    trainer.train(resume_from_checkpoint=get_last_checkpoint(folder) if saves and os.path.isdir(folder) else None)
    assert type(trainer.model_wrapped) is outrigger.torch.Engine
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert float(losses[-1]) < 0.6 * float(losses[0]), "it does not learn"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--checkpoints", metavar="DIR", help="save the training here, and go on from here")
checkpoints = parser.parse_args().checkpoints
with tempfile.TemporaryDirectory() as place:  # each rank's own
    main(checkpoints or place, bool(checkpoints))
