# SPDX-License-Identifier: Apache-2.0
"""The page of all functions, callbacks, handles and structs, from the header."""
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


def page(text, model):
    known = {each.name for each in model.functions + model.structs + model.handles + model.callbacks}
    places = []
    for each in model.functions:
        places.append((re.search(rf"^OTR_API [^;]*?\b{each.name}\(", text, re.M).start(), each.name, f"{each.c};", each.doc))
    for each in model.handles + model.structs:
        places.append((text.index(f"typedef struct {each.name}"), each.name, struct_code(each), each.doc))
    for each in model.callbacks:
        places.append((text.index(f"(*{each.name})"), each.name, f"typedef {each.c_pointer(each.name)};", each.doc))
    out = ["# Reference", "", "Every function of [outrigger.h](../c_api/include/outrigger.h), in its order. The head of the header says what holds for all of them: "
           "results, ownership, threads, forks, collective calls, interruption.", ""]
    parts = sections(text)
    for (name, begin), (_, end) in zip(parts, [*parts[1:], ("", len(text))]):
        inside = sorted(place for place in places if begin <= place[0] < end)
        if inside:
            out += [f"## {name}", ""]
        for _, *rest in inside:
            out += item(*rest, known)
    return "\n".join(out)
