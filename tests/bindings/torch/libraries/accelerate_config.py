# SPDX-License-Identifier: Apache-2.0
"""Accelerate's loop with a DeepSpeed configuration whose values are "auto": stage 3, float32, DeepSpeed's optimizer and
schedule."""
from accelerate import Accelerator, DeepSpeedPlugin, InitProcessGroupKwargs
from accelerate.utils import DummyOptim, DummyScheduler
from common import Sentences, gpt2, tell, tell_engine
from torch.utils.data import DataLoader

config = {
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto",
                                                      "total_num_steps": "auto"}},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
                          "stage3_param_persistence_threshold": "auto", "stage3_gather_16bit_weights_on_model_save": True},
}
accelerator = Accelerator(gradient_accumulation_steps=3, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config),
                          kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
model = gpt2()
optimizer = DummyOptim(model.parameters(), lr=5e-3, weight_decay=0.01)
scheduler = DummyScheduler(optimizer, total_num_steps=32, warmup_num_steps=3)
loader = DataLoader(Sentences(), batch_size=8)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
step = 0
for _ in range(2):
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        tell(step, loss)
        step += 1
tell_engine(model)
state = accelerator.get_state_dict(model)
if accelerator.is_main_process:
    print(f"loss {step} {state['transformer.ln_f.weight'].double().norm().item():.9g}")
accelerator.end_training()
