# SPDX-License-Identifier: Apache-2.0
"""The documentation site: it is built without a warning, has all functions and statuses, and a dead link ends the build.

    python test_site.py FOLDER      FOLDER: emptied; the site is left there for a look
"""
import html
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
sys.path[:0] = [str(ROOT / "bindings/gen"), str(ROOT / "scripts/docs")]

import errors  # noqa: E402
import header  # noqa: E402
from pages import Pages  # noqa: E402


def build(*arguments):
    return subprocess.run([ROOT / "scripts/docs.sh", *map(str, arguments)], env={**os.environ, "OTR_PYTHON": sys.executable}, capture_output=True, text=True, check=False)


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        done = build(FOLDER / "site")
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        cls.model = header.parse((ROOT / "c_api/include/outrigger.h").read_text(encoding="utf-8"))

    def text(self, page):
        return (FOLDER / "site" / page).read_text(encoding="utf-8")

    def test_every_name_is_in_the_reference(self):
        page = html.unescape(self.text("reference.html"))
        for each in self.model.functions + self.model.structs + self.model.handles + self.model.callbacks:
            self.assertTrue(f'id="{each.name}"' in page, each.name)
        for each in self.model.constants:
            self.assertEqual(page.count(f'id="{each.name}"'), 1, each.name)
        rows = " ".join(re.sub("<[^>]+>", " ", page).split())
        self.assertIn("OTR_E_SHAPE -5 a tensor's shape or strides are not what the call needs", rows)
        self.assertIn('OTR_VERSION_STRING "', rows)
        self.assertIn("DEBUG: each update. constant value OTR_LOG_ERROR 1", rows)

    def test_every_status_is_in_the_catalogue_with_its_texts(self):
        page = html.unescape(self.text("errors.html"))
        statuses = [each.name for each in self.model.constants if re.match(r"OTR_(OK|E_)", each.name)]
        self.assertGreater(len(statuses), 20)
        for name in statuses:
            self.assertTrue(f'id="{name}"' in page, name)
        self.assertTrue("alias_of = …; legal is an id, or -1 for none" in page)
        self.assertGreater(page.count("<li><code>"), 400)

    def test_every_page_of_the_repository_is_in_the_navigation(self):
        index = self.text("index.html")
        for page in (ROOT / "docs").rglob("*.md"):
            link = str(page.relative_to(ROOT / "docs").with_suffix(".html"))
            self.assertTrue(f'href="{link}"' in index, link)

    def test_no_link_leads_out_of_the_site(self):
        """Each relative link of each page is a file of the site; mkdocs has looked at headings."""
        for page in (FOLDER / "site").rglob("*.html"):
            if page.name == "404.html":
                continue
            for link in re.findall(r'href="([^"#?:]+)(?:#[^"]*)?"', page.read_text(encoding="utf-8")):
                self.assertTrue((page.parent / html.unescape(link)).resolve().exists(), f"{page}: {link}")

    def test_a_dead_link_ends_the_build(self):
        pages = FOLDER / "pages"
        shutil.copytree(ROOT / "docs", pages)
        for page, link in (("waiting", "[x](gone.md)"), ("hosts", "[x](backward.md#no-such-heading)"), ("jax", "[x](../core/gone.cpp)")):
            path = pages / f"{page}.md"
            path.write_text(path.read_text(encoding="utf-8") + f"\n{link}\n", encoding="utf-8")
        done = build(FOLDER / "dead", pages)
        self.assertNotEqual(done.returncode, 0)
        for page, link in (("waiting", "gone.md"), ("hosts", "no-such-heading"), ("jax", "gone.cpp")):
            self.assertTrue(re.search(rf"{page}\.md.*{link}", done.stderr), f"{page}: {link} is not in {done.stderr}")
        self.assertEqual(done.stderr.count("WARNING"), 3, done.stderr)


class Parts(unittest.TestCase):
    def test_texts_of_pieces(self):
        self.assertEqual(errors.plain('"a part of " + std::to_string(bytes) + " is"'), "a part of {} is")
        self.assertEqual(errors.plain(r'"one {} " "two \"x\""'), 'one {} two "x"')

    def test_links_and_lists(self):
        pages = Pages(ROOT, ["README.md", "docs/a.md", "core/x.cpp", "rust/README.md"])
        pages.paths = {"index.md": "README.md", "a.md": "docs/a.md", "source/rust/README.md": "rust/README.md"}
        self.assertEqual(pages.rewritten("a.md", "[x](../core/x.cpp#L1) [r](../rust) [h](https://a.b/c) [me](../README.md)"),
                         "[x](source/core/x.cpp.md#L1) [r](source/rust/README.md) [h](https://a.b/c) [me](index.md)")
        self.assertEqual(pages.rewritten("source/rust/README.md", "[a](../docs/a.md)"), "[a](../../a.md)")
        self.assertEqual(pages.rewritten("a.md", "[`f`](@ref), [g](@ref Main.g)"), "`f`, g")
        self.assertEqual(pages.rewritten("a.md", "text:\n- one\n  more\n- two\n```\ntext\n- code\n```"), "text:\n\n- one\n  more\n- two\n```\ntext\n- code\n```")


if __name__ == "__main__":
    if FOLDER is None:
        sys.exit("usage: test_site.py FOLDER")
    unittest.main()
