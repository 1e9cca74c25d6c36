# SPDX-License-Identifier: Apache-2.0
"""Each piece of Rust on docs/rust.md stands in an example, which the tests run."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/rust.md").read_text(encoding="utf-8")
EXAMPLES = list((ROOT / "rust").glob("*/examples/*.rs"))


def flat(text):
    return "\n".join(line.strip() for line in text.strip().splitlines())


class Page(unittest.TestCase):
    def test_code_is_from_the_examples(self):
        blocks = re.findall(r"```rust\n(.*?)```", PAGE, re.DOTALL)
        self.assertGreater(len(blocks), 8)
        texts = [flat(path.read_text(encoding="utf-8")) for path in EXAMPLES]
        for block in blocks:
            with self.subTest(block=block):
                self.assertTrue([text for text in texts if flat(block) in text], "is in no example")

    def test_examples_are_named(self):
        for path in EXAMPLES:
            self.assertIn(f"(../rust/{path.relative_to(ROOT / 'rust')})", PAGE)


if __name__ == "__main__":
    unittest.main()
