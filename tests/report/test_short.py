# SPDX-License-Identifier: Apache-2.0
"""The report's sections in forms of seconds:   test_short.py BUILD_FOLDER short|sections

short: those that no other test runs in such a form. sections: all.
"""
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/report"))
import context  # noqa: E402
from sections import bf16  # noqa: E402

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/report/report.py"
BUILD, WHAT = "", ""  # from the command line


class Report(unittest.TestCase):
    def report(self, *words):
        peer = os.environ.get("OTR_DEEPSPEED_PYTHON")
        given = ("--peer-python", peer) if peer and WHAT == "sections" else ("--peer-python", "/bin/false", "--peer-missing", "not in this test")
        done = subprocess.run([sys.executable, SCRIPT, "--build", BUILD, "--docs", self.docs, "--work", self.docs / "work", "--short", *given, *words],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.docs = Path(folder.name)

    def results(self):
        return json.loads((self.docs / "report/results.json").read_text(encoding="utf-8"))["sections"]

    def test_memory_and_losses(self):
        self.report("memory", "bf16")
        found = self.results()
        self.assertEqual(found["memory"]["configurations"]["baseline"]["parameters"], 6_858_007_633)
        layout = found["memory"]["configurations"]["baseline"]["device"]["deepspeed"]["total"]
        self.assertLess(abs(layout["resident_bytes"] / 2**30 - 25.74), 0.5)  # published
        runs = {(run["configuration"], run["backend"]): run for run in found["bf16"]["runs"]}
        self.assertEqual({key: "reason" in run for key, run in runs.items()},
                         {(name, library): library == "deepspeed" for name in ("baseline", "bf16_full") for library in ("outrigger", "deepspeed")})
        self.assertEqual([len(run["curve"]) for run in runs.values() if "reason" not in run], [6, 6])
        self.assertIn("not measured: ", (self.docs / "report.md").read_text(encoding="utf-8"))
        self.assertTrue((self.docs / "report/bf16.svg").read_text(encoding="utf-8").startswith("<?xml"))
        # What is complete is not run again: with no time left there are the same losses.
        options = types.SimpleNamespace(build=BUILD, work=self.docs / "work", short=True, peer_python=Path("/bin/false"), peer_missing="", minutes=0)
        with contextlib.redirect_stdout(io.StringIO()):
            again = bf16.measure(context.Context(options))
        curves = [[run["curve"] for run in runs if "reason" not in run] for runs in (again["runs"], found["bf16"]["runs"])]
        self.assertEqual(*curves)

    def test_all(self):
        self.report()
        missing = {name: found["missing"] for name, found in self.results().items() if "missing" in found}
        self.assertLessEqual(set(missing), {"multimodal", "multimodal_c"}, missing)  # Ray, and the program, need not be there
        if "multimodal" not in missing:
            self.assertEqual(self.results()["multimodal"]["runs"]["overlapped"]["steps"], 4)

    def test_wrong_use(self):
        done = subprocess.run([sys.executable, SCRIPT, "bf15"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no section 'bf15'; there are bf16, step_times", done.stderr)


if __name__ == "__main__":
    BUILD, WHAT = Path(sys.argv[1]).resolve(), sys.argv[2]
    mine = {"short": "test_memory_and_losses", "sections": "test_all"}[WHAT]
    unittest.main(argv=[sys.argv[0], f"Report.{mine}", "Report.test_wrong_use"], verbosity=2)
