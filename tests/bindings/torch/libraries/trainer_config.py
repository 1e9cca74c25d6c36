# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer with a DeepSpeed configuration that names optimizer and schedule, every value "auto": stage 2,
bfloat16 by autocast (TrainingArguments(bf16=True) asks for a GPU)."""
import os
import tempfile

from accelerate import PartialState
from common import Sentences, gpt2, tell, tell_engine
from transformers import Trainer, TrainerCallback, TrainingArguments

config = {
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto", "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
    "torch_autocast": {"enabled": True, "dtype": "bfloat16"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto",
                                                      "total_num_steps": "auto"}},
    "zero_optimization": {"stage": 2, "allgather_partitions": True, "overlap_comm": True, "reduce_bucket_size": "auto",
                          "contiguous_gradients": True},
}


class Tell(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        for place, name in enumerate(("loss", "grad_norm", "learning_rate")):
            if name in logs:
                tell(10 * state.global_step + place, logs[name])


# Without a GPU Accelerate has to be told how processes talk; else each takes itself for the only one.
os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
PartialState(backend="gloo")
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, deepspeed=config, per_device_train_batch_size=8, gradient_accumulation_steps=2,
                                  learning_rate=5e-3, weight_decay=0.01, max_grad_norm=0.5, warmup_steps=3, max_steps=16,
                                  logging_steps=1, save_strategy="no", accelerator_config={"use_configured_state": True},
                                  report_to=[], disable_tqdm=True, seed=3)
    trainer = Trainer(gpt2(), arguments, train_dataset=Sentences(), callbacks=[Tell()])
    trainer.train()
    tell_engine(trainer.model_wrapped)
