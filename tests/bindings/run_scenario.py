# SPDX-License-Identifier: Apache-2.0
"""Runs one language's scenario with each configuration on 1 and 2 ranks and compares its texts with those of C.

    python3 run_scenario.py NAME WORK_FOLDER LAUNCHER [--together] COMMAND…

COMMAND is followed by the configuration and the output; with --together by those of all configurations. The texts are WORK_FOLDER/<config>.w<world>.NAME.<rank>.
"""
import os
import pathlib
import shutil
import subprocess
import sys

CONFIGS = sorted((pathlib.Path(__file__).parent / "scenario/configs").glob("*.json"))
WORLDS = (1, 2)
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def prefix(work, config, world, name):
    return work / f"{config.stem}.w{world}.{name}"


def run(name, work, launcher, command):
    environment = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES}
    together = command[0] == "--together"
    for world in WORLDS:
        jobs = [(config, prefix(work, config, world, name)) for config in CONFIGS]
        for _, output in jobs:
            for rank in range(world):
                pathlib.Path(f"{output}.{rank}").unlink(missing_ok=True)
            shutil.rmtree(f"{output}.saved", ignore_errors=True)
            pathlib.Path(f"{output}.saved").mkdir()  # for a checkpoint
        start = [launcher, "run", "-n", str(world), "--"] if world > 1 else []
        for group in [jobs] if together else [[job] for job in jobs]:
            subprocess.run([*start, *command[together:], *(path for job in group for path in job)], env=environment, timeout=120 * len(group), check=True)


def lines_of(path, name):
    """On a device memory lies elsewhere: its ledger is compared with the estimate, in other tests."""
    lines = path.read_bytes().split(b"\n")
    return [line for line in lines if name != "device" or not line.startswith(b"memory ")]


def compare(name, work, reference="c"):
    """The number of lines that were equal."""
    equal = 0
    for config in CONFIGS:
        for world in WORLDS:
            for rank in range(world):
                ours = pathlib.Path(f"{prefix(work, config, world, name)}.{rank}")
                theirs = pathlib.Path(f"{prefix(work, config, world, reference)}.{rank}")
                if not ours.read_bytes().endswith(b"\ndone\n"):
                    sys.exit(f"{ours.name} does not end with \"done\"")
                expected = lines_of(theirs, name)
                if lines_of(ours, name) != expected:
                    show_difference(ours, theirs)
                equal += len(expected) - 1
    return equal


def show_difference(ours, theirs):
    pairs = zip(ours.read_text().split("\n"), theirs.read_text().split("\n"))
    for number, (a, b) in enumerate(pairs, 1):
        if a != b:
            sys.exit(f"{ours.name}:{number} differs from {theirs.name}:\n  {a}\n  {b}")
    sys.exit(f"{ours.name} and {theirs.name} have different lengths")


def main(name, work, launcher, *command):
    work = pathlib.Path(work)
    work.mkdir(parents=True, exist_ok=True)
    run(name, work, launcher, command)
    if name != "c":
        print(f"{name}: {compare(name, work)} lines in {len(CONFIGS)} configurations on {WORLDS} ranks, equal to C's")


if __name__ == "__main__":
    main(*sys.argv[1:])
