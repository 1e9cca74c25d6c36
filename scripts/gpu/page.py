# SPDX-License-Identifier: Apache-2.0
"""Writes docs/benchmarks/gpu.md from docs/benchmarks/gpu/*.jsonl, which are what bench.sh and training.py have printed on a GPU.

    python3 scripts/gpu/page.py [ROOT]
"""

import json
import pathlib
import sys

WANTED = {"float32 states, bfloat16 gradient and publish": 0.92, "split weight, bfloat16 moments": 0.90, "all bfloat16, stochastic": 0.88,
          "bfloat16 stochastic weight, 8-bit moments": 0.75, "norm and Inf, bfloat16": 0.85}


def grouped(rows, keep):
    groups = {}
    for row in rows:
        if keep(row):
            groups.setdefault(row["row"], []).append(row)
    return groups


def span(values, form):
    least, most = form.format(min(values)), form.format(max(values))
    return least if least == most else f"{least} to {most}"


def page_of(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    device = next(row for row in rows if row["row"] == "device" and "driver" in row)
    torch = next((row["torch"] for row in rows if "torch" in row), None)
    lines = [f"## {device['name']}",
             f"Driver of CUDA {device['driver'] // 1000}.{device['driver'] % 1000 // 10}" + (f", PyTorch {torch}" if torch else "") + ".", "",
             "| kernel, 67 million elements | bytes an element | ms | of a copy's bandwidth in the same run | wanted |", "|---|---|---|---|---|"]
    for name, of in grouped(rows, lambda row: "of_copy" in row).items():
        share = [row["of_copy"] for row in of]
        wanted = WANTED.get(name)
        lines.append(f"| {name} | {of[0]['bytes']:.4g} | {span([1e3 * row['seconds'] for row in of], '{:.3f}')} | {span(share, '{:.2f}')} | "
                     + (f"{wanted}" + ("" if min(share) >= wanted else ": falls short") if wanted else "") + " |")
    lines += ["", "| AdamW, all float32 | ms | on the host, ms |", "|---|---|---|"]
    whole = [1e3 * row["seconds"] for row in rows if row["row"] == "float32 states and gradient, no publish"]
    if whole:
        lines.append(f"| Outrigger, 1 tensor of 67108864 | {span(whole, '{:.3f}')} | |")
    for name, of in grouped(rows, lambda row: "tensors of" in row["row"]).items():
        whose = name if name.startswith("torch") else "Outrigger, " + name
        host = span([1e3 * row["enqueue"] for row in of], "{:.3f}") if "enqueue" in of[0] else ""
        lines.append(f"| {whose.removesuffix(', all float32')} | {span([1e3 * row['seconds'] for row in of], '{:.3f}')} | {host} |")
    lines += ["", "| copies, page-locked | GB/s |", "|---|---|"]
    for name, of in grouped(rows, lambda row: "page-locked" in row["row"] or "directions" in row["row"]).items():
        lines.append(f"| {name.removesuffix(', page-locked')} | {span([row['bytes_per_second'] / 1e9 for row in of], '{:.1f}')} |")
    lines += ["", "| a GPT, float32 weights, autocast to bfloat16, 4 × 1024 tokens a step | tokens a second | memory of the GPU, GB |", "|---|---|---|"]
    for name, of in grouped(rows, lambda row: "tokens_per_second" in row).items():
        lines.append(f"| {name}, {of[0]['parameters'] / 1e6:.0f} million parameters | {span([row['tokens_per_second'] for row in of], '{:.0f}')} | "
                     f"{span([row['gpu_bytes'] / 1e9 for row in of], '{:.1f}')} |")
    return lines


def text_of(root):
    folder = root / "docs/benchmarks/gpu"
    lines = ["# Benchmarks on GPUs",
             "Written by `scripts/gpu/page.py` from `docs/benchmarks/gpu/`, which has what `make bench-gpu` (the kernels, copies and PyTorch's AdamW) and",
             "`scripts/gpu/training.py` (the GPT) have printed. Times of kernels are the device's own, medians of 25 launches by events, with the results in",
             "its memory, as a step that nobody waits for has them. Each program ran twice, in turns; where two numbers stand, they are those of both runs.",
             "The least and the whole of each run stand in the files. Not measured: whole steps by events, offload beside DeepSpeed's, the largest model that",
             "trains, torchao, bitsandbytes, several GPUs."]
    for path in sorted(folder.glob("*.jsonl")):
        lines += ["", *page_of(path)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    (root / "docs/benchmarks/gpu.md").write_text(text_of(root))
