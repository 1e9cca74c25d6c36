# SPDX-License-Identifier: Apache-2.0
"""Runs a test program as the ranks of an MPI library; each rank is a whole run of it, and all must pass.
under_mpi.py BUILD KIND RANKS PROGRAM [ARGUMENT…]"""
import pathlib
import re
import sys

import launchers

build, kind, ranks, *program = sys.argv[1:]
status, written = launchers.Launcher(kind, pathlib.Path(build)).run(int(ranks), program, timeout=1500)
passed = [int(n) for n in re.findall(r"\[  PASSED  \] (\d+) tests?", written)]
if status != 0 or len(passed) != int(ranks) or not all(passed) or "[  FAILED  ]" in written or "[  SKIPPED ]" in written:
    print(written)
    print(f"{len(passed)} of {ranks} ranks passed, exit status {status}")
    sys.exit(1)
print(f"{ranks} ranks over {kind}: {passed[0]} tests each")
