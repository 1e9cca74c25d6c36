# SPDX-License-Identifier: Apache-2.0
"""Step times of the bfloat16 experiment, in short interleaved runs: those of the long runs lie beside each other and say little."""
import csv
import random
import statistics
import sys

from context import Missing
from markdown import table, wrapped

from . import bf16

TITLE = "Step times of that experiment"
SIDES = (("baseline", "outrigger"), ("bf16_full", "outrigger"), ("stochastic", "outrigger"), ("split_bf16", "outrigger"), ("baseline", "deepspeed"),
         ("bf16_full", "deepspeed"))
ROUNDS, STEPS, WARM_UP = 5, 20, 5


def measure(context):
    sides = [side for side in SIDES if side[1] == "outrigger" or not context.peer_missing]
    rounds, steps = (1, 7) if context.short else (ROUNDS, STEPS)
    options = [*bf16.SHAPE, "--num_steps", steps, "--threads", "1", "--float32_products", "--seed", "1"]
    seconds, reasons = {side: [] for side in sides}, {}
    for number in range(rounds):
        print(f"report: step_times: round {number + 1} of {rounds}", flush=True)
        for side in random.sample([each for each in sides if each not in reasons], len(sides) - len(reasons)):
            try:
                seconds[side].append(one(context, side, options))
            except Missing as reason:
                reasons[side] = str(reason)
        if context.minutes_left() == 0:
            break
    if not any(seconds.values()):
        raise Missing(next(iter(reasons.values())))
    return {"options": [str(word) for word in options], "warm_up": WARM_UP, "peer_missing": context.peer_missing,
            "rows": [{"configuration": name, "backend": library, "seconds": seconds[name, library], **({"reason": reasons[name, library]} if (name, library) in reasons else {})}
                     for name, library in sides]}


def one(context, side, options):
    """The median step of a process, which has one core of its own."""
    name, library = side
    log = context.work / f"step_times-{name}-{library}.csv"
    log.unlink(missing_ok=True)
    python = sys.executable if library == "outrigger" else context.peer_python
    context.run(["taskset", "--cpu-list", "0", python, bf16.EXAMPLE / "train.py", "--deepspeed_config", name, "--backend", library, "--loss_log_file", log, *options],
                f"{log.stem}.log", timeout=600)
    with log.open(newline="", encoding="utf-8") as file:
        return statistics.median(float(row["seconds"]) for row in list(csv.DictReader(file))[WARM_UP:])


def command(_figures):
    return "make report SECTIONS=step_times"


def medians(figures):
    return {(row["configuration"], row["backend"]): statistics.median(row["seconds"]) for row in figures["rows"] if row["seconds"]}


def ratio(figures, library):
    """bf16_full over baseline; None: not both are measured."""
    found = medians(figures)
    pair = found.get(("bf16_full", library)), found.get(("baseline", library))
    return pair[0] / pair[1] if None not in pair else None


def lines(figures):
    found, body = medians(figures), []
    for row in figures["rows"]:
        key = row["configuration"], row["backend"]
        first, ours = found.get(("baseline", row["backend"])), found.get((row["configuration"], "outrigger"))
        body.append([f"`{row['configuration']}`", bf16.NAMES[row["backend"]], *([f"not measured: {row['reason']}", "", "", ""] if key not in found else [
            f"{1e3 * found[key]:.1f}", f"{1e3 * min(row['seconds']):.1f} to {1e3 * max(row['seconds']):.1f}", f"{found[key] / first:.3f}" if first else "—",
            f"{found[key] / ours:.2f}" if row["backend"] == "deepspeed" and ours else ""])])
    count = max(len(row["seconds"]) for row in figures["rows"])
    said = [wrapped(f"The same model, one thread and one core for each process, {count} round(s) in which all sides run in a random order. A round's figure is the median of the steps after the first "
                    f"{figures['warm_up']}."), "",
            *table(["configuration", "library", "ms a step", "of the rounds", "over the library's baseline", "over Outrigger's"], body)]
    if figures["peer_missing"]:
        said += [f"DeepSpeed is not measured: {figures['peer_missing']}.", ""]
    return said
