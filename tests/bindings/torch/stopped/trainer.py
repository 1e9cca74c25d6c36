# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer that saves every 8 steps: trainer.py FOLDER STAGE DIES, of which DIES is the step that kills it, or 0.
It goes on where FOLDER has a checkpoint."""
import os
import signal
import sys

import torch
from accelerate import PartialState
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

folder, stage, dies = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
config = {
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "zero_optimization": {"stage": stage, "stage3_gather_16bit_weights_on_model_save": True},
}
if stage == 2:  # else the schedule is the Trainer's
    config["scheduler"] = {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto",
                                                               "total_num_steps": "auto"}}
    config["torch_autocast"] = {"enabled": True, "dtype": "bfloat16"}


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        tokens = [index % 32]
        for _ in range(15):
            tokens.append((5 * tokens[-1] + 7) % 32)
        return {"input_ids": torch.tensor(tokens), "labels": torch.tensor(tokens)}


class Tell(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs and state.is_world_process_zero:
            print("loss", state.global_step, repr((logs["loss"], logs["grad_norm"], logs["learning_rate"])).replace(" ", ""), flush=True)

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == dies:
            os.kill(os.getpid(), signal.SIGKILL)


os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
PartialState(backend="gloo")
arguments = TrainingArguments(folder, deepspeed=config, accelerator_config={"use_configured_state": True}, max_steps=24,
                              per_device_train_batch_size=4, gradient_accumulation_steps=2, learning_rate=1e-2, warmup_steps=4, logging_steps=1,
                              save_strategy="steps", save_steps=8, save_total_limit=2, report_to=[], disable_tqdm=True)
torch.manual_seed(5)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=4, use_cache=False, bos_token_id=None,
                                   eos_token_id=None))
trainer = Trainer(model, arguments, train_dataset=Sentences(), callbacks=[Tell()])
trainer.train(resume_from_checkpoint=os.path.isdir(folder) and get_last_checkpoint(folder))
assert type(trainer.model_wrapped).__module__ == "outrigger.torch.engine"
