# SPDX-License-Identifier: Apache-2.0
"""The page of all functions, callbacks, handles, structs and constants, from the header."""
import re

SECTION = re.compile(r"/\* ---- (.*?) -+\s*\*/")


def prose(text, known):
    """Comment text as Markdown: names of the header as code, and links where they are documented here."""
    text = re.sub(r"([\\`*_\[\]|])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))

    def name(match):
        plain = match[0].replace("\\", "")
        return f"[`{plain}`](#{plain})" if plain in known else f"`{plain}`"
    return re.sub(r"\b(?:otr|OTR)(?:\\_\w+?)+\b(?:\\_)?", name, text)


def sections(text):
    """(name, where it begins) of the parts of the header."""
    return [(match[1], match.start()) for match in SECTION.finditer(text)]


def item(name, code, doc, known):
    return [f"### `{name}` {{ #{name} }}", "", "```c", code, "```", "", *([prose(doc, known), ""] if doc else [])]


def struct_code(struct):
    if not struct.fields:
        return f"typedef struct {struct.name} {struct.name};"
    lines = []
    for each in struct.fields:
        comment = f"  /* {' '.join(each.doc.split())} */" if each.doc else ""
        lines.append(f"  {each.c};{comment}")
    return f"typedef struct {struct.name} {{\n" + "\n".join(lines) + f"\n}} {struct.name};"


def constant_groups(text, constants):
    """(where it begins, comment, constants) of the macros with a value, and of each enumeration."""
    named = {each.name: each for each in constants}
    groups = [(0, "", [named[name] for name in re.findall(r"^#define (OTR_\w+)", text, re.M) if name in named])]
    for match in re.finditer(r"(?:/\*((?:(?!\*/).)*)\*/\n)?enum \{(.*?)\};", text, re.S):
        comment = re.sub(r"\s*\n \* ?", "\n", match[1] or "").strip()
        inside = [named[name] for name in re.findall(r"\b(OTR_\w+) =", match[2])]
        groups.append((match.start(2), "" if comment.startswith("----") else comment, inside))
    return groups


def constant_table(comment, constants, known):
    rows = []
    for each in constants:
        value = f'"{each.value}"' if isinstance(each.value, str) else each.value
        rows.append(f"| `{each.name}`{{ #{each.name} }} | `{value}` | {prose(' '.join(each.doc.split()), known)} |")
    return [*([prose(comment, known), ""] if comment else []), "| constant | value | |", "|---|---|---|", *rows, ""]


def page(text, model):
    known = {each.name for each in model.functions + model.structs + model.handles + model.callbacks + model.constants}
    groups = constant_groups(text, model.constants)
    places = []
    for each in model.functions:
        places.append((re.search(rf"^OTR_API [^;]*?\b{each.name}\(", text, re.M).start(), each.name, f"{each.c};", each.doc))
    for each in model.handles + model.structs:
        places.append((text.index(f"typedef struct {each.name}"), each.name, struct_code(each), each.doc))
    for each in model.callbacks:
        places.append((text.index(f"(*{each.name})"), each.name, f"typedef {each.c_pointer(each.name)};", each.doc))
    out = ["# Reference", "", "Every function and constant of [outrigger.h](../c_api/include/outrigger.h), in its order. The head of the header says what holds for all of "
           "them: results, ownership, threads, forks, collective calls, interruption.", ""]
    parts = [("Versions", 0), *sections(text)]
    for (name, begin), (_, end) in zip(parts, [*parts[1:], ("", len(text))]):
        inside = sorted(place for place in places if begin <= place[0] < end)
        of_these = [group for place, *group in groups if begin <= place < end]
        if inside or of_these:
            out += [f"## {name}", ""]
        for comment, each in of_these:
            out += constant_table(comment, each, known)
        for _, *rest in inside:
            out += item(*rest, known)
    return "\n".join(out)
