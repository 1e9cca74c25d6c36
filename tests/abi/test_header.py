# SPDX-License-Identifier: Apache-2.0
"""outrigger.h and outrigger_api.h compile alone in every dialect they promise, and the first says of each function what it must."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import header_model

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "c_api/include/outrigger.h"
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
DIALECTS = [("c", "c99"), ("c", "c11"), ("c++", "c++11"), ("c++", "c++20")]
KIND = re.compile(r"\b(collective|local|any thread|may wait)\b", re.IGNORECASE)


def compilers():
    found = [c for c in ("gcc", "clang-19", "clang") if shutil.which(c)]
    return found or ["cc"]


def faults_of_function(function):
    """What a function's comment lacks."""
    faults = []
    if not function.comment:
        return [f"{function.name}: no comment"]
    if not re.search(r"Since: \d+\.\d+", function.comment):
        faults.append(f"{function.name}: no 'Since: x.y'")
    if not KIND.search(function.comment):
        faults.append(f"{function.name}: says neither Collective, Local, Any thread nor May wait")
    return faults


class HeaderAlone(unittest.TestCase):
    def compile(self, compiler, language, standard, text):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "alone"
            source.write_text(text)
            command = [compiler, "-x", language, f"-std={standard}", *STRICT, "-I", HEADER.parent, source]
            return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_compiles_alone(self):
        for compiler in compilers():
            for language, standard in DIALECTS:
                for header in ("outrigger.h", "outrigger_api.h"):
                    with self.subTest(compiler=compiler, standard=standard, header=header):
                        done = self.compile(compiler, language, standard, f'#include "{header}"\n')
                        self.assertEqual(done.returncode, 0, done.stderr)

    def test_its_macros_compile_clean(self):
        text = '#include "outrigger.h"\nint32_t f(void);\nint32_t f(void) {\n' \
               "  otr_step_report report = OTR_STEP_REPORT_INIT;\n  return report.outcome;\n}\n"
        for compiler in compilers():
            for language, standard in DIALECTS:
                with self.subTest(compiler=compiler, standard=standard):
                    done = self.compile(compiler, language, standard, text)
                    self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_flags_do_reject(self):
        text = '#include "outrigger.h"\nstruct bad { otr_engine by_value; };\n'
        self.assertNotEqual(self.compile(compilers()[0], "c", "c99", text).returncode, 0)
        text = '#include "outrigger.h"\nlong long f(void) { int unused; return 1; }\n'
        self.assertNotEqual(self.compile(compilers()[0], "c", "c99", text).returncode, 0)


class Documentation(unittest.TestCase):
    def test_every_function_says_what_it_must(self):
        functions = header_model.read(HEADER).functions.values()
        self.assertGreater(len(functions), 40)
        faults = [fault for function in functions for fault in faults_of_function(function)]
        self.assertEqual(faults, [])

    def test_no_function_escapes_the_reader(self):
        text = header_model.without_comments(HEADER.read_text(encoding="utf-8"))
        declared = set(re.findall(r"\b(otr_\w+)\s*\(", re.sub(r"\(\*\w+\)", "", text)))
        self.assertEqual(declared, set(header_model.read(HEADER).functions))

    def test_signatures_keep_to_portable_types(self):
        for function in header_model.read(HEADER).functions.values():
            with self.subTest(function=function.name):
                banned = r"\b(bool|_Bool|long|short|unsigned|int|enum|va_list)\b|\.\.\."
                self.assertNotRegex(function.prototype, banned)

    def test_results_are_a_status(self):
        plain = ("otr_status_name", "otr_last_error_message", "otr_version", "otr_build_info")
        for function in header_model.read(HEADER).functions.values():
            with self.subTest(function=function.name):
                if function.name.endswith("_destroy"):
                    self.assertRegex(function.prototype, r"^void ")
                elif function.name not in plain:
                    self.assertRegex(function.prototype, r"^int32_t ")

    def test_the_check_catches(self):
        def faults(comment, name="otr_x_y"):
            text = f"{comment}\nOTR_API int32_t {name}(int32_t a) OTR_NOEXCEPT;\n"
            return faults_of_function(header_model.parse(text).functions[name])

        self.assertEqual(faults("/* Does it. Local. Since: 0.1 */"), [])
        self.assertIn("Since", faults("/* Does it. Local. */")[0])
        self.assertIn("Collective", faults("/* Does it. Since: 0.1 */")[0])
        self.assertIn("no comment", faults("")[0])
        self.assertIn("no comment", faults("/* Local. Since: 0.1 */\n")[0])


if __name__ == "__main__":
    unittest.main()
