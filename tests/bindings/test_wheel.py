# SPDX-License-Identifier: Apache-2.0
"""The wheel in a clean environment with neither PyTorch nor JAX: built as pip does, made independent of this system, installed, trained from.

    python test_wheel.py FOLDER [unittest's arguments]      FOLDER: emptied, and left for a look
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "bindings/python/examples/numpy/regression.py"
BUILD = ROOT / "build/wheel"
TOOLS = pathlib.Path(sys.executable).parent  # of this Python's environment
FOLDER = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(("PYTHON", "OTR_", "CMAKE_", "SKBUILD_")) and name not in ("LD_LIBRARY_PATH", "VIRTUAL_ENV")}


def run(*command, expect=0, environment=CLEAN):
    """Standard output. Neither the tree nor the build folder is on any path."""
    done = subprocess.run([str(each) for each in command], cwd=FOLDER, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != expect:
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}, not {expect}\n{done.stdout}{done.stderr}")
    return done.stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        run(sys.executable, "-m", "venv", FOLDER / "venv")
        cls.bin = FOLDER / "venv/bin"
        cls.pip = [cls.bin / "python", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet"]
        building = {**CLEAN, "OTR_PYTHON": sys.executable}
        if shutil.which("ccache"):  # the same objects as the tree's own build, seen from a folder as deep
            building.update(CMAKE_C_COMPILER_LAUNCHER="ccache", CMAKE_CXX_COMPILER_LAUNCHER="ccache", CCACHE_BASEDIR=str(ROOT), CCACHE_NOHASHDIR="1")
        shutil.rmtree(BUILD, ignore_errors=True)
        started = time.monotonic()
        run(ROOT / "scripts/wheel.sh", FOLDER, f"--config-settings=build-dir={BUILD}", environment=building)
        (cls.wheel,) = FOLDER.glob("*.whl")
        print(f"{cls.wheel.name}: {cls.wheel.stat().st_size / 2**20:.1f} MiB, built in {time.monotonic() - started:.0f} s")
        run(*cls.pip, "install", cls.wheel)

    def python(self, program, *arguments, **options):
        return run(self.bin / "python", "-W", "error", "-c", program, *arguments, **options)

    def test_what_it_holds(self):
        with zipfile.ZipFile(self.wheel) as archive:
            names, metadata = archive.namelist(), next(name for name in archive.namelist() if name.endswith("METADATA"))
            text = archive.read(metadata).decode()
        inside = {name for name in names if ".dist-info/" not in name and not name.endswith("/")}
        others = {re.sub(r"-[0-9a-f]+\.so.*", "", name) for name in inside if not name.startswith("outrigger/")}
        self.assertEqual(others, {"outrigger_zero.libs/libhwloc", "outrigger_zero.libs/libhwy", "outrigger_zero.libs/libudev"})
        self.assertIn("-cp311-abi3-manylinux_2_", self.wheel.name)
        run(TOOLS / "abi3audit", "--strict", self.wheel)
        for name in ("_lowlevel.abi3.so", "liboutrigger.so.0", "bin/outrigger", "lowlevel.py", "lowlevel.pyi", "py.typed", "torch/engine.py"):
            self.assertIn(f"outrigger/{name}", inside)
        self.assertEqual(len([name for name in inside if not name.endswith((".py", ".pyi", "py.typed"))]), 3 + len(others))
        self.assertTrue(any(name.endswith("LICENSE") for name in names))
        self.assertLess(self.wheel.stat().st_size, 10 * 2**20)
        for line in ("Name: outrigger-zero", "License-Expression: Apache-2.0", "Provides-Extra: torch", "Provides-Extra: jax"):
            self.assertIn(line + "\n", text)

    def test_it_is_its_own(self):
        """Module and library come from the environment, without a search path, and no framework is there."""
        found = json.loads(self.python("""
import importlib.metadata, importlib.util, json, outrigger
maps = sorted({line.split()[-1] for line in open("/proc/self/maps") if any(name in line for name in ("outrigger", "hwloc", "hwy", "udev"))})
print(json.dumps([outrigger.version(), importlib.metadata.version("outrigger-zero"), outrigger.__file__, maps,
                  [name for name in ("torch", "jax", "ml_dtypes") if importlib.util.find_spec(name)]]))
"""))
        self.assertEqual(found[0], found[1])
        self.assertEqual(len(found[3]), 5, found[3])  # the module, the library, and what that needs
        for path in [found[2], *found[3]]:
            self.assertTrue(path.startswith(str(FOLDER)), path)
        self.assertEqual(found[4], [])

    def test_it_trains(self):
        alone = run(self.bin / "python", "-W", "error", EXAMPLE)
        self.assertTrue(alone)
        run(self.bin / "outrigger", "run", "-n", "2", "--", self.bin / "python", "-W", "error", EXAMPLE)

    def test_the_command(self):
        version = run(self.bin / "outrigger", "version")
        self.assertIn("outrigger ", version)
        self.assertEqual(version, run(self.bin / "python", "-m", "outrigger", "version"))
        self.assertTrue(json.loads(run(self.bin / "outrigger", "doctor", "--json"))["self_test"]["passed"])
        run(self.bin / "outrigger", "run", "-n", "2", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE > rank$RANK")
        self.assertEqual([(FOLDER / f"rank{rank}").read_text() for rank in (0, 1)], ["0 of 2\n", "1 of 2\n"])
        run(self.bin / "outrigger", "run", "--", "sh", "-c", "exit 7", expect=7)
        run(self.bin / "outrigger", "run", "--", "sh", "-c", "kill -PIPE $$", expect=128 + signal.SIGPIPE)

    def test_log_lines(self):
        said = self.python("""
import logging, sys, outrigger
logging.basicConfig(stream=sys.stdout, format="%(name)s %(levelname)s")
outrigger.Engine(outrigger.Comm.self_group(outrigger.Context()), {"zero_optimization": True})
""")
        self.assertEqual(said, "outrigger WARNING\n")

    def test_ctrl_c(self):
        """Of a process that waits for a rank which does not come, and of one that the command looks after."""
        program = f"""
import outrigger
print("waits", flush=True)
outrigger.Comm.shared_memory(outrigger.Context(), rank=0, world_size=2, job="test-wheel-of-{os.getpid()}", timeout=60.0)
"""
        for prefix, code in (([], -signal.SIGINT), ([self.bin / "outrigger", "run", "--"], None)):
            with self.subTest(prefix=prefix):
                command = [str(each) for each in [*prefix, self.bin / "python", "-c", program]]
                with subprocess.Popen(command, cwd=FOLDER, env=CLEAN, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                    self.assertEqual(process.stdout.readline(), "waits\n")
                    time.sleep(0.5)
                    pressed = time.monotonic()
                    process.send_signal(signal.SIGINT)
                    _, errors = process.communicate(timeout=30)
                self.assertLess(time.monotonic() - pressed, 5)
                self.assertNotEqual(process.returncode, 0)
                if code is not None:
                    self.assertEqual(process.returncode, code)
                    self.assertIn("KeyboardInterrupt", errors)


if __name__ == "__main__":
    if FOLDER is None:
        sys.exit("usage: test_wheel.py FOLDER")
    unittest.main()
