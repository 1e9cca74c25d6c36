# SPDX-License-Identifier: Apache-2.0
"""A program built from a released header still fits today's: same constants, prototypes and layouts."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import freeze
import header_model

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "c_api/include/outrigger.h"
FROZEN = sorted(Path(__file__).parent.glob("otr_*.h"))
SYMBOLS = ROOT / "c_api/symbols.txt"
VERSION_CONSTANT = re.compile(r"OTR_(VERSION|ABI_VERSION)")


def measure(header_text, header):
    """Sizes, offsets and constants as the compiler sees them: {text: number}."""
    lines = []
    for struct, fields in header.structs.items():
        lines.append(f'  printf("sizeof {struct}=%lld\\n", (long long)sizeof(struct {struct}));')
        lines += [f'  printf("{struct}.{f}=%lld\\n", (long long)offsetof(struct {struct}, {f}));' for f in fields]
    for name in header.constants:
        if not VERSION_CONSTANT.match(name):
            lines.append(f'  printf("{name}=%lld\\n", (long long){name});')
    program = '#include <stdio.h>\n#include "header.h"\nint main(void) {\n' + "\n".join(lines) + "\n  return 0;\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "header.h").write_text(header_text, encoding="utf-8")
        (folder / "measure.c").write_text(program, encoding="utf-8")
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, "-std=c99", folder / "measure.c", "-o", folder / "measure"], check=True)
        text = subprocess.run([folder / "measure"], capture_output=True, text=True, check=True).stdout
    return {key: int(value) for key, value in (line.split("=") for line in text.splitlines())}


def breaks(old_text, new_text):
    """What a program built from the old header would trip over, as a list of texts."""
    old, new = header_model.parse(old_text), header_model.parse(new_text)
    found = []
    for name, function in old.functions.items():
        if name not in new.functions:
            found.append(f"{name} is gone")
        elif new.functions[name].prototype != function.prototype:
            found.append(f"{name} has another prototype")
    old_numbers, new_numbers = measure(old_text, old), measure(new_text, new)
    for key, value in old_numbers.items():
        if key not in new_numbers:
            found.append(f"{key} is gone")
        elif key.startswith("sizeof ") and old.structs[key.split()[1]][0] == "struct_size":
            if new_numbers[key] < value:
                found.append(f"{key} shrank from {value} to {new_numbers[key]}")
        elif new_numbers[key] != value:
            found.append(f"{key} was {value} and is {new_numbers[key]}")
    return found


class Frozen(unittest.TestCase):
    def test_released_headers_still_hold(self):
        self.assertTrue(FROZEN, "no frozen header")
        new = HEADER.read_text(encoding="utf-8")
        for frozen in FROZEN:
            with self.subTest(header=frozen.name):
                self.assertEqual(breaks(frozen.read_text(encoding="utf-8"), new), [])

    def test_the_table_of_functions_only_grows(self):
        new = SYMBOLS.read_text(encoding="utf-8").split()
        for frozen in FROZEN:
            with self.subTest(header=frozen.name):
                old = frozen.with_suffix(".symbols").read_text(encoding="utf-8").split()
                self.assertEqual(new[:len(old)], old)

    def test_new_functions_come_last(self):
        self.assertEqual(freeze.ordered(["otr_b", "otr_gone", "otr_a"], ["otr_a", "otr_new", "otr_b"]), ["otr_b", "otr_a", "otr_new"])

    def test_the_check_catches(self):
        old = HEADER.read_text(encoding="utf-8")
        changes = {
            "is gone": ("OTR_API int32_t otr_abi_version(void) OTR_NOEXCEPT;", ""),
            "another prototype": ("otr_comm_barrier(otr_comm *comm)", "otr_comm_barrier(otr_comm *comm, int32_t x)"),
            "OTR_E_STATE was -2": ("OTR_E_STATE = -2", "OTR_E_STATE = -98"),
            "shrank": ("  int32_t replicated;", "  int8_t  replicated;"),
            "otr_step_report.outcome was": ("  int32_t outcome;", "  int64_t outcome;"),
        }
        for expected, (before, after) in changes.items():
            with self.subTest(expected=expected):
                self.assertIn(before, old)
                new = old.replace(before, after)
                if expected == "shrank":
                    new = re.sub(r"(int8_t  replicated;.*?)uint64_t reserved\[5\]", r"\1uint64_t reserved[4]", new,
                                 count=1, flags=re.DOTALL)
                self.assertIn(expected, "; ".join(breaks(old, new)))
        self.assertEqual(breaks(old, old), [])


if __name__ == "__main__":
    unittest.main()
