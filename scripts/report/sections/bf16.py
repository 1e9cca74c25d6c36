# SPDX-License-Identifier: Apache-2.0
"""The experiment of DeepSpeed's PR #7700: one GPT with float32 and with bfloat16 states, under both libraries."""
import hashlib
import json
import statistics
import sys

from context import EXAMPLES, Missing
from markdown import over_seeds, table, wrapped

TITLE = "Losses with bfloat16 master weights and states"
EXAMPLE = EXAMPLES / "bf16_master"
BOTH, OURS = ("outrigger", "deepspeed"), ("outrigger",)
SHAPE = ("--num_layers", "4", "--hidden_dim", "128", "--num_heads", "4", "--seq_length", "128", "--batch_size", "4")
STEPS, POINTS, JOBS = 1000, 100, 2
NAMES = {"outrigger": "Outrigger", "deepspeed": "DeepSpeed"}
DRAWN = ("baseline", "bf16_full", "stochastic", "split_bf16")
T975 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57}  # Student's t by degrees of freedom, 95 % on both sides
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
    steps = ("--num_steps", "6" if context.short else str(STEPS))
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


def command(figures):
    return f"python bindings/python/examples/bf16_master/experiment.py … -- {' '.join(figures['options'])}"


def groups(figures):
    """(configuration, library) → its complete runs by seed, and the reasons of the others."""
    found = {}
    for run in figures["runs"]:
        good, reasons = found.setdefault((run["configuration"], run["backend"]), ({}, []))
        if "reason" in run:
            reasons.append(run["reason"])
        else:
            good[run["seed"]] = run
    return found


def compared(good, base, key="late"):
    """Mean difference to the baseline with the same seeds, and its standard error; None where there is nothing to compare."""
    pairs = [run[key] - base[seed][key] for seed, run in good.items() if seed in base]
    if not pairs:
        return None
    return statistics.fmean(pairs), statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else None


def difference(good, base):
    found = compared(good, base)
    if found is None:
        return "—"
    mean, error = found
    return f"{mean:+.4f}" + (f" ± {error:.4f}" if error is not None else "")


def lines(figures):
    found = groups(figures)
    first = next(run for run in figures["runs"] if "reason" not in run)
    body = []
    for (name, library), (good, reasons) in found.items():
        count = f"{len(good)}" + (f" of {len(good) + len(reasons)}" if reasons else "")
        if not good:
            body.append([f"`{name}`", NAMES[library], "0", f"not measured: {reasons[0]}", *[""] * 5])
            continue
        base = found.get(("baseline", library), ({}, []))[0]
        engine = next(iter(good.values())).get("engine_bytes_per_parameter")
        body.append([f"`{name}`", NAMES[library], count, *(over_seeds([run[key] for run in good.values()]) for key in ("final", "late", "mean", "std")),
                     "" if name == "baseline" else difference(good, base), f"{engine:.2f}" if engine else "—"])
    said = [
        wrapped(f"[The example](../bindings/python/examples/bf16_master/README.md): a GPT of {first['parameters']:,} parameters on the bytes of Shakespeare's works, {first['steps']:,} steps, one process "
                f"and one thread, {figures['jobs']} runs side by side. The same script, first weights and batches under both libraries. Values are means over seeds ± their standard deviation; the difference "
                "is to the same library's baseline with the same seeds, of the last tenth's mean, ± its standard error."), ""]
    if any(run.get("curve") for run in figures["runs"]):
        said += ["![Losses of both libraries with float32 and bfloat16 states](report/bf16.svg)", ""]
    said += table(["configuration", "library", "seeds", "final loss", "mean of the last tenth", "mean loss", "std of the loss", "difference to the baseline", "the engine's bytes a parameter"], body)
    return [*said, *verdicts(found), *between(figures), *published(found)]


def verdicts(found):
    """What the figures say, for worse and for better."""
    said = []
    base, _ = found.get(("baseline", "outrigger"), ({}, []))
    noise = statistics.stdev([run["late"] for run in base.values()]) if len(base) > 1 else None
    for (name, library), (good, _) in found.items():
        pair = compared(good, found.get(("baseline", library), ({}, []))[0])
        if name == "baseline" or pair is None or pair[1] is None or noise is None:
            continue
        mean, error = pair
        said.append(wrapped(f"- `{name}`, {NAMES[library]}: {abs(mean):.4f} {'above' if mean > 0 else 'below'} its baseline, {abs(mean) / noise:.2f} of σ = {noise:.4f}, the standard deviation of Outrigger's baseline over seeds"
                            f"{', more than chance' if abs(mean) > T975.get(len(good) - 1, 1.96) * error else ', which chance may be'}."))
    return [*said, ""] if said else []


def between(figures):
    if not figures["differences"]:
        return []
    rows = [[f"`{each['configuration']}`", each["seed"], each["steps"], f"{each['first']:.1e}", f"{each['mean']:.1e}", f"{each['largest']:.1e}"] for each in figures["differences"]]
    return ["How far DeepSpeed's loss is from Outrigger's, relative, step by step:", "", *table(["configuration", "seed", "steps", "first step", "mean", "largest"], rows)]


def published(found):
    base, full = (found.get((name, "outrigger"), ({}, []))[0] for name in ("baseline", "bf16_full"))
    if not base or not full:
        return []
    final, mean = (statistics.fmean(run[key] for run in full.values()) - statistics.fmean(run[key] for run in base.values()) for key in ("final", "mean"))
    return [wrapped(f"Published, from one run of each: final loss 3.09 and 3.12 (+0.03), mean loss 2.78 and 2.90 (+0.12). Here: {final:+.4f} and {mean:+.4f} over {len(full)} seed(s). The model, the text and so the "
                    "losses themselves are others; the differences between configurations are what can be compared."), ""]


def draw(figures, folder):
    import pictures
    chosen = {(name, library): {seed: run["curve"] for seed, run in good.items()} for (name, library), (good, _) in groups(figures).items() if good}
    pictures.losses({f"{name}, {NAMES[library]}": curves for (name, library), curves in chosen.items() if name in DRAWN}, steps_of(figures), folder / "bf16.svg")


def steps_of(figures):
    return next(run["steps"] for run in figures["runs"] if "reason" not in run)
