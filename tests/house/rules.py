# SPDX-License-Identifier: Apache-2.0
"""Rules on single files: each takes (path, text) and returns what is wrong, as a list of texts."""

import re

# Written in two halves, so that this file keeps its own rules.
MACHINE_FOLDERS = re.compile(r"(?<![\w.$}~-])/(?:ho" "me|ro" "ot|Us" "ers|wo" "rk|fa" "rm|op" "t|mn" "t)/[\\w.-]")
REGISTRIES = re.compile(
    r"\b(?:pyp" r"i\.org|pythonhos" r"ted\.org|crates" r"\.io|deb\.deb" r"ian\.org|npm" r"js\.(?:org|com)"
    r"|maven\.(?:org|apache\.org)|proxy\.golan" r"g\.org|archive\.ubun" r"tu\.com)\b")
OPEN_ENDS = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
LICENCE = re.compile(r"SPDX-License-Identifier: .*\bApache-2\.0\b")

MAX_LINES = 500
MAX_CORE = 300  # in core
LONGER = {  # path → why it may be longer
    "c_api/include/outrigger.h": "the whole public contract, read from top to bottom, is one file",
    "tests/abi/otr_0.1.h": "the contract as it was released",
}


def no_machine_paths(path, text):
    return [f"{path}: names a machine's folder: {m[0]}…" for m in MACHINE_FOLDERS.finditer(text)]


def no_registry_hosts(path, text):
    if path.endswith(".lock"):
        return []  # written by the package client
    return [f"{path}: names a package registry's host: {m[0]}" for m in REGISTRIES.finditer(text)]


def no_open_ends(path, text):
    return [f"{path}: {m[0]}" for m in OPEN_ENDS.finditer(text)]


def has_licence(path, text):
    if not text.strip():
        return []  # nothing in it to license
    head = "\n".join(text.splitlines()[:5])
    return [] if LICENCE.search(head) else [f"{path}: no SPDX line among the first five"]


def is_short(path, text):
    count = text.count("\n")
    generated = "not to be edited" in "\n".join(text.splitlines()[:5])
    most = MAX_CORE if path.startswith("core/") else MAX_LINES
    if count <= most or path in LONGER or generated:
        return []
    return [f"{path}: {count} lines, more than {most}; split it by concept"]


def ends_with_one_newline(path, text):
    if not text or (text.endswith("\n") and not text.endswith("\n\n")):
        return []
    return [f"{path}: does not end with one newline"]


ALL_FILES = [no_machine_paths, no_registry_hosts]
SOURCES = [no_open_ends, has_licence, is_short, ends_with_one_newline]
