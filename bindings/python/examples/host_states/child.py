# SPDX-License-Identifier: Apache-2.0
"""One measurement in a process of its own; host_states.py starts it. The last line of standard output is JSON.

    python child.py memory|update|seconds FORM LIBRARY PARAMETERS THREADS
"""
import json
import math
import statistics
import sys
import time
from pathlib import Path

import configurations
import torch

PART = 1 << 24  # elements of a parameter
STEPS, TIMED = 8, 9
FACTORS = (0.37, 1.9, 0.61, 2.3, 0.29, 1.3, 0.83, 1.7)  # Adam forgets a factor that stays
SCALES = (1.0, 0.02, 3.0, 0.3, 0.01, 5.0, 0.1, 1.0)  # of the gradients' norm, times the norm at which they are clipped


def resident():
    """Bytes, as the kernel counts this process's pages one by one."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))


def parts(count):
    return [min(PART, count - first) for first in range(0, count, PART)]


def memory(name, library, count, threads):
    torch.set_num_threads(threads)
    pattern = torch.randn(min(PART, count), generator=torch.Generator().manual_seed(1))
    return (memory_of_engine if library == "outrigger" else memory_of_deepspeed)(configurations.FORMS[name], count, threads, pattern)


def memory_of_engine(form, count, threads, pattern):
    """Growth after commit with first values, after a backward, after two steps; the ledger; the estimate made before."""
    import outrigger
    engine = outrigger.Engine(outrigger.Comm.self_group(outrigger.Context(workers=threads)), configurations.engine_config(form))
    grad = pattern.to(torch.bfloat16 if form.weights == "bfloat16" else torch.float32)
    ids = [engine.add_parameter(f"part{place}", shape=[size]) for place, size in enumerate(parts(count))]
    estimate = engine.estimate()
    begin = resident()
    engine.commit()
    for each, size in zip(ids, parts(count)):
        engine.set_initial([each], [pattern[:size]])
    grown = [resident() - begin]
    for _ in range(2):
        with engine.begin_pass() as backward:
            for each, size in zip(ids, parts(count)):
                backward.add_grad(each, grad[:size])
        grown.append(resident() - begin)
        engine.step()
        grown.append(resident() - begin)
    ledger = {purpose: held for purpose, held, _ in engine.memory}
    return {"library": f"Outrigger {outrigger.version()}", "begin_bytes": begin, "after_start": grown[0], "after_backward": grown[1],
            "after_steps": grown[-1], "ledger": ledger, "estimate": {purpose: held for purpose, held, _ in estimate}}


def memory_of_deepspeed(form, count, threads, pattern):
    import sides
    dtype = sides.DTYPES[form.weights]
    sides.make("deepspeed", next(name for name, each in configurations.FORMS.items() if each is form), torch.ones(8), threads).step()  # loads all
    pattern, begin = pattern.to(dtype), resident()
    weights = [pattern[:size].clone() for size in parts(count)]
    grown = [resident() - begin]
    grads = [pattern[:size].clone() for size in parts(count)]
    grown.append(resident() - begin)
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    parameters = [torch.nn.Parameter(weight) for weight in weights]
    for parameter, grad in zip(parameters, grads):
        parameter.grad = grad
    optimizer = DeepSpeedCPUAdam(parameters, lr=configurations.LR, fp32_optimizer_states=form.moments == "float32")
    for _ in range(2):
        optimizer.step()
    import deepspeed
    return {"library": f"DeepSpeed {deepspeed.__version__}", "begin_bytes": begin, "after_start": grown[0], "after_backward": grown[1],
            "after_steps": resident() - begin}


def update(name, library, count, threads):
    """The furthest weight from float64's, in bounds of it; and where a factor that is left out would have led."""
    import bound
    import sides
    form, generator = configurations.FORMS[name], torch.Generator().manual_seed(2)
    start = (0.05 * torch.randn(count, generator=generator)).bfloat16()
    side = sides.make(library, name, start.clone(), threads)
    low = form.weights == "bfloat16"
    rounding = (low and form.master == "bfloat16", form.moments == "bfloat16", low and side.rounds_gradients)
    reference, wrong = (bound.Reference(start, *rounding) for _ in range(2))
    for factor, scale in zip(FACTORS, SCALES, strict=True):
        grads = torch.randn(count, generator=generator)
        grads = (grads * (scale * configurations.CLIP / grads.norm())).to(side.weights.dtype)
        side.grads.copy_(grads)
        exact = grads.double()
        norm = factor * exact.norm().item()
        coefficient = min(1.0, configurations.CLIP / (norm + 1e-6))
        side.step(factor)
        reference.step(exact * (factor * coefficient))
        wrong.step(exact * coefficient)
    difference = (side.weights.double() - reference.weights).abs()
    if form.master == "split":  # its bfloat16 half is that of the float32 master, rounded
        reference.bound += bound.U * (reference.weights.abs() + reference.bound)
    moved = (reference.weights - start.double()).abs()
    bounded = form.moments != "block8"
    return {"library": side.version, "steps": len(FACTORS), "furthest": difference.max().item(), "mean": difference.mean().item(),
            "moved": moved.mean().item(), "of_bound": (difference / reference.bound).max().item() if bounded else None,
            "bound": reference.bound.mean().item() if bounded else None,
            "without_factor_of_bound": ((side.weights.double() - wrong.weights).abs() / reference.bound).max().item() if bounded else None}


def seconds(name, library, count, threads):
    """Of the update alone: no clipping, gradients that are there."""
    import sides
    side = sides.make(library, name, 0.05 * torch.randn(count), threads, clip=0.0)
    side.grads.copy_(0.01 * torch.randn(count))
    times = []
    for _ in range(2 + TIMED):
        begin = time.perf_counter()
        side.step()
        times.append(time.perf_counter() - begin)
    if not math.isfinite(side.weights.float().sum().item()):
        raise RuntimeError("a weight is not finite")
    return {"library": side.version, "seconds": statistics.median(times[2:])}


if __name__ == "__main__":
    what, form, library, count, threads = sys.argv[1:]
    found = {"memory": memory, "update": update, "seconds": seconds}[what](form, library, int(count), int(threads))
    print(json.dumps(found), flush=True)
