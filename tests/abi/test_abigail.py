# SPDX-License-Identifier: Apache-2.0
"""libabigail's view of each released header beside today's: a second opinion on test_frozen.py.

A library of bodies that do nothing is made from each header with debugging information; abidiff compares them. A struct that
grows shows here, too: name it in suppressions.ini once the growth is meant.
"""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import header_model

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
HEADER = ROOT / "c_api/include/outrigger.h"
FROZEN = sorted(HERE.glob("otr_*.h"))


def library(folder, header_text):
    """A shared library with the header's functions."""
    folder.mkdir()
    (folder / "outrigger.h").write_text(header_text, encoding="utf-8")
    bodies = ['#include "outrigger.h"']
    for function in header_model.parse(header_text).functions.values():
        bodies.append(f"{function.prototype} {{{'' if function.prototype.startswith('void ') else ' return 0; '}}}")
    (folder / "bodies.c").write_text("\n".join(bodies) + "\n", encoding="utf-8")
    made = folder / "liboutrigger.so"
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, "-std=c99", "-g", "-shared", "-fPIC", "-Wl,-soname,liboutrigger.so.0", folder / "bodies.c", "-o", made], check=True)
    return made


def changes(old_text, new_text):
    """What abidiff says of them, without functions that are new; empty: nothing."""
    with tempfile.TemporaryDirectory() as folder:
        old, new = (library(Path(folder) / name, text) for name, text in (("old", old_text), ("new", new_text)))
        done = subprocess.run(["abidiff", "--no-added-syms", "--suppressions", HERE / "suppressions.ini", old, new],
                              capture_output=True, text=True, check=False)
        if done.returncode & 3:  # a tool's fault or a wrong call
            raise RuntimeError(done.stderr or done.stdout)
        return done.stdout if done.returncode else ""


class Abigail(unittest.TestCase):
    def test_released_headers_still_hold(self):
        self.assertTrue(FROZEN, "no frozen header")
        new = HEADER.read_text(encoding="utf-8")
        for frozen in FROZEN:
            with self.subTest(header=frozen.name):
                self.assertEqual(changes(frozen.read_text(encoding="utf-8"), new), "")

    def test_the_check_catches(self):
        old = HEADER.read_text(encoding="utf-8")
        barrier = "otr_comm_barrier(otr_comm *comm)"
        for before, after, said in (("OTR_API int32_t otr_abi_version(void) OTR_NOEXCEPT;", "", "otr_abi_version"),
                                    (barrier, "otr_comm_barrier(otr_comm *comm, int32_t x)", "parameter 2"),
                                    ("  int32_t outcome;", "  int64_t outcome;", "otr_step_report")):
            with self.subTest(change=after):
                self.assertIn(before, old)
                self.assertIn(said, changes(old, old.replace(before, after)))
        added = old.replace(f"OTR_API int32_t {barrier}", f"OTR_API int32_t otr_new(void) OTR_NOEXCEPT;\nOTR_API int32_t {barrier}")
        self.assertNotEqual(added, old)
        self.assertEqual(changes(old, added), "")


if __name__ == "__main__":
    unittest.main()
