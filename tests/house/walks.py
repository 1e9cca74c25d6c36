# SPDX-License-Identifier: Apache-2.0
"""The ways of a gradient and of a parameter in docs/design.md: each function and file that they name is where they say, and an arrow is a call."""

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


def texts_of(name, sources):
    """The bodies of the functions of that name; of a class's, where one is named."""
    kind, _, member = name.rpartition("::")
    kind = kind.rpartition("::")[2]
    scope = rf"{kind}::" if kind and kind[0].isupper() else r"(?:\w+::)*"
    start = re.compile(rf"^\S[^\n;]*\b{scope}{member}\((?:[^;{{}}]|\n)*?\{{", re.M)
    found = []
    for text in sources.values():
        for match in start.finditer(text):
            line = text[match.end():].partition("\n")[0]
            body = text[match.end():]
            found.append(line if line.endswith("}") else re.split(r"^\}", body, maxsplit=1, flags=re.M)[0])
    return found


def place_of(name, text, behind=0):
    """Where a function's text uses the name first, or −1."""
    match = re.compile(rf"\b{name.rpartition('::')[2]}\b").search(text, behind)
    return match.start() if match else -1


def order_faults(function, sources):
    """`A` → `B`: A's text has B. `A` → `B`, then `C`: and C behind it."""
    found, caller, previous, end = [], None, None, 0
    for match in NAME.finditer(function):
        name, between = match[1], function[end:match.start()]
        end = match.end()
        if "→" in between:
            caller, before = previous, None
        elif re.search(r"\bthen\b", between):
            before = previous
        else:
            caller, before = None, None
        previous = name
        if caller is None:
            continue
        texts = texts_of(caller, sources)
        follows = any(place_of(name, text, max(0, place_of(before, text)) if before else 0) >= 0 for text in texts)
        if not follows:
            found.append(f"{caller} does not call {name}" + (f" behind {before}" if before else ""))
    return found


def faults(page, sources, header):
    """sources: the core's files by path."""
    found = []
    for where, function, text in cells(page):
        names = NAME.findall(function)
        found += [f"{where}: there is no {name}" for name in names if not stands(name, sources, header)]
        found += [f"{where}: {one}" for one in order_faults(function, sources)]
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
