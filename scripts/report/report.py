# SPDX-License-Identifier: Apache-2.0
"""Measures the sections of docs/report.md that are named, keeps the figures of the others, and writes the page from all of them.

    python report.py                         everything, in the order below
    python report.py --minutes 20 bf16       a part of it; what is complete is not measured again
    python report.py --again                 nothing is measured: page and pictures from docs/report/results.json
"""
import argparse
import sys
import time
from pathlib import Path

import page
import results
from context import ROOT, Context
from sections import SECTIONS, memory


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help="folder with the Python package and the programs")
    parser.add_argument("--peer-python", type=Path, default=ROOT / "build/bench/venv/bin/python", help="a Python that has DeepSpeed")
    parser.add_argument("--peer-missing", default="", help="why there is none; empty if there is")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the page")
    parser.add_argument("--work", type=Path, default=ROOT / "build/report", help="folder of the runs")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no run begins later")
    parser.add_argument("--short", action="store_true", help="runs of seconds, to see that all of it works")
    parser.add_argument("--again", action="store_true", help="no runs: page and pictures from the figures there are")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; default all")
    options = parser.parse_args()
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    return options


def main():
    options = arguments()
    folder = options.docs / "report"
    known = results.read(folder)
    stopped = False
    if not options.again:
        context = Context(options)
        for name in options.sections or SECTIONS:
            begin = time.monotonic()
            print(f"report: {name} …", flush=True)
            found = context.measure(SECTIONS[name])
            stopped = context.stopped
            results.add(known, name, found, time.monotonic() - begin, context, context.short and SECTIONS[name] is not memory)
            results.write(folder, known)
            print(f"report: {name}: {found.get('missing') or 'measured'}, {time.monotonic() - begin:.0f} s", flush=True)
            if stopped:
                break
    page.write(options.docs, known)
    print(f"report: {options.docs / 'report.md'}")
    return 130 if stopped else 0


if __name__ == "__main__":
    sys.exit(main())
