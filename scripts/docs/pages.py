# SPDX-License-Identifier: Apache-2.0
"""Pages of the site that are files of the repository elsewhere, and links between all of them.

README.md is the first page, docs/x.md is x.md, and any other file is source/<path>.md: as it is if it is Markdown, else its text as code.
"""
import os
import posixpath
import re

LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
OF_DOCUMENTER = re.compile(r"\[([^\]]*)\]\(@\w+[^)]*\)")  # Julia's links to docstrings, which are not here
FENCE = re.compile(r"^\s*(```+)")
LANGUAGES = {".c": "c", ".h": "c", ".cpp": "cpp", ".py": "python", ".rs": "rust", ".jl": "julia", ".java": "java", ".lua": "lua", ".cs": "csharp",
             ".sh": "bash", ".json": "json", ".toml": "toml", ".cmake": "cmake", ".yml": "yaml"}
FIXED = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}


class Pages:
    def __init__(self, root, tracked):
        self.root, self.files = root, set(filter(None, tracked))
        self.paths = {}  # page → path in the repository

    def collect(self, own):
        """Page → Markdown of the files outside of docs/ that these pages need, directly or not. own: page → Markdown of docs/ and of what is generated beside it."""
        made = {}
        self.paths = {uri: f"docs/{uri}" for uri in own} | {uri: path for path, uri in FIXED.items()}
        waiting = [*own, *FIXED.values()]
        while waiting:
            uri = waiting.pop()
            if uri not in own:
                made[uri] = self.text_of(self.paths[uri])
            if not self.is_markdown(uri):
                continue
            for path in self.targets(uri, own.get(uri) or made[uri]):
                target = self.page_of(path)
                if target and target not in self.paths:
                    self.paths[target] = path
                    waiting.append(target)
        return made

    def is_markdown(self, uri):
        return self.paths[uri].endswith(".md")

    def targets(self, uri, text):
        return [path for _, link, _ in LINK.findall(text) if (path := self.resolved(uri, link))]

    def resolved(self, uri, link):
        """The path in the repository that a link of this page names; None: it is none."""
        if re.match(r"[a-z]+:", link):
            return None
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self.paths[uri]), link))
        if f"{path}/README.md" in self.files:
            return f"{path}/README.md"
        return path

    def page_of(self, path):
        """The page of a file or folder; None: there is none (pictures of docs/, what does not exist)."""
        if path in FIXED:
            return FIXED[path]
        if path not in self.files:
            return f"source/{path}/index.md" if self.below(path) else None
        if path.startswith("docs/") and path.endswith(".md"):
            return path.removeprefix("docs/")
        if path.startswith("docs/") and not path.endswith(".json"):
            return None
        return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"

    def below(self, folder):
        return sorted(path for path in self.files if path.startswith(f"{folder}/"))

    def text_of(self, path):
        if path.endswith(".md"):
            return (self.root / path).read_text(encoding="utf-8")
        if path not in self.files:
            return f"# {path}\n\n" + "".join(f"- `{each.removeprefix(path + '/')}`\n" for each in self.below(path))
        text = (self.root / path).read_text(encoding="utf-8")
        language = LANGUAGES.get(os.path.splitext(path)[1], "text")
        return f"# {path}\n\n````{language}\n{text}````\n"

    def rewritten(self, uri, markdown):
        """Links lead to pages of the site, and lists begin after an empty line, which GitHub does not ask for."""
        if uri not in self.paths or not self.is_markdown(uri):
            return markdown
        lines, fence = [], None
        for line in markdown.split("\n"):
            mark = FENCE.match(line)
            if mark and (fence is None or mark[1].startswith(fence)):
                fence = mark[1] if fence is None else None
            elif fence is None:
                line = LINK.sub(lambda link: link[1] + self.link(uri, link[2]) + link[3], OF_DOCUMENTER.sub(r"\1", line))
                before = lines[-1] if lines else ""
                if re.match(r"([-*]|\d+\.) |\|", line) and before.strip() and not re.match(r"([-*]|\d+\.) |  |\|", before):
                    lines.append("")
            lines.append(line)
        return "\n".join(lines)

    def link(self, uri, link):
        path = self.resolved(uri, link)
        page = path and self.page_of(path)
        return posixpath.relpath(page, posixpath.dirname(uri) or ".") if page else link
