# SPDX-License-Identifier: Apache-2.0
"""The Python package has no circle of imports, and the check sees each kind of one."""

import unittest

import imports
import tree


def project_sources():
    chosen = [p for p in tree.files() if p.suffix in imports.SUFFIXES and p.as_posix().startswith(f"{imports.ROOT}{imports.PACKAGE}/")]
    return {p.as_posix(): tree.text_of(p) for p in chosen}


def found(texts):
    """In a package of these files."""
    return imports.violations({f"{imports.ROOT}outrigger/{name}": text for name, text in texts.items()})


class Imports(unittest.TestCase):
    def test_the_package_has_no_circle(self):
        sources = project_sources()
        edges = imports.imports(sources)
        self.assertGreater(sum(map(len, edges.values())), 100)
        self.assertEqual(imports.violations(sources), [])

    def test_a_circle_is_caught(self):
        back = {
            "at the top": "from .b import g\n",
            "of the module": "from . import b\n",
            "with its whole name": "import outrigger.b\n",
            "from its whole name": "from outrigger import b\n",
            "in a function": "def f():\n    from . import b\n    return b\n",
            "in a method": "class F:\n    def f(self):\n        from .b import g\n        return g\n",
            "for types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import G\n",
            "where it may fail": "try:\n    from .b import g\nexcept ImportError:\n    g = None\n",
            "all of its names": "from .b import *\n",
            "beside another": "from . import d, b\n",
        }
        for how, text in back.items():
            with self.subTest(how):
                circle = found({"a.py": text, "b.py": "from .c import h\n", "c.py": "from .a import f\n", "d.py": ""})
                self.assertEqual(len(circle), 1)
                self.assertIn("outrigger.a -> outrigger.b -> outrigger.c -> outrigger.a", circle[0])

    def test_a_package_that_imports_back_is_caught(self):
        circle = found({"__init__.py": "from .a import f\n", "a.py": "from . import g\n"})
        self.assertIn("outrigger -> outrigger.a -> outrigger", circle[0])

    def test_a_package_comes_with_its_modules(self):
        """The import of t.leaf runs t/__init__.py first."""
        circle = found({"a.py": "def f():\n    from .t.leaf import g\n", "t/__init__.py": "from .whole import h\n",
                        "t/whole.py": "from ..a import f\n", "t/leaf.py": ""})
        self.assertIn("outrigger.a -> outrigger.t -> outrigger.t.whole -> outrigger.a", circle[0])

    def test_a_stub_is_its_module(self):
        self.assertEqual(len(found({"a.pyi": "from .b import g\n", "b.py": "from .a import f\n"})), 1)

    def test_what_is_no_circle(self):
        self.assertEqual(found({
            "__init__.py": "from .a import f\nfrom . import b\n", "a.py": "import json\nfrom . import b\n", "b.py": "from torch import a\n",
            "t/__init__.py": "from . import low\nfrom .high import f\n", "t/low.py": "from .. import b, g\n",
            "t/high.py": "from .low import g\nfrom ..a import f\n"}), [])


if __name__ == "__main__":
    unittest.main()
