#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/tracer_crashed.py: only tests that passed before LeakSanitizer's tracer crashed are worth a second run."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tree

SCRIPT = tree.ROOT / "scripts/tracer_crashed.py"
CRASH = "[  PASSED  ] 17 tests.\nTracer caught signal 11: addr=0x1f50\n==6580==LeakSanitizer has encountered a fatal error.\n"


def verdict(outputs):
    """The script's exit code after a run in which these tests failed with these outputs, beside one that passed."""
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder) / "Testing/Temporary"
        logs.mkdir(parents=True)
        outputs = list(enumerate(outputs.items(), 1))
        (logs / "LastTestsFailed.log").write_text("".join(f"{n}:{name}\n" for n, (name, _) in outputs))
        log = "".join(f"{n}/9 Testing: {name}\n{n}/9 Test: {name}\nOutput:\n{output}" for n, (name, output) in outputs)
        (logs / "LastTest.log").write_text(log + "9/9 Testing: sound_test\n9/9 Test: sound_test\n[  PASSED  ] 1 test.\n")
        return subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, check=False).returncode


class TracerCrashed(unittest.TestCase):
    def test_a_crash_after_the_tests_had_passed(self):
        self.assertEqual(verdict({"matrix": CRASH, "block_test": CRASH}), 0)

    def test_anything_else_stands(self):
        self.assertEqual(verdict({"matrix": "[  FAILED  ] Matrix.Self\n"}), 1)
        self.assertEqual(verdict({"matrix": CRASH, "block_test": "Segmentation fault\n"}), 1)
        self.assertEqual(verdict({"matrix": "[  FAILED  ] Matrix.Self\n" + CRASH}), 1)
        self.assertEqual(verdict({"matrix": "==1==ERROR: LeakSanitizer: detected memory leaks\n" + CRASH}), 1)
        self.assertEqual(verdict({}), 1)


if __name__ == "__main__":
    unittest.main()
