# SPDX-License-Identifier: Apache-2.0
"""Each piece of Python on docs/numpy.md, docs/hosts.md, docs/checkpoints.md, docs/jax.md, docs/offload.md, docs/messages.md, docs/watching.md and docs/migration.md stands in an example, which the tests run; so does the code of other languages' pages."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]


def flat(text):
    """Without indentation, which a page leaves out."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


class Pages(unittest.TestCase):
    def test_code_is_from_the_examples(self):
        for page_name, name, least in (("numpy", "numpy", 3), ("checkpoints", "numpy", 1), ("hosts", "numpy", 1), ("jax", "jax", 6), ("offload", "torch", 3), ("messages", "numpy", 3), ("watching", "numpy", 3), ("migration", "torch", 3)):
            page = (ROOT / f"docs/{page_name}.md").read_text(encoding="utf-8")
            folder = ROOT / "bindings/python/examples" / name
            texts = {path.name: flat(path.read_text(encoding="utf-8")) for path in folder.glob("*.py")}
            blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
            self.assertGreaterEqual(len(blocks), least)
            for block in blocks:
                with self.subTest(page=page_name, block=block):
                    self.assertTrue([text for text in texts.values() if flat(block) in text], "is in no example")
            self.assertLessEqual(set(re.findall(rf"examples/{name}/(\w+\.py)\)", page)), set(texts))


class Languages(unittest.TestCase):
    """Pages of other languages than Python: all their code is from one example, in its order."""

    def check(self, language, example, least):
        page = (ROOT / f"docs/{language}.md").read_text(encoding="utf-8")
        text, at = flat((ROOT / example).read_text(encoding="utf-8")), 0
        blocks = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
        self.assertGreaterEqual(len(blocks), least)
        for block in blocks:
            found = text.find(flat(block), at)
            self.assertGreaterEqual(found, 0, f"is not in {example} from there on:\n{block}")
            at = found + len(flat(block))
        self.assertIn(f"(../{example})", page)

    def test_java(self):
        self.check("java", "bindings/java/examples/Regression.java", 3)

    def test_lua(self):
        self.check("lua", "bindings/lua/examples/regression.lua", 3)

    def test_julia(self):
        self.check("julia", "julia/examples/plays.jl", 2)

    def test_csharp(self):
        self.check("csharp", "bindings/csharp/examples/Regression.cs", 3)


class Rust(unittest.TestCase):
    """Its page has code of several examples."""
    PAGE = (ROOT / "docs/rust.md").read_text(encoding="utf-8")
    EXAMPLES = list((ROOT / "rust").glob("*/examples/*.rs"))

    def test_code_is_from_the_examples(self):
        blocks = re.findall(r"```rust\n(.*?)```", self.PAGE, re.DOTALL)
        self.assertGreater(len(blocks), 8)
        texts = [flat(path.read_text(encoding="utf-8")) for path in self.EXAMPLES]
        for block in blocks:
            with self.subTest(block=block):
                self.assertTrue([text for text in texts if flat(block) in text], "is in no example")

    def test_examples_are_named(self):
        for path in self.EXAMPLES:
            self.assertIn(f"(../rust/{path.relative_to(ROOT / 'rust')})", self.PAGE)


if __name__ == "__main__":
    unittest.main()
