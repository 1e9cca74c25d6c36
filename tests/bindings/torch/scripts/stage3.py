# SPDX-License-Identifier: Apache-2.0
"""Stage 3: a model built under zero.Init, weights set under GatheredParameters, parameter groups."""
import deepspeed
import torch
from common import batch, mlp, tell

config = {
    "train_micro_batch_size_per_gpu": 8, "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.005, "weight_decay": 0.1}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}
deepspeed.init_distributed()
with deepspeed.zero.Init(config_dict_or_path=config):
    model = mlp()
with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
    if torch.distributed.get_rank() == 0:
        generator = torch.Generator().manual_seed(11)
        for parameter in model.parameters():
            parameter.data.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
decayed = [each for each in model.parameters() if getattr(each, "ds_shape", each.shape).numel() > 64]
plain = [each for each in model.parameters() if getattr(each, "ds_shape", each.shape).numel() <= 64]
engine, _, _, _ = deepspeed.initialize(model=model, config=config,
                                       model_parameters=[{"params": decayed}, {"params": plain, "weight_decay": 0.0}])
for step in range(20):
    x, y = batch(step)
    loss = torch.nn.functional.cross_entropy(engine(x), y)
    engine.backward(loss)
    engine.step()
    tell(step, loss)
with deepspeed.zero.GatheredParameters(model[0].weight):
    tell(100, model[0].weight.float().norm())
