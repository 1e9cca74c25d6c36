# SPDX-License-Identifier: Apache-2.0
"""docs/scaling/results.json: what was measured, and on what."""
import os
import sys
import time
from pathlib import Path

for folder in ("bench", "report"):
    sys.path.append(str(Path(__file__).resolve().parents[1] / folder))
import machine  # noqa: E402
import results  # noqa: E402


def read(folder):
    known = results.read(folder)
    known.pop("sections", None)  # that is how an empty file of the report begins
    return known


def add(known, part, found, begin):
    described = machine.describe()
    described.pop("load_before")
    known[part] = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "took": round(time.monotonic() - begin), "revision": described.pop("outrigger_revision"),
                   "load_after": os.getloadavg()[0], "niceness": os.nice(0), "machine": described, **found}


def write(folder, known):
    results.write(folder, known)
