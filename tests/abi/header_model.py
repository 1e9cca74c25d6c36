# SPDX-License-Identifier: Apache-2.0
"""Reads outrigger.h, whose form is regular: functions with their comments, structs, constants."""

import re
from dataclasses import dataclass, field
from pathlib import Path

COMMENT = r"/\*.*?\*/"
FUNCTION = r"OTR_API\s+(?P<prototype>[^;{}]*?)\s+OTR_NOEXCEPT\s*;"
STRUCT = r"typedef\s+struct\s+(?P<struct>otr_\w+)\s*\{(?P<fields>.*?)\}\s*(?P=struct)\s*;"
ENUM = r"enum\s*\{(?P<enumerators>.*?)\}\s*;"
ITEM = re.compile(f"(?P<comment>{COMMENT})|{FUNCTION}|{STRUCT}|{ENUM}", re.DOTALL)


@dataclass
class Function:
    name: str
    prototype: str  # without comments, white space made single
    comment: str  # above it, or above the run of declarations it belongs to; white space made single


@dataclass
class Header:
    functions: dict[str, Function] = field(default_factory=dict)
    structs: dict[str, list[str]] = field(default_factory=dict)  # name → field names, in order
    constants: list[str] = field(default_factory=list)


def without_comments(text):
    return re.sub(COMMENT, " ", text, flags=re.DOTALL)


def squeeze(text):
    return re.sub(r"\s+", " ", without_comments(text)).strip()


def parse(text):
    header = Header()
    comment, end_of_last = "", 0
    for item in ITEM.finditer(text):
        # An empty line ends the run of declarations that one comment speaks of.
        if "\n\n" in text[end_of_last:item.start()]:
            comment = ""
        end_of_last = item.end()
        if item["comment"]:
            comment = re.sub(r"\s+(?:\*\s)?\s*", " ", item["comment"])
        elif item["prototype"]:
            prototype = squeeze(item["prototype"])
            name = re.search(r"(\w+) ?\(", prototype)[1]
            header.functions[name] = Function(name, prototype, comment)
        elif item["struct"]:
            declarations = squeeze(item["fields"]).split(";")
            header.structs[item["struct"]] = [field_name(d) for d in declarations if d.strip()]
        else:
            enumerators = squeeze(item["enumerators"]).split(",")
            header.constants += [e.split("=")[0].strip() for e in enumerators if e.strip()]
    header.constants += re.findall(r"^#define (OTR_(?:ABI_)?VERSION_?\w*) ", text, re.MULTILINE)
    return header


def field_name(declaration):
    pointer = re.search(r"\(\*(\w+)\)", declaration)  # to a function
    return (pointer or re.search(r"(\w+)\s*(?:\[\w+\])?\s*$", declaration))[1]


def read(path):
    return parse(Path(path).read_text(encoding="utf-8"))
