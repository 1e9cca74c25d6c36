# SPDX-License-Identifier: Apache-2.0
"""Accelerate as `accelerate launch` sets it up, by the environment: stage 2 with an offloaded optimizer, for which it makes
DeepSpeed's CPUAdam of PyTorch's AdamW; bf16, gradient checkpointing, a schedule of DeepSpeed's class."""
import os

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from common import Sentences, gpt2, tell, tell_engine
from deepspeed.runtime.lr_schedules import WarmupLR

os.environ.update(ACCELERATE_USE_DEEPSPEED="true", ACCELERATE_DEEPSPEED_ZERO_STAGE="2", ACCELERATE_MIXED_PRECISION="bf16",
                  ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE="cpu", ACCELERATE_GRADIENT_CLIPPING="1.0",
                  ACCELERATE_GRADIENT_ACCUMULATION_STEPS="1")
accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
# Masters begin as DeepSpeed's do, which does not know the key.
accelerator.state.deepspeed_plugin.deepspeed_config["outrigger"] = {"round_initial_values": True}
model = gpt2()
model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.1)
loader = torch.utils.data.DataLoader(Sentences(), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
scheduler = WarmupLR(optimizer.optimizer, warmup_max_lr=5e-3, warmup_num_steps=4)
step = 0
for batch in loader:
    loss = model(**batch).loss
    accelerator.backward(loss)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    tell(step, loss)
    step += 1
tell_engine(model)
norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
tell(step, norm)
state = accelerator.get_state_dict(model)
if accelerator.is_main_process:
    print(f"loss {step + 1} {state['transformer.ln_f.weight'].double().norm().item():.9g}")
accelerator.end_training()
