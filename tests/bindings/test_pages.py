# SPDX-License-Identifier: Apache-2.0
"""Each piece of Python on docs/numpy.md, docs/hosts.md, docs/checkpoints.md, docs/jax.md, docs/offload.md, docs/messages.md and docs/watching.md, and of Julia on docs/julia.md, stands in an example, which the tests run."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]


def flat(text):
    """Without indentation, which a page leaves out."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


class Pages(unittest.TestCase):
    def test_code_is_from_the_examples(self):
        for page_name, name, least in (("numpy", "numpy", 3), ("checkpoints", "numpy", 1), ("hosts", "numpy", 1), ("jax", "jax", 6), ("offload", "torch", 3), ("messages", "numpy", 3), ("watching", "numpy", 3)):
            page = (ROOT / f"docs/{page_name}.md").read_text(encoding="utf-8")
            folder = ROOT / "bindings/python/examples" / name
            texts = {path.name: flat(path.read_text(encoding="utf-8")) for path in folder.glob("*.py")}
            blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
            self.assertGreaterEqual(len(blocks), least)
            for block in blocks:
                with self.subTest(page=page_name, block=block):
                    self.assertTrue([text for text in texts.values() if flat(block) in text], "is in no example")
            self.assertLessEqual(set(re.findall(rf"examples/{name}/(\w+\.py)\)", page)), set(texts))

    def test_code_of_julia(self):
        example = flat((ROOT / "julia/examples/plays.jl").read_text(encoding="utf-8"))
        blocks = re.findall(r"```julia\n(.*?)```", (ROOT / "docs/julia.md").read_text(encoding="utf-8"), re.DOTALL)
        self.assertGreaterEqual(len(blocks), 2)
        for block in blocks:
            self.assertIn(flat(block), example)


if __name__ == "__main__":
    unittest.main()
