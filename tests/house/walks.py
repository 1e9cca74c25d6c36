# SPDX-License-Identifier: Apache-2.0
"""The ways of a gradient and of a parameter in docs/design.md: each function and file that they name is where they say."""

import re

TITLES = ("One gradient's way", "One parameter's way")
NAME = re.compile(r"`([A-Za-z_]\w*(?:::\w+)*)`")
FILE = re.compile(r"\b(?:core/)?\w+\.(?:cpp|h)\b")


def cells(page):
    """(row, its function cell, its text cell) of both tables."""
    found = []
    for title in TITLES:
        _, _, rest = page.partition(f"**{title}**")
        table = re.search(r"(?:^\|.*\n)+", rest, re.M)
        rows = table.group(0).splitlines()[2:] if table else []
        for row in rows:
            number, function, text = (cell.strip() for cell in row.strip("|").split("|"))
            found.append((f"{title}, step {number}", function, text))
    return found


def bodies_of(kind, sources):
    """The texts of the classes of that name."""
    pattern = re.compile(rf"^(?:class|struct) {kind}\b[^;{{]*\{{.*?^\}};", re.M | re.S)
    return [body for text in sources.values() for body in pattern.findall(text)]


def stands(name, sources, header):
    """Whether there is such a function or type."""
    if name.startswith("otr_"):
        return re.search(rf"\b{name}\s*\(", header) is not None
    kind, _, member = name.rpartition("::")
    kind = kind.rpartition("::")[2]
    if kind and kind[0].isupper():
        return any(re.search(rf"\b{member}\s*\(", body) for body in bodies_of(kind, sources))
    return bool(bodies_of(member, sources)) or any(re.search(rf"^[\w:<>&* \[\]]+\b(?:\w+::)*{member}\(", text, re.M) for text in sources.values())


def faults(page, sources, header):
    """sources: the core's files by path."""
    found = []
    for where, function, text in cells(page):
        names = NAME.findall(function)
        found += [f"{where}: there is no {name}" for name in names if not stands(name, sources, header)]
        for file in FILE.findall(function) + FILE.findall(text):
            texts = [content for path, content in sources.items() if path.endswith("/" + file)]
            if not texts:
                found.append(f"{where}: there is no {file}")
        # The name in front of a list of files is in one of them, and each has one of the row's names.
        for before, files in re.findall(r"`([\w:]+)` \(([^)]*)\)", function):
            listed = [(file, [content for path, content in sources.items() if path.endswith("/" + file)]) for file in FILE.findall(files)]
            last = before.rpartition("::")[2]
            if listed and not any(re.search(rf"\b{last}\b", content) for _, texts in listed for content in texts):
                found.append(f"{where}: {before} is not in {files}")
            for file, texts in listed:
                if texts and not any(re.search(rf"\b{name.rpartition('::')[2]}\b", content) for name in names for content in texts):
                    found.append(f"{where}: {file} has none of the row's functions")
    return found
