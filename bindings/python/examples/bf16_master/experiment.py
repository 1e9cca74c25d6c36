# SPDX-License-Identifier: Apache-2.0
"""Runs train.py for configurations, seeds and libraries, each run in a process of its own, and writes results.json and results.md.

    python experiment.py --output logs --configurations baseline bf16_full stochastic --seeds 1 2 3 -- --num_steps 200 --use_real_data

What follows -- are options of train.py. A run that is complete in the folder is not repeated, so a call that was stopped goes on.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import backend
import configurations
import report

TRAIN = Path(__file__).resolve().with_name("train.py")
OWN = ("--deepspeed_config", "--seed", "--backend", "--loss_log_file", "--summary_file")  # of train.py, given here
Run = collections.namedtuple("Run", "configuration seed backend")


def arguments():
    words = sys.argv[1:]
    place = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage="%(prog)s [options] -- [options of train.py]")
    parser.add_argument("--output", metavar="DIR", type=Path, required=True)
    parser.add_argument("--configurations", nargs="+", default=["baseline", "bf16_full"], metavar="NAME", help="that configurations.py lists")
    parser.add_argument("--seeds", nargs="+", type=int, default=[42], metavar="SEED")
    parser.add_argument("--backends", nargs="+", choices=backend.BACKENDS, default=list(backend.BACKENDS))
    parser.add_argument("--python", default=sys.executable, help="that has outrigger; default: this one")
    parser.add_argument("--deepspeed_python", default=os.environ.get("OTR_DEEPSPEED_PYTHON", sys.executable),
                        help="that has DeepSpeed; default: OTR_DEEPSPEED_PYTHON, or this one")
    parser.add_argument("--workers", type=int, default=1, help="processes of a run")
    parser.add_argument("--jobs", type=int, default=1, help="runs beside each other; their step times then say little")
    parser.add_argument("--launcher", metavar="COMMAND", help="the command outrigger; default for several workers: torchrun")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no run begins later")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds of one run")
    options = parser.parse_args(words[:place])
    options.train = words[place + 1:]
    taken = [word for word in options.train if word.split("=")[0] in OWN]
    if taken:
        parser.error(f"{taken[0]} is given to train.py by experiment.py itself")
    unknown = [name for name in options.configurations if name not in configurations.NAMES]
    if unknown:
        parser.error(f"no configuration {unknown[0]!r}; there are {', '.join(configurations.NAMES)}")
    _keep_options(options, parser)
    return options


def _keep_options(options, parser):
    """A folder holds runs with one set of options of train.py, which alone can be compared."""
    options.output.mkdir(parents=True, exist_ok=True)
    path, mine = options.output / "options.json", {"train": options.train, "workers": options.workers}
    if path.is_file() and json.loads(path.read_text(encoding="utf-8")) != mine:
        parser.error(f"{options.output} has runs with other options, see {path}; choose another --output")
    path.write_text(json.dumps(mine) + "\n", encoding="utf-8")


def interpreter(options, library):
    return options.python if library == "outrigger" else options.deepspeed_python


def missing(options, library):
    """Why there is no run of this library; empty if there can be."""
    python = interpreter(options, library)
    try:
        done = subprocess.run([python, "-c", f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({library!r}))"],
                              check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{python} does not run: {error}"
    return f"{Path(python).name} has no {library}" if done.returncode else ""


def command(options, run, name):
    python = interpreter(options, run.backend)
    if options.workers == 1:
        start = [python]
    elif options.launcher:
        start = [options.launcher, "run", "-n", str(options.workers), "--", python]
    else:
        start = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.workers)]
    return [*start, str(TRAIN), "--deepspeed_config", run.configuration, "--seed", str(run.seed), "--backend", run.backend,
            "--loss_log_file", str(options.output / f"{name}.csv"), "--summary_file", str(options.output / f"{name}.json"), *options.train]


def name_of(run):
    return f"{run.configuration}-{run.seed}-{run.backend}"


def measure(options, run, reason, deadline):
    """The run's summary, or {"reason": why there is none}."""
    name = name_of(run)
    summary = options.output / f"{name}.json"
    if summary.is_file():
        return json.loads(summary.read_text(encoding="utf-8"))
    if not reason and run.backend == "deepspeed" and configurations.outrigger_alone(configurations.configuration(run.configuration)):
        reason = "DeepSpeed has no such keys"
    if not reason and time.monotonic() > deadline:
        reason = "no time was left"
    if reason:
        return {"reason": reason}
    print(f"{name} …", flush=True)
    log = options.output / f"{name}.log"
    with log.open("wb") as file:
        try:
            code = subprocess.run(command(options, run, name), stdout=file, stderr=subprocess.STDOUT, timeout=options.timeout, check=False).returncode
        except subprocess.TimeoutExpired:
            return {"reason": f"longer than {options.timeout:.0f} s", "failed": True}
    if code or not summary.is_file():
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return {"reason": f"exit code {code}: {lines[-1] if lines else 'no output'}"[:300], "failed": True}
    return json.loads(summary.read_text(encoding="utf-8"))


def machine():
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"processor": names[0] if names else platform.machine(), "cores": len(os.sched_getaffinity(0))}


def main():
    options = arguments()
    deadline = time.monotonic() + 60 * options.minutes
    reasons = {library: missing(options, library) for library in options.backends}
    # Libraries and configurations alternate, so that what the machine does meanwhile falls on all of them.
    runs = [Run(configuration, seed, library)
            for seed in options.seeds for configuration in dict.fromkeys(options.configurations) for library in options.backends]
    found = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        summaries = [pool.submit(measure, options, run, reasons[run.backend], deadline) for run in runs]
        try:
            for run, summary in zip(runs, summaries):
                found.append({**run._asdict(), **summary.result(), "csv": f"{name_of(run)}.csv"})
                report.write(options.output, machine(), {"train": options.train, "workers": options.workers}, found)
        finally:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C no further run begins
    print(report.text(options.output, machine(), {"train": options.train, "workers": options.workers}, found))
    return 1 if any("failed" in run for run in found) else 0


if __name__ == "__main__":
    sys.exit(main())
