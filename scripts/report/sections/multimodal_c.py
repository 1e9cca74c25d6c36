# SPDX-License-Identifier: Apache-2.0
"""The same training in C: processes instead of actors, messages in shared memory."""
import re

from context import Missing
from markdown import spread, table, wrapped

TITLE = "Disaggregated multimodal training in C"
RANKS = 3
RUNS = {"overlapped": (RANKS, ()), "in turns": (RANKS, ("--ahead", "1")), "both models in one process": (1, ("--colocated",)),
        "both models in two processes": (2, ("--colocated",))}
SHORT = {name: (ranks, (*options, "--steps", "20")) for name, (ranks, options) in RUNS.items() if name != "in turns"}
STEP = re.compile(r"^(\d+) steps in ([\d.]+) s: ([\d.]+) ms a step$", re.M)
RANK = re.compile(r"^  (?:(vision|language) )?rank (\d+), ms: (.*)$", re.M)
RIGHT = re.compile(r"^of (\d+) digits that were held out it reads ([\d.]+) % right$", re.M)


def measure(context):
    program = context.build / "c_api/examples/multimodal"
    if not program.is_file():
        raise Missing("the program c_api/examples/multimodal is not built")
    launcher = context.build / "c_api/tools/outrigger"
    runs = {}
    for name, (ranks, options) in (SHORT if context.short else RUNS).items():
        print(f"report: multimodal_c: {name}", flush=True)
        words = [program, *options] if ranks == 1 else [launcher, "run", "-n", ranks, "--", program, *options]
        try:
            runs[name] = {"ranks": ranks, "options": options, **parsed(context.run(words, f"multimodal_c-{name.replace(' ', '-')}.log", timeout=900))}
        except Missing as reason:
            runs[name] = {"ranks": ranks, "options": options, "missing": str(reason)}
    if all("missing" in run for run in runs.values()):
        raise Missing(next(iter(runs.values()))["missing"])
    return {"runs": runs}


def parsed(text):
    step, right = STEP.search(text), RIGHT.search(text)
    if not step:
        raise Missing("the program's output has no line of its steps")
    ranks = [{"group": group or "both", "rank": int(rank), "milliseconds": {name: float(value) for name, value in re.findall(r"(\w+) ([\d.]+)", phases)}}
             for group, rank, phases in RANK.findall(text)]
    return {"steps": int(step[1]), "seconds": float(step[2]), "step_milliseconds": float(step[3]), "times": ranks,
            **({"digits": int(right[1]), "right": float(right[2])} if right else {})}


def command(_figures):
    return f"outrigger run -n {RANKS} -- build/release/c_api/examples/multimodal"


def lines(figures):
    runs = figures["runs"]
    good = {name: run for name, run in runs.items() if "missing" not in run}
    said = [wrapped("[The program](../c_api/examples/multimodal) has hand-written models and no framework: an encoder and a decoder, each with a group of processes."), "",
            *table(["run", "processes", "options", "steps", "ms a step", "digits read right"], [
                [name, f"{run['ranks']}", f"`{' '.join(run['options'])}`" if run["options"] else "none", *outcome(run)] for name, run in runs.items()])]
    phases = list(dict.fromkeys(phase for run in good.values() for rank in run["times"] for phase in rank["milliseconds"]))
    if phases:
        said += ["Milliseconds of a step:", "", *table(["", *good], [[phase, *(phase_of(run, phase) for run in good.values())] for phase in phases])]
    return said


def outcome(run):
    if "missing" in run:
        return [f"not measured: {run['missing']}", "", ""]
    return [f"{run['steps']}", f"{run['step_milliseconds']:.2f}", f"{run['right']:.1f} %" if "right" in run else "—"]


def phase_of(run, phase):
    groups = {}
    for rank in run["times"]:
        if phase in rank["milliseconds"]:
            groups.setdefault(rank["group"], []).append(rank["milliseconds"][phase])
    return "; ".join(f"{group + ' ' if len(groups) > 1 else ''}{spread(values)}" for group, values in groups.items()) or "—"
