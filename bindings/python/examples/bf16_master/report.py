# SPDX-License-Identifier: Apache-2.0
"""results.json and results.md of experiment.py."""
import json
import statistics

import configurations
import losses

NAMES = {"outrigger": "Outrigger", "deepspeed": "DeepSpeed"}
COLUMNS = (("final loss", "final", "{:.4f}"), ("mean of the last tenth", "late", "{:.4f}"), ("mean loss", "mean", "{:.4f}"), ("std", "std", "{:.4f}"),
           ("resident, GB", "resident_gb", "{:.3f}"), ("peak, GB", "peak_gb", "{:.3f}"), ("peak, bytes/parameter", "peak_bytes_per_parameter", "{:.1f}"),
           ("of it the engine's", "engine_bytes_per_parameter", "{:.2f}"), ("step, s", "step_seconds", "{:.4f}"))


def _cell(runs, key, form):
    """The mean over seeds, and ± their standard deviation."""
    values = [run[key] for run in runs if run.get(key) is not None]
    if not values:
        return "—"
    mean = form.format(statistics.fmean(values))
    return f"{mean} ± {form.format(statistics.stdev(values))}" if len(values) > 1 else mean


def _groups(runs):
    """(configuration, library) → its runs, in the order of the first of each."""
    groups = {}
    for run in runs:
        groups.setdefault((run["configuration"], run["backend"]), []).append(run)
    return groups


def _rows(runs):
    for (configuration, library), group in _groups(runs).items():
        measured = [run for run in group if "reason" not in run]
        title = f"{configuration}: {configurations.title(configuration)}"
        if measured:
            cells = [_cell(measured, key, form) for _, key, form in COLUMNS]
            count = f"{len(measured)}" + (f" of {len(group)}" if len(measured) < len(group) else "")
            yield f"| {title} | {measured[0]['library']} | {count} | {' | '.join(cells)} |"
        else:
            yield f"| {title} | {NAMES[library]} | 0 | not measured: {group[0]['reason'].replace('|', '/')} |{' |' * (len(COLUMNS) - 1)}"


def differences(folder, runs):
    """Of each configuration and seed that both libraries ran: how far DeepSpeed's losses are from Outrigger's, step by step."""
    measured = {(run["configuration"], run["seed"], run["backend"]): run for run in runs if "reason" not in run}
    found = []
    for configuration, seed in dict.fromkeys((run["configuration"], run["seed"]) for run in runs):
        pair = [measured.get((configuration, seed, library)) for library in ("outrigger", "deepspeed")]
        if None in pair:
            continue
        ours, theirs = (losses.read(folder / run["csv"]) for run in pair)
        relative = [abs(a - b) / abs(a) for a, b in zip(ours, theirs, strict=True)]
        found.append({"configuration": configuration, "seed": seed, "steps": len(relative), "first": relative[0], "largest": max(relative),
                      "mean": statistics.fmean(relative)})
    return found


def text(folder, machine, options, runs):
    measured = [run for run in runs if "reason" not in run]
    lines = [f"{machine['processor']}, {machine['cores']} cores; {options['workers']} process(es); train.py {' '.join(options['train'])}", ""]
    if measured:
        first = measured[0]
        lines += [f"{first['parameters']} parameters, {first['steps']} steps, {first['threads']} thread(s) in each process, PyTorch {first['torch']}.", ""]
    heads = ["configuration", "library", "seeds", *(head for head, _, _ in COLUMNS)]
    lines += [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *_rows(runs)]
    compared = differences(folder, runs)
    if compared:
        lines += ["", "Relative differences of the loss between the libraries, step by step:", "",
                  "| configuration | seed | steps | first step | mean | largest |", "|---|---|---|---|---|---|"]
        lines += [f"| {each['configuration']} | {each['seed']} | {each['steps']} | {each['first']:.1e} | {each['mean']:.1e} | {each['largest']:.1e} |"
                  for each in compared]
    return "\n".join(lines) + "\n"


def write(folder, machine, options, runs):
    content = {"machine": machine, "options": options, "runs": runs, "differences": differences(folder, runs)}
    (folder / "results.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    (folder / "results.md").write_text(text(folder, machine, options, runs), encoding="utf-8")
