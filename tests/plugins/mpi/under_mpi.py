# SPDX-License-Identifier: Apache-2.0
"""Runs a test program as the ranks of an MPI library; each rank is a whole run of it, and all must pass.
under_mpi.py BUILD KIND RANKS PROGRAM [ARGUMENT…]"""
import pathlib
import re
import sys
import tempfile

import launchers

build, kind, ranks, *program = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    # A file for each rank: a launcher mixes what ranks write at the same time, also within a line.
    apart = ["sh", "-c", f'exec "$0" "$@" > {folder}/$$ 2>&1', *program]
    status, written = launchers.Launcher(kind, pathlib.Path(build)).run(int(ranks), apart, timeout=1500)
    texts = [path.read_text() for path in pathlib.Path(folder).iterdir()]
counts = [re.findall(r"^\[  PASSED  \] (\d+) tests?", text, re.MULTILINE) for text in texts]
passed = [int(each[0]) for each in counts if len(each) == 1]
whole = "\n".join([*texts, written])
if status != 0 or len(passed) != int(ranks) or not all(passed) or "[  FAILED  ]" in whole or "[  SKIPPED ]" in whole:
    print(whole)
    print(f"{len(passed)} of {ranks} ranks passed, exit status {status}")
    sys.exit(1)
print(f"{ranks} ranks over {kind}: {passed[0]} tests each")
