# SPDX-License-Identifier: Apache-2.0
"""mkdocs' hooks: generated pages, and pages for what lies outside of docs/ and is linked from there."""
import subprocess
import sys
from pathlib import Path

from mkdocs.structure.files import File

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "bindings/gen")]

import errors  # noqa: E402
import header  # noqa: E402
import reference  # noqa: E402
from pages import Pages  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
STYLE = ".md-grid { max-width: 80rem; }\n"  # code and tables are wide
pages = None


def on_files(files, config):
    global pages
    docs = Path(config.docs_dir)
    tracked = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True, check=False)
    pages = Pages(ROOT, tracked.stdout.split("\n"))
    text = (ROOT / "c_api/include/outrigger.h").read_text(encoding="utf-8")
    model = header.parse(text)
    files.append(File.generated(config, "site.css", content=STYLE))
    generated = {"reference.md": reference.page(text, model), "errors.md": errors.page(ROOT, model)}
    for uri, content in generated.items():
        files.append(File.generated(config, uri, content=content))
    own = {file.src_uri: (docs / file.src_uri).read_text(encoding="utf-8") for file in files.documentation_pages() if file.src_uri not in generated}
    for uri, content in pages.collect({**own, **generated}).items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    return pages.rewritten(page.file.src_uri, markdown)
