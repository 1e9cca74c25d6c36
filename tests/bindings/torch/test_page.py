# SPDX-License-Identifier: Apache-2.0
"""Each piece of Python on docs/pytorch.md and on the page of the multimodal example stands in an example, which the tests run."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/pytorch.md").read_text(encoding="utf-8")
EXAMPLES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "bindings/python/examples/torch").glob("*.py")}
MULTIMODAL = ROOT / "bindings/python/examples/multimodal"


def flat(text):
    """Without what a page leaves out: indentation, and what is told to a linter."""
    return "\n".join(re.sub(r"\s*# noqa.*", "", line).strip() for line in text.strip().splitlines())


class Page(unittest.TestCase):
    def test_code_is_from_the_examples(self):
        blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
        self.assertGreater(len(blocks), 8)
        blocks += re.findall(r"```python\n(.*?)```", (MULTIMODAL / "README.md").read_text(encoding="utf-8"), re.DOTALL)
        texts = {name: flat(text) for name, text in EXAMPLES.items()}
        texts |= {path.name: flat(path.read_text(encoding="utf-8")) for path in MULTIMODAL.glob("*.py")}
        for block in blocks:
            with self.subTest(block=block):
                self.assertTrue([name for name, text in texts.items() if flat(block) in text], "is in no example")

    def test_links_to_examples_hold(self):
        linked = set(re.findall(r"examples/torch/(\w+\.py)\)", PAGE))
        self.assertGreater(len(linked), 3)
        self.assertLessEqual(linked, set(EXAMPLES))


if __name__ == "__main__":
    unittest.main()
