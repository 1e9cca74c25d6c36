# SPDX-License-Identifier: Apache-2.0
"""mypy --strict over the package and programs that use it, and stubtest: the stub says what the module is."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = pathlib.Path(importlib.util.find_spec("outrigger").origin).parent
CACHE = os.environ.get("OTR_MYPY_CACHE", os.devnull)


def run(*arguments):
    environment = {**os.environ, "MYPYPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, *arguments], cwd=HERE / "typed", env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def installed(name):
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None  # a folder of this name beside this file is no package


def mypy(*arguments):
    return run("-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", CACHE, *arguments)


class Checked(unittest.TestCase):
    def clean(self, outcome):
        self.assertEqual(outcome[0], 0, outcome[1])


class Types(Checked):
    def test_the_stub_is_the_module(self):
        self.clean(run("-m", "mypy.stubtest", "--allowlist", "stubtest.txt", "--ignore-unused-allowlist", "outrigger.lowlevel"))

    def test_package_and_program(self):
        self.clean(mypy("-m", "outrigger", "-m", "outrigger.__main__", "-m", "outrigger.numpy", "-m", "program"))
        self.clean(run("program.py"))

    def test_types_are_delivered(self):
        for name in ("py.typed", "lowlevel.pyi"):
            self.assertTrue((PACKAGE / name).exists(), f"{name} is missing in {PACKAGE}")

    def test_a_fault_is_seen(self):
        """A stub that no longer fits, and a package that does not check, fail."""
        self.assertNotEqual(mypy("-c", "import outrigger; outrigger.version() + 1")[0], 0)


class Frameworks(Checked):
    """Apart: mypy reads all of PyTorch and JAX for them."""

    def test_torch(self):
        if not installed("torch"):
            self.skipTest("no torch")
        self.clean(mypy("-p", "outrigger.torch", "-m", "outrigger.ray", "-m", "program_torch"))

    def test_jax(self):
        if not installed("jax"):
            self.skipTest("no jax")
        self.clean(mypy("-m", "outrigger.jax", "-m", "program_jax"))


if __name__ == "__main__":
    unittest.main()
