# SPDX-License-Identifier: Apache-2.0
"""Every file keeps the house's rules, and each rule catches what it is there for."""

import collections
import re
import unittest

import rules
import tree


class Rules(unittest.TestCase):
    def test_all_files(self):
        found, looked_at = [], 0
        for path in tree.files():
            text = tree.text_of(path)
            if text is None:
                continue
            looked_at += 1
            chosen = rules.ALL_FILES + (rules.SOURCES if tree.is_source(path) else [])
            for rule in chosen:
                found += rule(path.as_posix(), text)
        self.assertGreater(looked_at, 50)
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_exceptions_are_needed(self):
        for path in rules.LONGER:
            lines = tree.text_of(tree.ROOT / path).count("\n")
            self.assertGreater(lines, rules.MAX_LINES, f"{path} needs no exception any more")

    def test_each_rule_catches(self):
        cases = [
            (rules.no_machine_paths, "see /ho" "me/someone/x", "see /dev/shm/x, ${HOME}/work/x and core/work/y"),
            (rules.no_machine_paths, 'open("/wo' 'rk/main")', "/usr/bin/env, /proc/self, a/work/b"),
            (rules.no_registry_hosts, "https://pyp" "i.org/simple", "PyPI's name is taken"),
            (rules.no_open_ends, "// TO" "DO later", "// todos are done"),
            (rules.has_licence, "int x;\n", "// SPDX-License-Identifier: MIT OR Apache-2.0\n"),
            (rules.is_short, "x\n" * (rules.MAX_CORE + 1), "x\n" * rules.MAX_CORE),
            (rules.ends_with_one_newline, "x", "x\n"),
            (rules.ends_with_one_newline, "x\n\n", ""),
        ]
        for rule, bad, good in cases:
            with self.subTest(rule=rule.__name__, bad=bad[:40]):
                self.assertEqual(len(rule("core/x.cpp", bad)), 1)
                self.assertEqual(rule("core/x.cpp", good), [])
        for count, found in ((rules.MAX_LINES, 0), (rules.MAX_LINES + 1, 1)):
            self.assertEqual(len(rules.is_short("tests/x.cpp", "x\n" * count)), found)


class Environment(unittest.TestCase):
    def test_every_variable_of_ours_is_in_the_contract(self):
        contract = tree.text_of("docs/contract.md")
        read = set()
        for path in tree.files():
            if path.parts[0] in ("core", "kernels", "c_api") and path.suffix in (".c", ".cpp", ".h"):
                read.update(re.findall(r'(?:getenv|lookup|present)\("(OTR_\w+)"\)', tree.text_of(path)))
        self.assertGreaterEqual(len(read), 3)
        self.assertEqual([name for name in sorted(read) if f"`{name}`" not in contract], [])


class Documentation(unittest.TestCase):
    def test_code_of_the_pages_stands_in_an_example(self):
        folders = {"c": ("c_api", "examples"), "python": ("bindings", "python", "examples")}
        suffixes = {"c": ".c", "python": ".py"}
        programs = {language: [[line.strip() for line in tree.text_of(path).split("\n")] for path in tree.files()
                               if path.parts[:len(folder)] == folder and path.suffix == suffixes[language]]
                    for language, folder in folders.items()}
        blocks = collections.Counter()
        for path in tree.files():
            if path.parts[0] != "docs" or path.suffix != ".md" or path.name == "design.md":
                continue
            for language, block in re.findall(r"^```(c|python)\n(.*?)^```", tree.text_of(path), re.M | re.S):
                lines = [line.strip() for line in block.strip().split("\n")]
                found = any(program[i:i + len(lines)] == lines for program in programs[language] for i in range(len(program)))
                self.assertTrue(found, f"{path}: in no example, line by line:\n{block}")
                blocks[language] += 1
        self.assertGreaterEqual(blocks["c"], 4)
        self.assertGreaterEqual(blocks["python"], 3)


class Coverage(unittest.TestCase):
    # Lists of all functions, which name a function without testing it.
    LISTS = ("abi", "bindings", "bench", "house")

    def test_every_public_function_is_named_by_a_test(self):
        header = tree.text_of("c_api/include/outrigger.h")
        functions = set(re.findall(r"OTR_API[^;]*?\b(otr_\w+)\s*\(", header))
        self.assertGreater(len(functions), 40)
        tested = set()
        for path in tree.files():
            if path.parts[0] == "tests" and path.parts[1] not in self.LISTS and path.suffix in (".c", ".cpp", ".h"):
                tested.update(re.findall(r"\botr_\w+", tree.text_of(path)))
        self.assertEqual(sorted(functions - tested), [])


if __name__ == "__main__":
    unittest.main()
