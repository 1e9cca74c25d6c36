# SPDX-License-Identifier: Apache-2.0
"""Disaggregated multimodal training: two groups of Ray actors beside both models in one process. DeepSpeed's post shows the pattern."""
import importlib.util
import json

from context import EXAMPLES, Missing
from markdown import spread, table, wrapped

TITLE = "Disaggregated multimodal training on Ray"
TRAIN = EXAMPLES / "multimodal/train.py"
# Name → options of train.py. A rank is killed in the second, and replaced.
RUNS = {"overlapped": (), "a rank killed": ("--kill", "vision:1:150"), "in turns": ("--ahead", "1", "--steps", "60")}
SHORT = {"overlapped": ("--steps", "4")}
PHASES = ("vision forward", "vision backward", "language", "transfer", "waiting", "step")


def measure(context):
    absent = [name for name in ("ray", "sklearn", "torch") if importlib.util.find_spec(name) is None]
    if absent:
        raise Missing(f"this Python has no {' and no '.join(absent)}")
    runs = {}
    for name, options in (SHORT if context.short else RUNS).items():
        print(f"report: multimodal: {name}", flush=True)
        summary = context.work / f"multimodal-{name.replace(' ', '-')}.json"
        summary.unlink(missing_ok=True)
        try:
            context.python(TRAIN, *options, "--summary", summary, log=f"{summary.stem}.log", timeout=1800)
        except Missing as reason:
            runs[name] = {"options": options, "missing": str(reason)}
            continue
        found = json.loads(summary.read_text(encoding="utf-8"))
        losses = found.pop("losses")
        runs[name] = {**found, "options": options, "steps": len(losses), "first_loss": losses[0], "last_loss": losses[-1]}
    if all("missing" in run for run in runs.values()):
        raise Missing(next(iter(runs.values()))["missing"])
    return {"runs": runs}


def command(_figures):
    return "python bindings/python/examples/multimodal/train.py"


def lines(figures):
    runs = figures["runs"]
    good = {name: run for name, run in runs.items() if "missing" not in run}
    first = next(iter(good.values()))
    settings = first["settings"]
    parts = ", ".join(f"{settings[group]['ranks']} {group} rank(s) in {settings[group]['precision']} at stage {settings[group]['stage']}"
                      for group in ("vision", "language"))
    said = [wrapped(f"[The example](../bindings/python/examples/multimodal/README.md): {parts}, {settings['micro_batches']} micro-batches of {settings['strips']} strips. "
                    "The vision group begins the next micro-batch while the language group reads this one (overlapped), or waits (in turns). DeepSpeed's post describes "
                    "this pattern with code for two groups of actors, and publishes no figures for it."), "",
            *table(["run", "options", "steps", "seconds", "loss, first and last step", "digits read right", "strips read right"], [
                [name, f"`{' '.join(run['options'])}`" if run["options"] else "none", *outcome(run)] for name, run in runs.items()]),
            "Milliseconds of a step, over the steps after the training; a range is over the ranks of a group:", "",
            *table(["", *good, "both models in one process"], [[phase, *(phase_of(run, phase) for run in good.values()),
                                                                milliseconds(first["times"]["colocated"]["phases"].get(phase))] for phase in PHASES]
                   + [["**whole step**", *(milliseconds(run["times"]["step"]) for run in good.values()), milliseconds(first["times"]["colocated"]["step"])]])]
    ratio = first["times"]["step"] / first["times"]["colocated"]["step"]
    said.append(wrapped(f"On this machine a step of the groups takes {ratio:.1f} times as long as one of both models in one process: {settings['vision']['ranks'] + settings['language']['ranks']} "
                        f"processes share {figures['machine']['cores']} cores, and messages are copied. What the pattern is for, models that do not fit together, is not shown by these small ones."))
    return [*said, ""]


def outcome(run):
    if "missing" in run:
        return [f"not measured: {run['missing']}", "", "", "", ""]
    return [f"{run['steps']}", f"{run['seconds']:.0f}", f"{run['first_loss']:.3f}, {run['last_loss']:.3f}", f"{run['digits_right']:.1%}", f"{run['strips_right']:.1%}"]


def milliseconds(seconds):
    return "—" if seconds is None else f"{1e3 * seconds:.1f}"


def phase_of(run, phase):
    """Of the group that has it; of both, where both wait or send."""
    groups = {}
    for rank in run["times"]["ranks"]:
        if phase in rank["phases"]:
            groups.setdefault(rank["group"], []).append(1e3 * rank["phases"][phase])
    several = len(groups) > 1
    return "; ".join(f"{group + ' ' if several else ''}{spread(values)}" for group, values in groups.items()) or "—"
