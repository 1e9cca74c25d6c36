# SPDX-License-Identifier: Apache-2.0
"""Python over a real MPI library: the example, and a program with mpi4py.   test_python.py BUILD KIND"""
import pathlib
import sys
import unittest

import launchers

EXAMPLE = launchers.ROOT / "bindings" / "python" / "examples" / "numpy" / "over_mpi.py"


class Python(unittest.TestCase):
    def run_ranks(self, ranks, program):
        status, written = launcher.run(ranks, [sys.executable, "-W", "error", str(program)],
                                       PYTHONPATH=f"{build}/python", MPI4PY_LIBMPI=str(launcher.library))
        self.assertEqual(status, 0, written)
        self.assertNotIn("WARN", written)  # of a library that was left with something at its end
        return written

    def test_the_example_learns(self):
        written = self.run_ranks(2, EXAMPLE)
        for rank in range(2):
            self.assertIn(f"rank {rank} of 2: loss ", written)

    def test_communicators_of_mpi4py(self):
        written = self.run_ranks(3, pathlib.Path(__file__).with_name("program.py"))
        for rank in range(3):
            self.assertIn(f"rank {rank} ends well", written)


if __name__ == "__main__":
    build, kind = sys.argv[1:3]
    launcher = launchers.Launcher(kind, pathlib.Path(build))
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
