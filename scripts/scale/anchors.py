# SPDX-License-Identifier: Apache-2.0
"""What others have published of runs whose conditions are known, and the job that stands for each."""
from dataclasses import dataclass, replace
from typing import Any

import transformers
from machines import A100, H100, READ, RECALLED, Cluster
from step import Job

COMPUTE, LATENCY = "compute", "latency"


@dataclass(frozen=True)
class Row:
    """job: a step.Job, a collective (cluster, bytes), or parameters of an offloaded step. fits: which number of its set it gives; such a row is no check."""

    set: str
    what: str
    published: float
    unit: str
    job: Any
    fits: str = ""


@dataclass(frozen=True)
class Set:
    """source: where the numbers stand; kind: whether they were read there or recalled. note: what is assumed."""

    title: str
    bound: str
    source: str
    kind: str
    note: str = ""


H200 = replace(H100, name="H200", memory_bandwidth=4.8e12, memory=141e9)
KEMPNER = replace(H200, gpus=4)
# 2 × 200 Gb/s a host, as the FSDP runs of 2024 are recalled; a note of the set says so.
VELA = replace(A100, network=50e9)
# 2 Tb/s a host
RESEARCH = replace(A100, network=250e9)
MEBI = 1 << 20

SETS = {
    "nccl": Set("NCCL on 8 H100, bfloat16", LATENCY, "NVIDIA/Megatron-LM#5596, rings without symmetric memory, kernel time", READ),
    "nccl_hosts": Set("NCCL over 32 hosts of 8 H100", LATENCY, "NVIDIA/nccl#1218", READ, "one iteration, network of 400 GB/s a host as its owner says; nothing is fitted"),
    "titan_compiled": Set("torchtitan, Llama 3.1 8 B, compiled", COMPUTE, "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md", READ,
                          "selective recomputation counts as none: the efficiency takes it in. Both rows are used up: by efficiency and straggling"),
    "titan_eager": Set("torchtitan, Llama 3.1 8 B, eager", COMPUTE, "the same", READ),
    "titan_float8": Set("torchtitan, Llama 3.1 8 B, float8", COMPUTE, "the same", READ, "gathers in 2 bytes"),
    "trainy": Set("torchtitan, Llama 3.1 8 B, float8, H200", COMPUTE, "torchtitan, benchmarks/llama3_8b_h200_2025-06_torchtitan.md", READ, "gathers in 2 bytes, where the run had 1"),
    "kempner": Set("KempnerForge, 7 B, hosts of 4 H200", COMPUTE, "kempnerinstitute.github.io/KempnerForge, benchmarks", READ, "micro-batch not stated: one sequence assumed; beyond a host its network is not stated"),
    "azure": Set("DeepSpeed ZeRO-3 on Azure, 1,024 A100", COMPUTE, "DeepSpeed, docs/_posts/2022-07-26-deepspeed-azure.md", READ,
                 "fitted on the smallest model with the conditions of the others; the run's offload of states and activations takes under 2 % of a step and is left out"),
    "fms": Set("fms-fsdp, 128 A100, sharded in a host", COMPUTE, "foundation-model-stack/fms-fsdp, README", READ, "network of 400 Gb/s a host is recalled"),
    "fms_recomputed": Set("fms-fsdp, 128 A100, sharded over all, recomputed", COMPUTE, "the same", READ, "network recalled; efficiency of its own: with that of the rows above it would miss by a fifth"),
    "fsdp": Set("FSDP's paper, GPT 175 B, 128 A100", COMPUTE, "Zhao et al., VLDB 2023", RECALLED, "batches of 2 and 1 sequence of 2,048, 2 Tb/s a host"),
    "zenflow": Set("ZeRO-Offload, 2 A100, 2 EPYC 7742", COMPUTE, "DeepSpeed, blogs/zenflow-corebinding", READ, "the larger model's time on the GPU is the smaller one's 240 ms, by parameters"),
}

# Seen, and not used: what is missing.
UNUSED = (
    ("NCCL all-gather of 8 H100 by shard, 12 to 383 GB/s (pytorch#182850)", "whether the host's time is in it"),
    ("DeepSpeed, all-reduce of a dense 7 B on 1,024 A100, 1.2 to 0.36 s (blogs/comm-opt)", "bucket sizes and network"),
    ("ZeRO-3 Offload, 1 T on 512 V100, 49 TFLOPS (post of 2021-03-08)", "batch, and the hosts' DRAM"),
    ("ZeRO++ on Frontier, 20 B, 1.71 times", "batch, sequence and what was overlapped"),
    ("ZeRO++ on 384 V100", "the paper's table was not at hand"),
    ("SuperOffload on GH200, 4 times ZeRO-Offload", "the paper's table was not at hand"),
    ("prime-rl, 171 B on 8 H200, Adam 12.8 s (prime-rl#3248)", "nothing: it gives the rate of host DRAM, so it is no check"),
    ("NCCL all-reduce of 256 H100, 340 GB/s (nccl#1218)", "which algorithm ran; trees are not modelled"),
)


