# SPDX-License-Identifier: Apache-2.0
"""scripts/skips.py: a test that is skipped and not listed is found in ctest's log."""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tree

SCRIPT = tree.ROOT / "scripts/skips.py"
LOG = """1/3 Testing: workers_test
1/3 Test: workers_test
[  SKIPPED ] WorkerCores.KeepOffTheCallersCore (0 ms)
[  SKIPPED ] Workers.{name} (0 ms)
[  SKIPPED ] 2 tests, listed below:
[  SKIPPED ] WorkerCores.KeepOffTheCallersCore
2/3 Testing: {program}
Ran 3 tests in 0.1s
OK (skipped=1)
3/3 Testing: bindings_other
OK
"""


class Skips(unittest.TestCase):
    def found(self, log):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "Testing/Temporary"
            place.mkdir(parents=True)
            (place / "LastTest.log").write_text(log)
            done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1 if done.stdout else 0, done.stderr)
        return re.findall("txt: ([^;]+);", done.stdout)

    def test_what_is_not_listed_is_named(self):
        log = LOG.format(name="New", program="bindings_new")
        self.assertEqual(self.found(log), ["Workers.New", "bindings_new"])
        self.assertEqual(self.found(log.replace("Workers.New", "WorkerCores.New").replace("bindings_new", "bindings_torch_start_1")), [])

    def test_each_entry_has_a_reason(self):
        for line in (tree.ROOT / "tests/skips.txt").read_text().splitlines():
            if not line.startswith("#"):
                self.assertRegex(line, r"^\S+ +\| \w.{20,}$")


if __name__ == "__main__":
    unittest.main()
