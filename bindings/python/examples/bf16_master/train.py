# SPDX-License-Identifier: Apache-2.0
"""Trains a GPT with DeepSpeed's interface, under Outrigger or under DeepSpeed itself, and writes the loss of each step.

    python train.py --deepspeed_config configs/bf16_full.json --loss_log_file logs/bf16_full.csv
    outrigger run -n 2 -- python train.py --deepspeed_config configs/baseline.json --use_real_data
"""
import argparse
import csv
import json
import math
import os
import sys
import time
from pathlib import Path

import backend
import configurations
import losses
import memory


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def arguments():
    """The options and the configuration, checked as far as that can be done without PyTorch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deepspeed_config", metavar="FILE", required=True, help="a JSON file, or a name that configurations.py lists")
    parser.add_argument("--num_layers", type=positive, default=4)
    parser.add_argument("--hidden_dim", type=positive, default=256)
    parser.add_argument("--num_heads", type=positive, default=4)
    parser.add_argument("--seq_length", type=positive, default=128, help="tokens that a row predicts")
    parser.add_argument("--batch_size", type=positive, default=4, help="rows of a rank and micro-batch")
    parser.add_argument("--num_steps", type=positive, default=100, help="updates")
    parser.add_argument("--activation_checkpointing", action="store_true", help="compute a block again in the backward")
    parser.add_argument("--loss_log_file", metavar="CSV", type=Path)
    parser.add_argument("--use_real_data", action="store_true", help="bytes of a text, instead of a little language")
    parser.add_argument("--text", metavar="FILE", type=Path, help="of --use_real_data; default: Shakespeare's works, fetched once")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--backend", choices=backend.BACKENDS, default="outrigger")
    parser.add_argument("--threads", type=positive, help="of PyTorch, in each process")
    parser.add_argument("--float32_products", action="store_true",
                        help="multiply matrices in float32 and round once: quicker on a CPU without bfloat16 instructions")
    parser.add_argument("--summary_file", metavar="JSON", type=Path)
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # of DeepSpeed's launcher
    options = parser.parse_args()
    if options.hidden_dim % options.num_heads:
        parser.error(f"--hidden_dim {options.hidden_dim} is not divisible by --num_heads {options.num_heads}")
    if options.text and not options.use_real_data:
        parser.error("--text has no effect without --use_real_data")
    if options.text and not options.text.is_file():
        parser.error(f"--text {options.text}: there is no such file")
    try:
        config = configurations.read(options.deepspeed_config)
    except configurations.ConfigurationError as error:
        parser.error(str(error))
    if options.backend == "deepspeed" and configurations.outrigger_alone(config):
        parser.error(f"{options.deepspeed_config} has a section \"outrigger\", which DeepSpeed would ignore: the run would be another one")
    config["train_micro_batch_size_per_gpu"] = options.batch_size
    config.pop("train_batch_size", None)  # follows from the number of ranks
    return options, config


class Log:
    """Of rank 0: the file of losses, a line after each step."""

    def __init__(self, path):
        self.file = None
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = path.open("w", newline="", encoding="utf-8")
            self.writer = csv.writer(self.file, lineterminator="\n")
            self.writer.writerow(losses.COLUMNS)

    def write(self, step, loss, seconds):
        if self.file:
            self.writer.writerow([step, f"{loss:.9g}", f"{seconds:.6f}", *memory.resident_and_peak()])
            self.file.flush()


def autocast(config):
    import torch
    section = config.get("torch_autocast") or {}
    dtype = getattr(torch, str(section.get("dtype") or "bfloat16").removeprefix("torch."))
    return torch.autocast("cpu", dtype=dtype, enabled=bool(section.get("enabled")))


def train(engine, batches, config, options, log):
    """Returns losses, means over the ranks, and seconds of the steps."""
    import torch
    found, times = [], []
    accumulation, world = engine.gradient_accumulation_steps(), torch.distributed.get_world_size()
    for step in range(options.num_steps):
        begin = time.perf_counter()
        total = torch.zeros((), dtype=torch.float64)
        for micro in range(accumulation):
            with autocast(config):
                loss = engine(batches(step, micro))
            engine.backward(loss)
            engine.step()
            total += loss.detach().double()
        torch.distributed.all_reduce(total)
        found.append(total.item() / accumulation / world)
        times.append(time.perf_counter() - begin)
        log.write(step, found[-1], times[-1])
        if not math.isfinite(found[-1]):
            sys.exit(f"train.py: the loss of step {step} is {found[-1]}")
    return found, times


def summarize(found, times, parameters, before):
    """before: bytes resident before there was a model; what came since is divided by the parameters, too."""
    resident, peak = memory.resident_and_peak()
    later = times[1:] or times  # the first step also allocates
    return {**losses.summary(found), "steps": len(found), "parameters": parameters, "step_seconds": sum(later) / len(later),
            "resident_bytes": resident, "peak_bytes": peak, "resident_gb": resident / 1e9, "peak_gb": peak / 1e9,
            "resident_bytes_per_parameter": (resident - before) / parameters, "peak_bytes_per_parameter": (peak - before) / parameters}


def line(facts):
    engine = facts["engine_bytes_per_parameter"]
    return (f"summary: {facts['library']}, {facts['configuration']}, {facts['world']} rank(s), {facts['parameters']} parameters, "
            f"{facts['steps']} steps: loss final {facts['final']:.4f}, mean {facts['mean']:.4f}, std {facts['std']:.4f}; memory of rank 0: resident "
            f"{facts['resident_gb']:.3f} GB ({facts['resident_bytes_per_parameter']:.1f} bytes/parameter), peak {facts['peak_gb']:.3f} GB "
            f"({facts['peak_bytes_per_parameter']:.1f})" + (f", of it the engine's {engine:.2f} bytes/parameter" if engine else "")
            + f"; step {facts['step_seconds']:.4f} s")


def run(options, config):
    library = backend.load(options.backend)
    import data
    import model as gpt
    import torch
    if options.threads:
        torch.set_num_threads(options.threads)
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    try:
        text = read_text(options, rank) if options.use_real_data else None
    except data.TextError as error:
        sys.exit(f"train.py: {error}")
    before, _ = memory.resident_and_peak()
    model = gpt.initialize(gpt.GPT(data.VOCABULARY, options.num_layers, options.hidden_dim, options.num_heads, options.seq_length,
                                   options.activation_checkpointing), options.seed)
    if options.float32_products:
        gpt.widen(model)
    parameters = sum(each.numel() for each in model.parameters())
    try:
        engine, *_ = library.initialize(model=model, model_parameters=model.parameters(), config=config)
    except library.DeepSpeedConfigError as error:
        sys.exit(f"train.py: {options.deepspeed_config}: {error}")
    engine.train()
    memory.reset_peak()  # the peak is that of training
    log = Log(options.loss_log_file if rank == 0 else None)
    batches = data.Batches(text, options.batch_size, options.seq_length, options.seed, rank, world)
    facts = summarize(*train(engine, batches, config, options, log), parameters, before)
    ledger = engine.memory() if options.backend == "outrigger" else None
    facts.update(library=backend.version(library, options.backend), backend=options.backend, configuration=Path(options.deepspeed_config).stem,
                 world=world, seed=options.seed, threads=torch.get_num_threads(), torch=torch.__version__,
                 engine_bytes_per_parameter=ledger[-1][1] / parameters if ledger else None)
    if rank == 0:
        print(line(facts), flush=True)
        if options.summary_file:
            write_summary(options.summary_file, facts)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def read_text(options, rank):
    import data
    import torch
    if not options.text and rank == 0:
        data.plays()
    torch.distributed.barrier()  # one rank fetches, all read
    return data.read_text(options.text or data.plays(), options.seq_length)


def write_summary(path, facts):
    """The whole file or none of it: who finds it knows that the run is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(path)


def main():
    options, config = arguments()
    try:
        run(options, config)
    except backend.BackendMissing as error:
        sys.exit(f"train.py: {error}")


if __name__ == "__main__":
    main()
