# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer at stage 3 in float32, with its own AdamW and schedule; the model is made under its configuration, so
under zero.Init; evaluated and saved at the end."""
import os
import tempfile

import torch
from accelerate import PartialState
from common import Sentences, configuration, tell, tell_engine
from safetensors.torch import load_file
from transformers import GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

config = {
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
                          "stage3_param_persistence_threshold": "auto", "stage3_gather_16bit_weights_on_model_save": True},
}


class Tell(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        for place, name in enumerate(("loss", "grad_norm", "learning_rate", "eval_loss")):
            if name in logs:
                tell(10 * state.global_step + place, logs[name])


# Without a GPU Accelerate has to be told how processes talk; else each takes itself for the only one.
os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
PartialState(backend="gloo")
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, deepspeed=config, per_device_train_batch_size=8, per_device_eval_batch_size=8,
                                  learning_rate=5e-3, lr_scheduler_type="linear", warmup_steps=2, max_steps=16, logging_steps=1,
                                  save_strategy="no", accelerator_config={"use_configured_state": True},
                                  report_to=[], disable_tqdm=True, seed=3)
    torch.manual_seed(5)
    model = GPT2LMHeadModel(configuration())
    trainer = Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences(), callbacks=[Tell()])
    trainer.train()
    tell_engine(trainer.model_wrapped)
    trainer.evaluate()
    trainer.save_model(os.path.join(folder, "saved"))
    if trainer.is_world_process_zero():
        saved = load_file(os.path.join(folder, "saved", "model.safetensors"))
        print(f"loss 1000 {saved['transformer.ln_f.weight'].double().norm().item():.9g}")
