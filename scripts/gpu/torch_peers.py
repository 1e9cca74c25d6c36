# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own AdamW on a GPU, beside bench_gpu_kernels: the same sizes, float32, times of the device by events; a line of JSON a row.

    python3 scripts/gpu/torch_peers.py [MILLIONS OF ELEMENTS]
"""

import json
import statistics
import sys

import torch


def times_of(work, rounds=25):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    all_times = []
    for round_ in range(-2, rounds):
        begin.record()
        work()
        end.record()
        end.synchronize()
        if round_ >= 0:
            all_times.append(begin.elapsed_time(end) / 1e3)
    return all_times


def row(name, parameters, **options):
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.05, **options)
    times = times_of(optimizer.step)
    elements = sum(parameter.numel() for parameter in parameters)
    seconds = statistics.median(times)
    print(json.dumps({"row": name, "seconds": seconds, "least": min(times), "bytes_per_second": 28 * elements / seconds}), flush=True)


def main():
    count = int(sys.argv[1] if len(sys.argv) > 1 else 64) << 20
    print(json.dumps({"row": "device", "name": torch.cuda.get_device_name(), "torch": torch.__version__}))
    for tensors in (1, 300, 10000):
        for how in ("fused", "foreach"):
            parameters = [torch.randn(count // tensors, device="cuda").requires_grad_() for _ in range(tensors)]
            row(f"torch {how} AdamW, {tensors} tensors of {count // tensors}, all float32", parameters, **{how: True})
            del parameters
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
