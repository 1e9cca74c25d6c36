#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""After a run of ctest: names the tests that were skipped and that tests/skips.txt does not list; exit code 1 if there are any.

    scripts/skips.py BUILD_FOLDER
"""
import fnmatch
import re
import sys
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "tests/skips.txt"
PROGRAM = re.compile(r"^\d+/\d+ Testing: (\S+)$", re.MULTILINE)
GTEST = re.compile(r"^\[  SKIPPED \] (\S+)(?:, where .*)? \(\d+ ms\)$", re.MULTILINE)  # not the list at the end
UNITTEST = re.compile(r"^OK \(.*\bskipped=\d+", re.MULTILINE)


def listed():
    return [line.partition("|")[0].strip() for line in TABLE.read_text().splitlines() if not line.startswith("#")]


def skipped(log):
    """The tests of GoogleTest programs, and the CTest names of Python programs, that say so."""
    parts = PROGRAM.split(log)[1:]
    for name, output in zip(parts[::2], parts[1::2], strict=True):
        yield from GTEST.findall(output)
        if UNITTEST.search(output):
            yield name


def main():
    table = listed()
    log = (Path(sys.argv[1]) / "Testing/Temporary/LastTest.log").read_text(errors="replace")
    unlisted = [name for name in sorted(set(skipped(log))) if not any(fnmatch.fnmatchcase(name, pattern) for pattern in table)]
    for name in unlisted:
        print(f"skipped, and not in tests/skips.txt: {name}; run it, or list it with its reason")
    return 1 if unlisted else 0


if __name__ == "__main__":
    sys.exit(main())
