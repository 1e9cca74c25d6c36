# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher: every rule, stage, precision, accumulation, clipping, kind of checkpointing and offload against
DistributedDataParallel. Each rank has data of its own. Then with faults put in, which the comparison must see.

    outrigger run -n 2 -- python ranks.py
"""
import collections
import copy
import itertools
import sys

import torch
import torch.distributed as dist
from faults import FAULTS
from models import ADAMW, DTYPES, PRECISIONS, SGD, Rounded, adamw, config, differences, master_of, moved_otherwise, net, sgd
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import outrigger.torch

CLIP = 0.05  # norms are 0.15 to 1.3
SCALE = {"float32": 1, "bf16": 1, "fp16": 2**10}

# AdamW: of parameters near 1 at lr 1e-2, the most and the mean. Where a gradient is near 0 it makes of its last bit a step of up
# to lr, and the mean tells: of 436 elements one such makes 2e-5 to 7e-5 of it, a lost gradient 1e-3 and more.
BOUNDS = {"float32": (3e-6, 1e-7), "bf16": (2.5e-2, 2e-4), "fp16": (2.5e-2, 1e-4)}


def adamw_differs(start, expected, engine, precision):
    each = differences(expected, engine)
    if not (each.max() <= BOUNDS[precision][0] and each.mean() <= BOUNDS[precision][1]):
        return f"differs by {each.max():.3g}, on average {each.mean():.3g}"
    return None


Rule = collections.namedtuple("Rule", "name options make differs steps accumulation")
RULES = (Rule("AdamW", ADAMW, adamw, adamw_differs, 3, 4), Rule("SGD", SGD, sgd, moved_otherwise, 2, 3))
Case = collections.namedtuple("Case", "rule form precision gas clip reentrant at_root parity")


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
        y.backward((t * factor / len(t)).to(y.dtype))
    else:
        (loss * factor).backward()


def reference(model, case, rank):
    """Its weights and their gradients are float32, its computation is in the case's dtype."""
    master, scale = copy.deepcopy(model), SCALE[case.precision]
    parallel, optimizer = DistributedDataParallel(Rounded(master, DTYPES[case.precision])), case.rule.make(master)
    for step in range(case.rule.steps):
        for micro in range(case.gas):
            x, t = data(step, rank, micro, DTYPES[case.precision])
            parallel.require_backward_grad_sync = micro == case.gas - 1
            backward(case.form, parallel(x), t, scale / case.gas)
        for each in master.parameters():
            each.grad /= scale
        if case.clip:
            norm = torch.nn.utils.clip_grad_norm_(master.parameters(), case.clip)
            assert norm > 2 * case.clip, f"{case}: norm {norm}, so clipping does nothing"
        optimizer.step()
        optimizer.zero_grad()
    return master


def ours(model, case, rank, stage, offload):
    made = config(stage=stage, gas=case.gas, clip=case.clip, optimizer=case.rule.options, **PRECISIONS[case.precision])
    if offload:
        made["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    engine, *_ = outrigger.torch.initialize(model=copy.deepcopy(model), config=made)
    assert engine.zero_cpu_offload() == offload
    for step in range(case.rule.steps):
        for micro in range(case.gas):
            x, t = data(step, rank, micro, engine.compute_dtype)
            y = engine(x)
            if case.at_root and case.form is not tensor:
                engine.backward(case.form(y, t))
            else:
                backward(case.form, y, t)
            engine.step()
    steps = engine.global_steps, engine.skipped_steps
    assert steps == (case.rule.steps, 0), steps
    return engine


def cases(rule):
    """form, precision, accumulation, clipping: all together. Beside them, so that any two values meet: how blocks
    are checkpointed, whether engine.backward(loss) or loss.backward() is called, and which stages are offloaded."""
    for form, precision, gas, clip in itertools.product(range(3), range(3), range(2), range(2)):
        yield Case(rule, FORMS[form], list(PRECISIONS)[precision], (1, rule.accumulation)[gas], (0, CLIP)[clip],
                   (None, False, True)[(form + precision + gas + clip) % 3], (form + gas + clip) % 2 == 0, (form + clip) % 2)


def text_of(case, stage, offload):
    return (f"{case.rule.name} {case.form.__name__} {case.precision} gas {case.gas} clip {case.clip} stage {stage} "
            f"reentrant {case.reentrant} offload {offload} at root {case.at_root}")


def compare(case, rank):
    """The engines and failures of all stages."""
    model = Checkpointed(net(), case.reentrant)
    expected = reference(model if case.reentrant is None else Checkpointed(model.inner, None), case, rank)
    before, failures = None, 0
    for stage in range(4):
        # Of two stages with the same bits one is offloaded; stage 0 cannot be.
        offload = stage > 0 and (stage + case.parity) % 2 == 1
        engine = ours(model, case, rank, stage, offload)
        how = case.rule.differs(model, expected, engine, case.precision)
        if how is not None:
            failures += 1
            print(f"{text_of(case, stage, offload)}: {how}", flush=True)
        masters = torch.cat([master.flatten() for master in master_of(engine)])
        # 0 and 1 reduce at the window's end, 2 and 3 at every micro-step.
        if stage in (1, 3) and not torch.equal(before, masters):
            failures += 1
            print(f"{text_of(case, stage, offload)}: other bits than stage {stage - 1}", flush=True)
        before = masters
        engine.destroy()
    return 4, failures


def unseen(rank):
    """Faults put into engines that the comparison lets pass: one form, all factors, a stage for each."""
    count = failures = 0
    chosen = (each for rule in RULES for each in cases(rule) if each.form is squared and each.gas > 1)
    for number, case in enumerate(chosen):
        expected = reference(Checkpointed(net(), None), case, rank)
        for index, (name, fault) in enumerate(FAULTS.items()):
            if fault.shows(case):
                count += 1
                with fault.put_in():
                    engine = ours(Checkpointed(net(), None), case, rank, (number + index) % 4, False)
                if case.rule.differs(net(), expected, engine, case.precision) is None:
                    failures += 1
                    print(f"{text_of(case, (number + index) % 4, False)}: {name} passes", flush=True)
                engine.destroy()
    return count, failures


def main():
    torch.set_num_threads(1)
    outrigger.torch.init_distributed()
    each = [compare(case, dist.get_rank()) for rule in RULES for case in cases(rule)]
    count, failures = (sum(numbers) for numbers in zip(*each))
    faults, passed = unseen(dist.get_rank())
    if dist.get_rank() == 0:
        print(f"{count} cases on {dist.get_world_size()} ranks, {failures} failures; {faults} with a fault, {passed} unseen")
    dist.destroy_process_group()
    return 1 if failures + passed else 0


if __name__ == "__main__":
    sys.exit(main())
