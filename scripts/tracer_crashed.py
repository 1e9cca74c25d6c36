#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""After a run of ctest under AddressSanitizer: exit code 0 if each test that failed had passed, and then LeakSanitizer's
own tracer crashed while it stopped the threads at the process's end (a known fault of it: google/sanitizers 1353).

    scripts/tracer_crashed.py BUILD_FOLDER
"""
import re
import sys
from pathlib import Path

TEST = re.compile(r"^\d+/\d+ Testing: (\S+)$", re.MULTILINE)
CRASH = "==LeakSanitizer has encountered a fatal error."
FAULT = re.compile(r"\[  FAILED  \]|^(ERROR|FAIL): |ERROR: (Address|Leak)Sanitizer|runtime error:", re.MULTILINE)


def main():
    folder = Path(sys.argv[1]) / "Testing/Temporary"
    failed = {line.partition(":")[2].strip() for line in (folder / "LastTestsFailed.log").read_text().splitlines()}
    parts = TEST.split((folder / "LastTest.log").read_text(errors="replace"))[1:]
    crashed = {name for name, output in zip(parts[::2], parts[1::2], strict=True) if CRASH in output and not FAULT.search(output)}
    if not failed or failed - crashed:
        return 1
    print(f"LeakSanitizer's tracer crashed at the end of {', '.join(sorted(failed))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
