# SPDX-License-Identifier: Apache-2.0
"""import outrigger brings no framework, not NumPy either: a time would depend on the machine, what is imported does not."""
import json
import subprocess
import sys
import unittest

FRAMEWORKS = {"numpy", "ml_dtypes", "torch", "jax", "logging", "asyncio", "ctypes", "subprocess", "dataclasses", "inspect"}


def imported(statement):
    """Top-level names of what the statement imports."""
    program = f"import sys; before = set(sys.modules)\n{statement}\nimport json; print(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


class Import(unittest.TestCase):
    def test_the_package(self):
        names = imported("import outrigger")
        self.assertEqual(names & FRAMEWORKS, set())
        foreign = {name for name in names - set(sys.stdlib_module_names) if not name.startswith("swig_runtime_data")}
        self.assertEqual(foreign, {"outrigger"})

    def test_numpy_comes_with_the_first_array(self):
        make = "import outrigger as o; e = o.Engine(o.Comm.self_group(o.Context(workers=1))); e.commit(); e.begin_pass().end(); e.step()"
        self.assertNotIn("numpy", imported(make))
        self.assertIn("numpy", imported(make.replace("e.commit()", "w = e.add_parameter('w', memoryview(bytearray(8)).cast('f')); e.commit(); e.read(w)")))

    def test_an_adapter_brings_its_own_framework_only(self):
        self.assertEqual(imported("import outrigger.numpy") & {"torch", "jax"}, set())

    def test_no_command_in_a_build_folder(self):
        done = subprocess.run([sys.executable, "-m", "outrigger", "version"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("this package is one of a build folder", done.stderr)


if __name__ == "__main__":
    unittest.main()
