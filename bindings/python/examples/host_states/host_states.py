# SPDX-License-Identifier: Apache-2.0
"""What optimizer states on the host take: DeepSpeed's PR #8010, ten bytes a parameter made six, measured in resident memory.

    python host_states.py
    python host_states.py --parameters 100000000 --forms bf16_float32 bf16_bf16 --deepspeed_python PYTHON --output results.json

Each measurement is a process of its own. Memory: what it grows by, as the kernel counts its pages, beside the library's ledger and its
estimate. Update: how far the weights are from float64's after steps with factors and clipping, and the bound of that. Seconds: of the update.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

from configurations import FORMS, LIBRARIES, sides

CHILD = Path(__file__).resolve().with_name("child.py")
LARGEST, BYTES = 1_000_000_000, 18  # parameters at most; bytes a parameter of the largest form, gradients included
TARGET = 25.2e9  # parameters of the model that PR #8010 names
WHAT = ("memory", "update", "seconds")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, help="of which the memory is measured; default: what --share has room for")
    parser.add_argument("--share", type=float, default=0.5, help=f"of the memory that is free, for the largest form; at most {LARGEST} parameters")
    parser.add_argument("--update_parameters", type=int, default=1_000_000)
    parser.add_argument("--timed_parameters", type=int, default=1 << 24)
    parser.add_argument("--rounds", type=int, default=3, help="of the timing; in each, all sides in a random order")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), metavar="FORM", help=f"of {', '.join(FORMS)}")
    parser.add_argument("--only", nargs="+", choices=WHAT, default=WHAT, metavar="WHAT", help=f"of {', '.join(WHAT)}")
    parser.add_argument("--deepspeed_python", default=os.environ.get("OTR_DEEPSPEED_PYTHON"),
                        help="a Python that has DeepSpeed, to measure its CPUAdam, too; default: OTR_DEEPSPEED_PYTHON")
    parser.add_argument("--output", type=Path, metavar="JSON")
    options = parser.parse_args()
    for name in ("parameters", "update_parameters", "timed_parameters", "rounds", "threads"):
        if (value := getattr(options, name)) is not None and value < 1:
            parser.error(f"--{name} {value} is not a positive number")
    if not 0 < options.share <= 0.9:
        parser.error(f"--share {options.share} is not above 0 and at most 0.9")
    options.available = available_bytes()
    options.parameters = options.parameters or min(LARGEST, int(options.share * options.available / BYTES))
    if options.parameters * BYTES > options.available:
        parser.error(f"--parameters {options.parameters} would take {options.parameters * BYTES / 1e9:.1f} GB; {options.available / 1e9:.1f} GB are free")
    return options


def available_bytes():
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    limit, used = (Path(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit.is_file() and (text := limit.read_text(encoding="ascii").strip()).isdigit():
        free = min(free, max(0, int(text) - int(used.read_text(encoding="ascii"))))
    return free


def child(options, what, name, library, count):
    """The measurement, or {"reason": why there is none}."""
    python = options.deepspeed_python if library == "deepspeed" else sys.executable
    try:
        done = subprocess.run([python, str(CHILD), what, name, library, str(count), str(options.threads)], capture_output=True, text=True,
                              check=False, timeout=900)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"reason": f"{Path(python).name}: {error}"[:300]}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"reason": f"exit code {done.returncode}: {last}"[:300]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def with_bytes(row, count):
    """Adds bytes a parameter: what the process grew by, and of it the states, without gradients."""
    if "ledger" in row:
        states = ("published parameters", "master weights", "exp_avg", "exp_avg_sq")
        gradients = sum(held for purpose, held in row["ledger"].items() if purpose != "total" and purpose not in states)
        row["of_ledger"] = sum(row["ledger"][purpose] for purpose in states) / count
        row["ledger_total"], row["estimate_total"] = (row[kind]["total"] / count for kind in ("ledger", "estimate"))
    elif "after_steps" in row:
        gradients = row["after_backward"] - row["after_start"]
    else:
        return row
    row["grown"], row["states"] = row["after_steps"] / count, (row["after_steps"] - gradients) / count
    return row


def measure(options):
    chosen = sides(options.forms, options.deepspeed_python)
    found = {"parameters": options.parameters, "available_bytes": options.available, "threads": options.threads, "target": TARGET,
             "timed_parameters": options.timed_parameters, "update_parameters": options.update_parameters, "rounds": options.rounds}
    if "memory" in options.only:
        found["memory"] = []
        for name, library in chosen:
            say("memory", name, library)
            found["memory"].append({"form": name, "side": library, **with_bytes(child(options, "memory", name, library, options.parameters), options.parameters)})
    if "update" in options.only:
        found["update"] = []
        for name, library in chosen:
            say("update", name, library)
            found["update"].append({"form": name, "side": library, **child(options, "update", name, library, options.update_parameters)})
    if "seconds" in options.only:
        found["seconds"] = times(options, chosen)
    return found


def times(options, chosen):
    rounds = {side: [] for side in chosen}
    for number in range(options.rounds):
        say("seconds", f"round {number + 1} of {options.rounds}", "")
        for side in random.sample(chosen, len(chosen)):
            rounds[side].append(child(options, "seconds", *side, options.timed_parameters))
    rows = []
    for (name, library), runs in rounds.items():
        good = [run["seconds"] / options.timed_parameters * 1e9 for run in runs if "reason" not in run]
        row = {"form": name, "side": library}
        rows.append({**row, "nanoseconds": statistics.median(good), "of_rounds": good} if good else {**row, **runs[0]})
    return rows


def say(*words):
    print("host_states:", *words, "…", flush=True)


def tables(found):
    """Markdown."""
    lines = []
    if "memory" in found:
        lines += [f"{found['parameters']:,} parameters:", "", "| states | library | states, bytes/parameter | of the ledger | with gradients | ledger | estimate | "
                  f"{found['target'] / 1e9:g} billion, GB |", "|---|---|---|---|---|---|---|---|"]
        for row in found["memory"]:
            cells = [f"{row[key]:.3f}" if key in row else "—" for key in ("states", "of_ledger", "grown", "ledger_total", "estimate_total")]
            cells.append(f"{row['states'] * found['target'] / 1e9:.0f}" if "states" in row else "—")
            lines.append(line(row, cells))
    if "update" in found:
        lines += ["", "| states | library | weights moved | furthest from float64 | largest share of the bound | factor left out: share |", "|---|---|---|---|---|---|"]
        for row in found["update"]:
            cells = [f"{row[key]:.2g}" if row.get(key) is not None else "—" for key in ("moved", "furthest", "of_bound", "without_factor_of_bound")]
            lines.append(line(row, cells))
    if "seconds" in found:
        lines += ["", f"{found['threads']} threads:", "", "| states | library | ns/parameter | of the rounds |", "|---|---|---|---|"]
        for row in found["seconds"]:
            cells = [f"{row['nanoseconds']:.2f}", ", ".join(f"{each:.2f}" for each in row["of_rounds"])] if "nanoseconds" in row else ["—", "—"]
            lines.append(line(row, cells))
    return "\n".join(lines)


def line(row, cells):
    reason = f" (not measured: {row['reason'].replace('|', '/')})" if "reason" in row else ""
    return f"| {FORMS[row['form']].title}{reason} | {LIBRARIES[row['side']]} | {' | '.join(cells)} |"


def failed(found):
    """Rows without a figure, and updates beyond their bound."""
    rows = [row for what in WHAT for row in found.get(what, [])]
    return [row for row in rows if "reason" in row or (row.get("of_bound") or 0) > 1]


def main():
    options = arguments()
    found = measure(options)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(tables(found))
    return 1 if failed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
