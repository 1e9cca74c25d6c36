# SPDX-License-Identifier: Apache-2.0
"""The experiment of DeepSpeed's PR #7700: one GPT with float32 and with bfloat16 states, under both libraries."""
import hashlib
import json
import statistics
import sys

from context import EXAMPLES, Missing

TITLE = "Losses with bfloat16 master weights and states"
EXAMPLE = EXAMPLES / "bf16_master"
BOTH, OURS = ("outrigger", "deepspeed"), ("outrigger",)
SHAPE = ("--num_layers", "4", "--hidden_dim", "128", "--num_heads", "4", "--seq_length", "128", "--batch_size", "4")
STEPS, POINTS, JOBS = 1000, 100, 2
# The most important first: what no time is left for says so.
GROUPS = (
    (("baseline", "bf16_full"), (1, 2, 3), BOTH),
    (("stochastic", "split_bf16"), (1, 2, 3), OURS),
    (("bf16_offload_stage3",), (1, 2, 3), BOTH),
    (("split_8bit", "bf16_8bit", "split"), (1,), OURS),
    (("bf16_master_offload_stage3", "bf16_stage1_autocast", "bf16_stage2_autocast", "fp32_stage1", "fp32_stage2"), (1,), BOTH),
)
SHORT = ((("baseline", "bf16_full"), (1,), BOTH),)
KEPT = ("configuration", "seed", "backend", "library", "torch", "parameters", "steps", "threads", "final", "late", "mean", "std", "step_seconds",
        "resident_gb", "peak_gb", "engine_bytes_per_parameter", "reason")


def options_of(context):
    steps = ("--num_steps", "20" if context.short else str(STEPS))
    text = () if context.short else ("--use_real_data",)
    return [*SHAPE, *steps, *text, "--threads", "1", "--float32_products"]


def measure(context):
    options = options_of(context)
    folder = context.work / f"bf16-{hashlib.sha256(' '.join(options).encode()).hexdigest()[:8]}"
    runs, differences = [], []
    try:
        for configurations, seeds, backends in SHORT if context.short else GROUPS:
            print(f"report: bf16: {', '.join(configurations)}, seeds {', '.join(map(str, seeds))}, {', '.join(backends)}", flush=True)
            try:
                _experiment(context, folder, configurations, seeds, backends, options)
            finally:
                _collect(folder, configurations, seeds, runs, differences)
    except KeyboardInterrupt:
        if not any("reason" not in run for run in runs):
            raise
        print("report: bf16: stopped; what is complete is kept", flush=True)
        context.stopped = True
    if not any("reason" not in run for run in runs):
        raise Missing(runs[0]["reason"] if runs else "no run is complete")
    return {"options": options, "jobs": JOBS, "runs": runs, "differences": differences}


def _experiment(context, folder, configurations, seeds, backends, options):
    context.run([sys.executable, EXAMPLE / "experiment.py", "--output", folder, "--configurations", *configurations, "--seeds", *seeds,
                 "--backends", *backends, "--deepspeed_python", context.peer_python, "--jobs", JOBS, "--minutes", f"{context.minutes_left():.2f}",
                 "--", *options], log=f"{folder.name}.log", timeout=6 * 3600, check=False)


def _collect(folder, configurations, seeds, runs, differences):
    """Adds what the experiment wrote of this group; results.json there is of its last call."""
    path = folder / "results.json"
    if not path.is_file():
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    for run in found["runs"]:
        if run["configuration"] in configurations and run["seed"] in seeds:
            kept = {key: run[key] for key in KEPT if run.get(key) is not None}
            if "reason" not in run:
                kept["curve"] = curve(folder / run["csv"])
            runs.append(kept)
    differences += [each for each in found["differences"] if each["configuration"] in configurations]


def curve(path):
    """Mean losses of at most POINTS parts of the run."""
    losses = [float(line.split(",")[1]) for line in path.read_text(encoding="ascii").splitlines()[1:]]
    size = max(1, len(losses) // POINTS)
    return [round(statistics.fmean(losses[first:first + size]), 5) for first in range(0, len(losses), size)]


def lines(figures):
    return ["(table follows)"]
