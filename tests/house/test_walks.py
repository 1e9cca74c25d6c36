# SPDX-License-Identifier: Apache-2.0
"""docs/design.md walks through functions that exist, in the files that it names."""

import unittest

import tree
import walks

PAGE = """**One gradient's way**, to the weight:

| step | function (file) | what |
|---|---|---|
| 1 | `otr_a` → `A::f` (a.cpp), then `free` (b.cpp); `free` → `last` | by `B`; [home](x) (a.h) |

**One parameter's way**:

| step | function (file) | what |
|---|---|---|
| 1 | `layout::A` | laid out |
"""
SOURCES = {"core/x/a.h": "class A {\n void f(int);\n};\n", "core/x/a.cpp": "void A::f(int) {\n}\n",
           "core/x/b.cpp": "int last() { return 1; }\nint free(int x) {\n  return last();\n}\n",
           "c_api/src/a.cpp": "int otr_a(int x) {\n  a.f(x);\n  free(x);\n}\n"}


class Walks(unittest.TestCase):
    def test_the_page(self):
        page = tree.text_of("docs/design.md")
        self.assertGreaterEqual(len(walks.cells(page)), 12)
        sources = {path.as_posix(): tree.text_of(path) for path in tree.files() if path.parts[0] in ("core", "c_api") and path.suffix in (".h", ".cpp")}
        found = walks.faults(page, sources, tree.text_of("c_api/include/outrigger.h"))
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_what_is_wrong_is_found(self):
        header = "int otr_a(int);"
        self.assertEqual(walks.faults(PAGE, SOURCES, header), [])
        cases = [("`A::f`", "`A::g`", "no A::g"), ("`A::f`", "`C::f`", "no C::f"), ("`otr_a`", "`otr_b`", "no otr_b"),
                 ("`free`", "`freed`", "no freed"), ("`layout::A`", "`layout::C`", "no layout::C"), ("(a.cpp)", "(c.cpp)", "no c.cpp"),
                 ("`free` → `last`", "`last` → `free`", "last does not call free"),
                 ("`A::f` (a.cpp), then `free` (b.cpp)", "`free` (b.cpp), then `A::f` (a.cpp)", "does not call A::f behind free"),
                 ("(a.h)", "(c.h)", "no c.h"), ("(a.cpp)", "(b.cpp)", "A::f is not in b.cpp"), ("(b.cpp)", "(b.cpp, a.h)", "")]
        for old, new, text in cases:
            with self.subTest(new=new):
                found = walks.faults(PAGE.replace(old, new), SOURCES, header)
                self.assertEqual(any(text in one for one in found), text != "", found)


if __name__ == "__main__":
    unittest.main()
