# SPDX-License-Identifier: Apache-2.0
"""What the shared library shows to a linker: test_library.py LIBRARY"""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import header_model

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "c_api/include/outrigger.h"
API = ROOT / "c_api/include/outrigger_api.h"
SYMBOLS = ROOT / "c_api/symbols.txt"
# What a program that loads the library takes along. Python, CUDA, MPI and NCCL are never among them.
MAY_NEED = re.compile(r"lib(hwloc|hwy|stdc\+\+|m|gcc_s|c|pthread|rt|dl|atomic)\.so\.\d+|ld-linux-.*")
LIBRARY = None


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exported(library):
    """Names of the defined dynamic symbols, the version node itself left out."""
    rows = [line.split() for line in run("nm", "-D", "--defined-only", library).splitlines()]
    return {row[-1].split("@")[0] for row in rows if row[1] != "A"}


def compare(found, expected):
    return [f"not exported: {n}" for n in sorted(expected - found)] + \
           [f"exported, but not listed: {n}" for n in sorted(found - expected)]


class Symbols(unittest.TestCase):
    def test_exports_are_the_checked_in_list(self):
        self.assertEqual(compare(exported(LIBRARY), {"otr_get_api", *SYMBOLS.read_text(encoding="utf-8").split()}), [])

    def test_exports_are_the_header(self):
        declared = {**header_model.read(HEADER).functions, **header_model.read(API).functions}
        self.assertEqual(compare(exported(LIBRARY), set(declared)), [])

    def test_every_export_carries_the_version_node(self):
        for line in run("nm", "-D", "--defined-only", "--with-symbol-versions", LIBRARY).splitlines():
            if " A " not in line:
                self.assertRegex(line, r" T otr_\w+@@OUTRIGGER_0$")

    def test_the_comparison_catches(self):
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "libfake.so"
            source = Path(folder) / "fake.c"
            source.write_text("int otr_version(void) { return 1; }\nint leaked(void) { return 2; }\n")
            run("cc", "-shared", "-fPIC", source, "-o", library)
            self.assertEqual(compare(exported(library), {"otr_version", "otr_gone"}),
                             ["not exported: otr_gone", "exported, but not listed: leaked"])


class DynamicSection(unittest.TestCase):
    def setUp(self):
        self.rows = run("readelf", "-dW", LIBRARY)

    def test_stays_loaded(self):
        self.assertRegex(self.rows, r"\(FLAGS_1\).*NODELETE")

    def test_soname_is_the_abi_version(self):
        abi = re.search(r"#define OTR_ABI_VERSION (\d+)", HEADER.read_text(encoding="utf-8"))[1]
        self.assertIn(f"[liboutrigger.so.{abi}]", self.rows)

    def test_needs_nothing_unexpected(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", self.rows)
        self.assertTrue(needed)
        self.assertEqual([n for n in needed if not MAY_NEED.fullmatch(n)], [])

    def test_asks_for_no_newer_c_library(self):
        """Of the systems that docs/python.md names the oldest has glibc 2.35."""
        symbols = run("nm", "-D", "--undefined-only", "--with-symbol-versions", LIBRARY)
        versions = {tuple(map(int, version.split("."))) for version in re.findall(r"@GLIBC_([\d.]+)", symbols)}
        self.assertTrue(versions)
        self.assertLessEqual(max(versions), (2, 35))

    def test_has_no_path_of_this_machine(self):
        self.assertNotRegex(self.rows, r"\((RPATH|RUNPATH)\)")
        path = re.escape(str(ROOT).encode()) + rb"/[^\0]*"
        self.assertEqual(re.findall(path, Path(LIBRARY).read_bytes()), [])


if __name__ == "__main__":
    LIBRARY = sys.argv.pop()
    unittest.main()
