# SPDX-License-Identifier: Apache-2.0
"""How the Rust crates find the library: when they are built, and with the feature dlopen when the program runs.

    test_rust_builds.py CARGO LIBRARY_FOLDER TARGET_FOLDER [unittest's arguments]
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CARGO, LIBRARY, TARGET = (pathlib.Path(argument) for argument in sys.argv[1:4])
FOUND_BY = ("OUTRIGGER_LIB_DIR", "OUTRIGGER_LIBRARY", "OUTRIGGER_SOURCE_DIR", "LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "DOCS_RS")


def run(*command, timeout=280, **environment):
    """The process's end, in an environment in which nothing of the library is found."""
    kept = {name: value for name, value in os.environ.items() if name not in FOUND_BY}
    kept |= {"CARGO_TARGET_DIR": str(TARGET), "PKG_CONFIG_LIBDIR": "/nonexistent"} | environment
    return subprocess.run([str(part) for part in command], env=kept, capture_output=True, text=True, timeout=timeout)


def build(*arguments, **environment):
    return run(CARGO, *arguments, "--offline", "--locked", "--quiet", "--manifest-path", ROOT / "rust/Cargo.toml", **environment)


class Builds(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def refused(self, *texts, features="", **environment):
        end = build("build", "--package", "outrigger-sys", "--features", features, **environment)
        self.assertNotEqual(end.returncode, 0)
        for text in texts:
            self.assertIn(text, end.stderr)

    def program(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def test_a_folder_without_it(self):
        self.refused(f"OUTRIGGER_LIB_DIR={self.folder} holds no liboutrigger.so", OUTRIGGER_LIB_DIR=str(self.folder))

    def test_nowhere(self):
        self.refused("outrigger", "OUTRIGGER_LIB_DIR", "the feature bundled", "dlopen")

    def test_another_release(self):
        (self.folder / "outrigger.pc").write_text(
            f"libdir={LIBRARY}\nName: outrigger\nDescription: a later one\nVersion: 0.2.0\n", encoding="utf-8")
        self.refused("0.2.0", "outrigger < 0.2.0", PKG_CONFIG_LIBDIR=str(self.folder))

    def test_by_pkg_config(self):
        (self.folder / "outrigger.pc").write_text(
            f"libdir={LIBRARY}\nName: outrigger\nDescription: this one\nVersion: 0.1.9\n", encoding="utf-8")
        end = build("build", "--package", "outrigger-sys", PKG_CONFIG_LIBDIR=str(self.folder))
        self.assertEqual(end.returncode, 0, end.stderr)

    def test_bundled(self):
        """In place of CMake a program that notes what it is asked for, and brings what was built before."""
        cmake = self.program("cmake", f"""#!/bin/sh
echo "$@" >> {self.folder}/calls
[ "$1" != --build ] || cp {LIBRARY}/liboutrigger.so "$2"
[ "$1" != -S ] || mkdir -p "$4"
""")
        end = build("build", "--package", "outrigger-sys", "--features", "bundled", CMAKE=cmake)
        self.assertEqual(end.returncode, 0, end.stderr)
        configure, compiled = (self.folder / "calls").read_text(encoding="utf-8").splitlines()
        self.assertRegex(configure, r"^-S \S+ -B \S+/library -DCMAKE_BUILD_TYPE=Release -DOTR_TESTS=OFF -DOTR_EXAMPLES=OFF ")
        self.assertTrue(os.path.samefile(configure.split()[1], ROOT))
        self.assertRegex(compiled, r"^--build \S+/library --target outrigger --parallel \d+$")

    def test_bundled_that_fails(self):
        failing = self.program("cmake", "#!/bin/sh\necho no compiler here\nexit 3\n")
        self.refused("no compiler here", "has failed", features="bundled", CMAKE=failing)
        self.refused("cannot be run", features="bundled", CMAKE="/nonexistent/cmake")
        lazy = self.program("lazy", "#!/bin/sh\nexit 0\n")
        self.refused("cmake left no liboutrigger.so", features="bundled", CMAKE=lazy, CARGO_TARGET_DIR=str(self.folder / "target"))

    def test_bundled_from_another_source(self):
        self.refused("cannot be read", "OUTRIGGER_SOURCE_DIR", features="bundled", OUTRIGGER_SOURCE_DIR=str(self.folder))
        header = self.folder / "c_api/include/outrigger.h"
        header.parent.mkdir(parents=True)
        header.write_text('#define OTR_VERSION_STRING "0.2.0"\n', encoding="utf-8")
        self.refused("is not of the release 0.1.0", features="bundled", OUTRIGGER_SOURCE_DIR=str(self.folder))

    def test_documentation_without_it(self):
        end = build("doc", "--no-deps", "--package", "outrigger", "--package", "outrigger-sys", DOCS_RS="1", RUSTDOCFLAGS="-D warnings")
        self.assertEqual(end.returncode, 0, end.stderr)


class Loaded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        end = build("build", "--package", "outrigger", "--features", "dlopen", "--example", "loaded")
        if end.returncode:
            raise AssertionError(end.stderr)
        cls.program = TARGET / "debug/examples/loaded"
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))

    def refused(self, end, *texts):
        self.assertEqual(end.returncode, 1, end)
        self.assertIn("no training: ", end.stderr)
        for text in texts:
            self.assertIn(text, end.stderr)

    def test_from_wherever_it_is(self):
        for end in (run(self.program, LIBRARY / "liboutrigger.so"),
                    run(self.program, OUTRIGGER_LIBRARY=str(LIBRARY / "liboutrigger.so")),
                    run(self.program, LD_LIBRARY_PATH=str(LIBRARY))):
            self.assertEqual(end.returncode, 0, end.stderr)
            self.assertRegex(end.stdout, r"^\[0\.5, 2\.5\] of outrigger 0\.1\.\d+\n$")

    def test_nowhere(self):
        self.refused(run(self.program, "/nonexistent/liboutrigger.so"), "/nonexistent/liboutrigger.so", "cannot open", "OUTRIGGER_LIBRARY")
        # Without a load the first call says it.
        self.refused(run(self.program), "liboutrigger.so.0", "cannot open")

    def test_no_library(self):
        text = self.folder / "text.so"
        text.write_text("no library", encoding="utf-8")
        self.refused(run(self.program, text), str(text), "file too short")

    def test_another_library(self):
        for name, code, said in (("later", "int otr_abi_version(void) { return 7; }", "binary interface 7, and this crate is for 0"),
                                 ("older", "int otr_abi_version(void) { return 0; }", "older release"),
                                 ("strange", "int x;", "otr_abi_version")):
            source, library = self.folder / f"{name}.c", self.folder / f"{name}.so"
            source.write_text(code, encoding="utf-8")
            subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", library, source], check=True)
            self.refused(run(self.program, library), said)

    def test_nothing_is_linked(self):
        if not shutil.which("readelf"):
            self.skipTest("no readelf")
        needed = subprocess.run(["readelf", "-d", self.program], check=True, capture_output=True, text=True).stdout
        self.assertTrue(re.search("NEEDED.*libc.so", needed))
        self.assertNotIn("outrigger", needed)


class Compiled(unittest.TestCase):
    def test_from_this_tree(self):
        """CMake itself: minutes."""
        # What the library needs is found.
        libraries = subprocess.run(["pkg-config", "--variable", "pc_path", "pkg-config"], check=True, capture_output=True, text=True)
        with tempfile.TemporaryDirectory() as folder:
            end = build("run", "--package", "outrigger", "--features", "bundled", "--example", "regression", timeout=1700,
                        CARGO_TARGET_DIR=folder, PKG_CONFIG_LIBDIR=libraries.stdout.strip())
        self.assertEqual(end.returncode, 0, end.stderr)
        self.assertIn("after 200 steps", end.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
