# SPDX-License-Identifier: Apache-2.0
"""Accelerate's loop with a DeepSpeedPlugin of arguments: stage 2, bf16, accumulation, clipping, an optimizer and a schedule
of PyTorch."""
import torch
from accelerate import Accelerator, DeepSpeedPlugin, InitProcessGroupKwargs
from common import Sentences, gpt2, tell, tell_engine

plugin = DeepSpeedPlugin(zero_stage=2, gradient_accumulation_steps=2, gradient_clipping=0.5)
# Without a GPU Accelerate has to be told how processes talk; else each takes itself for the only one.
accelerator = Accelerator(mixed_precision="bf16", deepspeed_plugin=plugin, kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
model = gpt2()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 10))
loader = torch.utils.data.DataLoader(Sentences(), batch_size=8)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
step = 0
for _ in range(2):
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        tell(step, loss)
        step += 1
tell_engine(model)
if accelerator.is_main_process:
    print(f"loss {step} {accelerator.unwrap_model(model).transformer.ln_f.weight.detach().double().norm().item():.9g}")
accelerator.end_training()
