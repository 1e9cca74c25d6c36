# SPDX-License-Identifier: Apache-2.0
"""docs/benchmarks/gpu.md is what scripts/gpu/page.py makes of the recorded rows, and a row below its target says so."""

import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/gpu"))
import page  # noqa: E402


class Page(unittest.TestCase):
    def test_it_is_up_to_date(self):
        self.assertEqual((ROOT / "docs/benchmarks/gpu.md").read_text(), page.text_of(ROOT), "run: python3 scripts/gpu/page.py .")

    def test_what_falls_short_is_said(self):
        rows = [{"row": "device", "name": "A GPU", "driver": 12040},
                {"row": "all bfloat16, stochastic", "bytes": 14, "seconds": 0.001, "of_copy": 0.9},
                {"row": "all bfloat16, stochastic", "bytes": 14, "seconds": 0.002, "of_copy": 0.5}]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            text = "\n".join(page.page_of(path))
        self.assertIn("| all bfloat16, stochastic | 14 | 1.000 to 2.000 | 0.50 to 0.90 | 0.88: falls short |", text)
        self.assertIn("Driver of CUDA 12.4.", text)


if __name__ == "__main__":
    unittest.main()
