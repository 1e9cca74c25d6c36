# SPDX-License-Identifier: Apache-2.0
"""What a training is: the same on all ranks of both groups."""
import copy
from dataclasses import dataclass, field

import torch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ADAMW = {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.05}}
PRECISIONS = {"float32": {}, "bf16": {"bf16": {"enabled": True}}, "fp16": {"fp16": {"enabled": True, "initial_scale_power": 10}}}


@dataclass(frozen=True)
class Part:
    """One group: how many ranks it has, and how its engine keeps what they train."""

    ranks: int
    stage: int
    precision: str


@dataclass(frozen=True)
class Settings:
    vision: Part = Part(ranks=2, stage=2, precision="bf16")
    language: Part = Part(ranks=1, stage=1, precision="float32")
    steps: int = 600
    micro_batches: int = 2  # of a step
    ahead: int = 2  # micro-batches that the vision group may begin before it has the first one's gradient; 1: no overlap
    strips: int = 16  # of a micro-batch, on all ranks together
    digits: int = 4  # of a strip
    width: int = 64
    heads: int = 4
    blocks: int = 2
    clip: float = 1.0
    optimizer: dict = field(default_factory=lambda: copy.deepcopy(ADAMW))
    decays: bool = True  # the learning rate, to zero
    grad_dtype: str = "float16"  # of the embedding's gradient on its way
    grad_scale: float = 1024.0  # that keeps it from vanishing there; the message's tag says so
    every: int = 100  # steps from one checkpoint to the next
    timeout: float = 120.0  # seconds that a rank waits for another one, or the driver for a step
    seed: int = 0

    def config(self, part):
        """An engine's configuration."""
        config = {"train_micro_batch_size_per_gpu": self.strips, "gradient_accumulation_steps": self.micro_batches,
                  "gradient_clipping": self.clip, "optimizer": copy.deepcopy(self.optimizer),
                  "zero_optimization": {"stage": part.stage}, **PRECISIONS[part.precision]}
        if self.decays:
            config["scheduler"] = {"type": "WarmupCosineLR", "params": {"total_num_steps": self.steps, "warmup_num_steps": max(2, self.steps // 20)}}
        return config
