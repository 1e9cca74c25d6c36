# SPDX-License-Identifier: Apache-2.0
"""Measures what docs/scaling.md stands on, and writes its tables and pictures.

    python scale.py                     everything
    python scale.py planner             a part of it: planner, same_host or offloaded; the others' figures stay
    python scale.py --again             nothing is measured: page and pictures from docs/scaling/results.json
"""
import argparse
import sys
import time
from pathlib import Path

import offloaded
import planner
import same_host
import scaling_page
import stored

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("planner", "same_host", "offloaded")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/scale/programs/tests/bench", help="folder of bench_scale_plan and bench_reduce_scatter")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the page")
    parser.add_argument("--work", type=Path, default=ROOT / "build/scale/work", help="folder of questions and logs")
    parser.add_argument("--rounds", type=int, default=7, help="of the measurement over shared memory")
    parser.add_argument("--commit-gib", type=float, default=6, help="memory that a rank's commit may take here")
    parser.add_argument("--again", action="store_true", help="no measurement: page and pictures from the figures there are")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default all")
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    return options


def measure(part, options):
    if part == "offloaded":  # make bench has measured it
        return offloaded.taken(options.docs / "benchmarks/results.json")
    if part == "planner":
        return planner.measure(options.programs.absolute(), options.work / "planner", int(options.commit_gib * 2**30))
    return same_host.measure(options.programs.absolute(), options.work / "same_host", options.rounds)


def main():
    options = arguments()
    known = stored.read(options.docs / "scaling")
    for part in [] if options.again else options.parts or PARTS:
        begin = time.monotonic()
        print(f"scale: {part} …", flush=True)
        stored.add(known, part, measure(part, options), begin)
        stored.write(options.docs / "scaling", known)
    scaling_page.write(options.docs, known)
    print(f"scale: {options.docs / 'scaling.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
