# SPDX-License-Identifier: Apache-2.0
"""A user's program over outrigger.torch, for mypy --strict."""
from typing import Any, assert_type

import outrigger.torch
import torch
from outrigger.torch import lr_schedules, utils, zero


def main(model: torch.nn.Module, x: torch.Tensor) -> None:
    engine, optimizer, loader, _ = outrigger.torch.initialize(model=model, config={"bf16": {"enabled": True}})
    assert_type(engine, outrigger.torch.Engine)
    assert_type(optimizer, outrigger.torch.ZeroOptimizer)
    assert_type(loader, torch.utils.data.DataLoader[Any] | None)
    assert_type(engine.backward(engine(x)), torch.Tensor)
    assert_type(engine.train_batch_size(), int | None)
    engine.step()
    assert_type(utils.safe_get_full_grad(x), torch.Tensor | None)
    assert_type(utils.safe_get_full_fp32_param(x), torch.Tensor | None)
    with zero.GatheredParameters(model.parameters(), modifier_rank=0):
        pass
    offloaded = outrigger.torch.OffloadedAdamW(model.parameters(), lr=1e-3, max_norm=1.0, states={"exp_avg": {"format": "bfloat16"}})
    offloaded.step()
    assert_type(offloaded.grad_norm, float | None)
    assert_type(offloaded.host_bytes(), dict[str, int])
    lr_schedules.WarmupLR(outrigger.torch.CPUAdam(model.parameters(), lr=1e-3), warmup_num_steps=10).step()


def wrong(model: torch.nn.Module) -> None:
    outrigger.torch.initialize(model="gpt2")  # type: ignore[arg-type]
    outrigger.torch.initialize(model=model, configuration={})  # type: ignore[call-arg]
    outrigger.torch.OffloadedAdamW(model.parameters(), max_norm="1")  # type: ignore[arg-type]
    outrigger.torch.CPUAdam(model.parameters(), lr="1e-3")  # type: ignore[arg-type]
    utils.safe_get_full_optimizer_state(model, "exp_avg")  # type: ignore[arg-type]