def _fsdp(model, host, world, tokens, sequence, **more):
    return Job(model, Cluster(host, world), 3, tokens, sequence, 0.5, **more)


def _collective(mebibytes):
    return Cluster(H100, 8), mebibytes * MEBI


def _azure(model, world=1024, tokens=8192, sequence=1024):
    return _fsdp(model, A100, world, tokens, sequence, recompute=True)


def _rows():
    for mebibytes, gather, scatter in ((2, 20.2, 18.6), (8, 43.4, 47.0), (32, 118.9, 112.6), (128, 385.3, None)):
        yield Row("nccl", f"all-gather, {mebibytes} MiB", gather, "µs", _collective(mebibytes), "bus bandwidth of NVLink" if mebibytes == 128 else "")
        if scatter:
            yield Row("nccl", f"reduce-scatter, {mebibytes} MiB", scatter, "µs", _collective(mebibytes))
    yield Row("nccl_hosts", "all-gather, 2 GiB, 256 GPUs", 2048 * MEBI / 200e9 * 255 / 256 * 1e6, "µs", (Cluster(H100, 256), 2048 * MEBI))
    for name, few, many in (("titan_compiled", 6667, 6514), ("titan_eager", 5762, 5605), ("titan_float8", 8532, 8380)):
        for world, rate in ((8, few), (128, many)):
            fits = "efficiency" if world == 8 else "straggling" if name == "titan_compiled" else ""
            yield Row(name, f"{world} GPUs", rate, "tokens/s/GPU", _fsdp(transformers.LLAMA_8B, H100, world, 2 * 8192, 8192), fits)
    for world, rate in ((32, 10938), (64, 10753)):
        yield Row("trainy", f"{world} GPUs", rate, "tokens/s/GPU", _fsdp(transformers.LLAMA_8B, H200, world, 2 * 8192, 8192), "efficiency" if world == 32 else "")
    for world, rate in ((1, 10471), (2, 18728 / 2), (4, 38983 / 4)):
        yield Row("kempner", f"{world} GPU{'s' if world > 1 else ''}", rate, "tokens/s/GPU", _fsdp(transformers.LLAMA_7B, KEMPNER, world, 4096, 4096, recompute=True), "efficiency" if world == 1 else "")
    for model, rate in ((transformers.GPT_530B, 171.37), (transformers.GPT_1T, 165.36), (transformers.GPT_2T, 157)):
        yield Row("azure", f"{model.name}, 8 sequences of 1,024", rate, "TFLOPS/GPU", _azure(model), "efficiency" if model is transformers.GPT_530B else "")
    yield Row("azure", "175 B, 32 sequences of 512, 256 GPUs", 204.49, "TFLOPS/GPU", _azure(transformers.GPT_175B, 256, 32 * 512, 512))
    for model, rate, batch in ((transformers.LLAMA_7B, 3760, 2), (transformers.LLAMA_13B, 1700, 1)):
        yield Row("fms", f"{model.name}, batch {batch}", rate, "tokens/s/GPU", _fsdp(model, VELA, 128, 4096 * batch, 4096, shard=8), "efficiency" if batch == 2 else "")
    for model, rate, batch in ((transformers.LLAMA_34B, 772, 8), (transformers.LLAMA2_70B, 380, 6)):
        yield Row("fms_recomputed", f"{model.name}, batch {batch}", rate, "tokens/s/GPU", _fsdp(model, VELA, 128, 4096 * batch, 4096, recompute=True), "efficiency" if batch == 8 else "")
    for batch, rate in ((2, 186), (1, 173)):
        yield Row("fsdp", f"batch {batch}", rate, "TFLOPS/GPU", _fsdp(transformers.GPT_175B, RESEARCH, 128, 2048 * batch, 2048, recompute=True), "efficiency" if batch == 2 else "")
    yield Row("zenflow", "Qwen2.5 1.5 B", 1365, "ms", {"parameters": 1.54e9, "gpu": 0.240}, "bandwidth of the update on the host")
    yield Row("zenflow", "Qwen2.5 3 B, cores bound", 2497, "ms", {"parameters": 3.09e9, "gpu": 0.240 * 3.09 / 1.54})


ROWS = tuple(_rows())
