# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher: every stage, precision, accumulation, clipping, kind of checkpointing and offload against
DistributedDataParallel.

    outrigger run -n 2 -- python ranks.py
"""
import copy
import itertools
import sys

import torch
import torch.distributed as dist
from models import PRECISIONS, Plain, config, differences, master_of, net
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import outrigger.torch

# Of parameters near 1 after STEPS steps at lr 1e-2: the most and the mean. float32: DDP sums in another order. 16 bits: DDP
# rounds each rank's gradient before the sum and after it, the engine sums in float32; where a gradient is near 0, Adam makes
# of its last bit a step of up to lr.
STEPS = 3
BOUNDS = {"float32": (3e-6, 1e-7), "bf16": (2.5e-2, 1e-3), "fp16": (2.5e-2, 1e-4)}


def data(step, rank, micro, dtype):
    generator = torch.Generator().manual_seed(1000 * step + 10 * rank + micro)
    return torch.randn(8, 6, generator=generator).to(dtype), torch.randn(8, 4, generator=generator)


class Checkpointed(torch.nn.Module):
    """reentrant: None computes as the inner model does."""

    def __init__(self, inner, reentrant):
        super().__init__()
        self.inner, self.reentrant = inner, reentrant

    def forward(self, x):
        if self.reentrant is None:
            return self.inner(x)
        hidden = torch.tanh(self.inner.a(x))
        return checkpoint(lambda y: self.inner.c(torch.tanh(self.inner.b(y))), hidden, use_reentrant=self.reentrant)


def squared(y, t):
    return torch.nn.functional.mse_loss(y.float(), t)


def outside(y, t):
    return (y.float().sigmoid() * t).sum(1).square().mean()


def tensor(y, t):
    """No loss: t is the gradient of y."""
    return None


FORMS = (squared, outside, tensor)


def backward(form, y, t, factor=1):
    loss = form(y, t)
    if loss is None:
        y.backward((t * factor).to(y.dtype))
    else:
        (loss * factor).backward()


def reference(model, form, precision, gas, clip, rank):
    dtype, scale = {"float32": (torch.float32, 1), "bf16": (torch.bfloat16, 1), "fp16": (torch.float16, 2**10)}[precision]
    plain = Plain(model, dtype, clip)
    parallel = DistributedDataParallel(plain.module)
    for step in range(STEPS):
        for micro in range(gas):
            x, t = data(step, rank, micro, dtype)
            parallel.require_backward_grad_sync = micro == gas - 1
            backward(form, parallel(x), t, scale / gas)
        plain.step(scale)
    return plain.master


def ours(model, form, precision, gas, clip, rank, stage, offload, at_root):
    made = config(stage=stage, gas=gas, clip=clip, **PRECISIONS[precision])
    if offload:
        made["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    engine, *_ = outrigger.torch.initialize(model=copy.deepcopy(model), config=made)
    assert engine.zero_cpu_offload() == offload
    for step in range(STEPS):
        for micro in range(gas):
            x, t = data(step, rank, micro, engine.compute_dtype)
            y = engine(x)
            if at_root and form is not tensor:
                engine.backward(form(y, t))
            else:
                backward(form, y, t)
            engine.step()
    assert (engine.global_steps, engine.skipped_steps) == (STEPS, 0), (engine.global_steps, engine.skipped_steps)
    return engine


def cases():
    """form, precision, accumulation, clipping: all together. Beside them, so that any two values meet: how blocks
    are checkpointed, whether engine.backward(loss) or loss.backward() is called, and which stages are offloaded."""
    for form, precision, gas, clip in itertools.product(range(3), range(3), range(2), range(2)):
        yield (FORMS[form], list(PRECISIONS)[precision], (1, 4)[gas], (0, 0.1)[clip],
               (None, False, True)[(form + precision + gas + clip) % 3], (form + gas + clip) % 2 == 0, (form + clip) % 2)


def compare(rank):
    count = failures = 0
    for form, precision, gas, clip, reentrant, at_root, parity in cases():
        model = Checkpointed(net(), reentrant)
        expected = reference(model, form, precision, gas, clip, rank)
        before = None
        for stage in range(4):
            # Of two stages with the same bits one is offloaded; stage 0 cannot be.
            offload = stage > 0 and (stage + parity) % 2 == 1
            engine = ours(model, form, precision, gas, clip, rank, stage, offload, at_root)
            case = (f"{form.__name__} {precision} gas {gas} clip {clip} stage {stage} reentrant {reentrant} offload {offload} "
                    f"at root {at_root}")
            each = differences(expected, engine)
            count += 1
            if each.max() > BOUNDS[precision][0] or each.mean() > BOUNDS[precision][1]:
                failures += 1
                print(f"{case}: differs by {each.max():.3g}, on average {each.mean():.3g}", flush=True)
            masters = torch.cat([master.flatten() for master in master_of(engine)])
            # 0 and 1 reduce at the window's end, 2 and 3 at every micro-step.
            if stage in (1, 3) and not torch.equal(before, masters):
                failures += 1
                print(f"{case}: other bits than stage {stage - 1}", flush=True)
            before = masters
            engine.destroy()
    return count, failures


def main():
    torch.set_num_threads(1)
    outrigger.torch.init_distributed()
    count, failures = compare(dist.get_rank())
    if dist.get_rank() == 0:
        print(f"{count} cases on {dist.get_world_size()} ranks, {failures} failures")
    dist.destroy_process_group()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
