# SPDX-License-Identifier: Apache-2.0
"""Trains the example GPT in three configurations, sharded over workers, and shows what each costs and saves."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from configurations import configurations
from picture import draw
from plays import download, make_text
from results import Run, memory_table, table
from unfinished import Unfinished

LIMIT = 2.2  # nats per character on held-out plays, in every configuration
LEAST = 500  # updates that get below it
MODEL = {"layers": 4, "width": 128, "heads": 4, "context": 64}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, help="build folder with the programs `outrigger` and `gpt`")
    parser.add_argument("--out", help="folder for the results; default: demo in the build folder")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2000, help="updates per configuration")
    parser.add_argument("--seconds", type=float, default=70,
                        help=f"that the updates of one configuration may take; fewer are made if need be, {LEAST} at least")
    parser.add_argument("--batch", type=int, default=8, help="sequences per worker")
    parser.add_argument("--learning-rate", type=float, default=4e-3)
    args = parser.parse_args()
    args.out = args.out or os.path.join(args.build, "demo")
    return args


def program(*parts):
    path = os.path.join(*parts)
    if not os.access(path, os.X_OK):
        raise SystemExit(f"{path} is missing; build it first")
    return path


def environment():
    """OpenBLAS 0.3.21 takes processors newer than itself for one of 2004 and multiplies five times slower
    than they can. Tell it what this one has, unless the user did."""
    env = dict(os.environ)
    if "OPENBLAS_CORETYPE" in env or not os.path.exists("/proc/cpuinfo"):
        return env
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        text = file.read()
    flags = next((set(line.split()) for line in text.splitlines() if line.startswith("flags")), set())
    if "GenuineIntel" in text and {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= flags:
        env["OPENBLAS_CORETYPE"] = "SkylakeX"
    elif "GenuineIntel" in text and {"avx2", "fma"} <= flags:
        env["OPENBLAS_CORETYPE"] = "Haswell"
    return env


def train(args, name, config, text, held_out, steps, evaluations=20, quiet=False, checkpoints=None):
    path = os.path.join(args.out, name)
    with open(path + ".config.json", "w", encoding="ascii") as file:
        json.dump(config, file, indent=2)
    options = dict(MODEL, text=text, batch=args.batch, steps=steps, name=name, csv=path + ".csv",
                   config=path + ".config.json", summary=path + ".json", lr=args.learning_rate,
                   warmup=min(100, steps // 10), sample=200)
    options["held-out"] = f"{held_out:.9f}"
    options["evaluate-every"] = steps // evaluations if evaluations else 0
    if checkpoints:
        options["checkpoints"] = checkpoints
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    command = [program(args.build, "c_api", "tools", "outrigger"), "run", "-n", str(args.workers), "--",
               program(args.build, "c_api", "examples", "gpt"), *words]
    code = subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL if quiet else None).returncode
    if code != 0:
        raise SystemExit(f"{name}: training ended with exit code {code}")
    return Run(args.out, name)


def affordable_steps(args, text, held_out):
    """args.steps, or fewer on a machine where a trial of the first steps says they would take too long."""
    _, config = configurations(args.batch)["float32"]
    trial = train(args, "trial", config, text, held_out, steps=30, evaluations=0, quiet=True)
    affordable = max(LEAST, int(args.seconds / statistics.median(trial.seconds)))
    if affordable < args.steps:
        print(f"This machine is slow or busy: {affordable} steps instead of {args.steps}.\n", flush=True)
    return min(args.steps, affordable)


def main():
    args = parse_arguments()
    begin = time.monotonic()
    os.makedirs(args.out, exist_ok=True)
    text = os.path.join(args.out, "plays.txt")
    held_out = make_text(download(os.path.join(args.out, "download")), text)
    print(f"{os.path.getsize(text) / 1e6:.2f} million characters; {100 * held_out:.1f} % held out "
          "(Hamlet, Macbeth, The Tempest, Twelfth Night)\n", flush=True)

    unfinished = Unfinished(args.out, {key: value for key, value in vars(args).items() if key not in ("build", "out")})
    if unfinished.steps is None:
        print("A trial of 30 updates says how many this machine makes in the time there is.\n", flush=True)
        unfinished.steps = affordable_steps(args, text, held_out)
    else:
        print(f"The last demo was stopped: this one goes on, {unfinished.steps} updates for each configuration.\n", flush=True)
    runs = []
    for name, (title, config) in configurations(args.batch).items():
        print(title, flush=True)
        if unfinished.is_done(name):
            runs.append(Run(args.out, name))
        else:
            runs.append(train(args, name, config, text, held_out, unfinished.steps, checkpoints=unfinished.checkpoints(name)))
            unfinished.note_done(name)
        runs[-1].title = title
        print(flush=True)

    unfinished.finish()
    bigram = runs[0].summary["bigram"]
    picture = os.path.join(args.out, "loss_curves.png")
    draw(runs, bigram, picture)
    report = (f"{table(runs)}\n\n"
              "Vanished: the weight kept its value. Rounded to nearest, such an update is lost; rounded at random, it\n"
              "moves the weight by a whole unit in proportion to its size, so nothing is lost on average.\n"
              f"\nA table of character pairs reaches {bigram:.3f} on the same held-out plays.\n"
              f"\nMemory of all workers, bytes per parameter, resident / peak:\n{memory_table(runs)}\n")
    with open(os.path.join(args.out, "report.txt"), "w", encoding="utf-8") as file:
        file.write(report)
    print(report)
    print(f"Curves: {picture}\nNumbers: {os.path.join(args.out, '<configuration>.csv')}\n"
          f"{(time.monotonic() - begin) / 60:.1f} minutes")

    failed = [run.title for run in runs if not run.summary["held_out"] < LIMIT]
    if failed:
        print(f"Held-out loss is not below {LIMIT} nats per character: {'; '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
