# SPDX-License-Identifier: Apache-2.0
"""Accelerate's save_state and load_state: accelerate_state.py FOLDER STAGE DIES, of which DIES is the step that kills it, or 0. It
goes on where FOLDER has a state."""
import os
import signal
import sys

import torch
from accelerate import Accelerator, DeepSpeedPlugin, InitProcessGroupKwargs

folder, stage, dies = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
accelerator = Accelerator(mixed_precision="bf16", kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")],
                          deepspeed_plugin=DeepSpeedPlugin(zero_stage=stage, gradient_accumulation_steps=2, gradient_clipping=1.0))
torch.manual_seed(1)
x = torch.randn(384, 8, generator=torch.Generator().manual_seed(3))
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.2), torch.nn.Tanh(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :4] * x[:, 4:]), batch_size=8)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
assert type(model).__module__ == "outrigger.torch.engine"
batches = list(loader)
each = len(batches) // 3


def epoch(number):
    for index, (inputs, target) in enumerate(batches[number * each:(number + 1) * each]):
        step = number * each + index
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(inputs.bfloat16()).float(), target)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if accelerator.is_main_process:
            print("loss", step, repr((loss.item(), schedule.get_last_lr())).replace(" ", ""), flush=True)
        if step and step == dies:
            os.kill(os.getpid(), signal.SIGKILL)


begin = 0
if os.path.isdir(folder):
    begin = max(int(name) for name in os.listdir(folder)) + 1
    accelerator.load_state(os.path.join(folder, str(begin - 1)))
for number in range(begin, 3):
    epoch(number)
    accelerator.save_state(os.path.join(folder, str(number)))
