# SPDX-License-Identifier: Apache-2.0
"""The layers of docs/design.md: a file includes only its own layer or those below."""

import posixpath
import re

from circles import circles

# Top to bottom. Folders of one line are one layer.
LAYERS = [
    ["bindings", "rust", "julia"],
    ["c_api/src"],
    ["core/engine", "core/message"],
    ["core/optimizer", "core/checkpoint"],
    ["core/comm", "core/memory", "core/layout", "core/config"],
    ["core/context"],
    ["core/device"],
    ["core/tensor", "core/topology", "core/threads", "core/observe"],
    ["core/base"],
    ["kernels"],
]
PUBLIC = "c_api/include"
# Programs and bindings see what every user sees: the contract and their own folder.
USERS = ["bindings", "rust", "julia", "c_api/examples", "c_api/tools"]
# How and where a file lies, for the programs that read it, too: headers that include nothing of the project.
FORMATS = {"core/observe/flight_folder.h", "core/observe/flight_format.h"}
# A plugin is a program of its own behind a table; its kernels may be the library's.
PLUGINS = "plugins"
# What stands below a plugin in its tests, and speaks its language.
PLUGIN_TESTS = "tests/plugins"
SUFFIXES = {".c", ".cpp", ".h", ".cu", ".cuh", ".i", ".java", ".rs", ".jl"}

INCLUDE = re.compile(r'^\s*[#%]\s*(?:include|import)\s*[<"]([^">]+)[">]', re.MULTILINE)


def within(path, folder):
    return path.startswith(folder + "/")


def layer_of(path):
    """0 is the top; None for a file that is in no layer."""
    for number, folders in enumerate(LAYERS):
        if any(within(path, folder) for folder in folders):
            return number
    return None


def folder_of(path):
    """The concept's folder: core/comm, kernels, c_api/src …"""
    return next((f for folders in LAYERS for f in folders if within(path, f)), posixpath.dirname(path))


def resolve(including, name, known):
    """The project's file that an include names, or None for one from outside."""
    candidates = (posixpath.join(posixpath.dirname(including), name), name, f"{PUBLIC}/{name}")
    return next((c for c in map(posixpath.normpath, candidates) if c in known), None)


def fault(including, included):
    """Why the one file may not include the other; None if it may."""
    if including in FORMATS:
        return "formats stand alone"
    if included in FORMATS and within(including, "c_api/tools"):
        return None
    if within(included, PUBLIC):
        return "kernels know no handles" if within(including, "kernels") else None
    user = next((u for u in USERS if within(including, u)), None)
    if user:
        return None if within(included, user) else "users of the library include only its public headers"
    if within(including, PUBLIC):
        return None if within(included, PUBLIC) else "the public headers stand alone"
    if within(including, PLUGINS):
        return None if within(included, PLUGINS) or within(included, "kernels") else \
            "plugins include only the public headers, kernels and their own folder"
    if within(included, PLUGINS):
        return None if within(including, PLUGIN_TESTS) else "plugins are loaded, not linked"
    own, other = layer_of(including), layer_of(included)
    if own is None:
        return None
    if other is None:
        return f"{posixpath.dirname(included)} belongs to no layer"
    if other < own:
        return f"{folder_of(included)} lies above {folder_of(including)}"
    return None


def includes(sources):
    """Pairs (including, included) inside the project. sources: {path: text}"""
    for path, text in sources.items():
        for name in INCLUDE.findall(text):
            included = resolve(path, name, sources)
            if included:
                yield path, included


def violations(sources):
    found = []
    for path in sources:
        if within(path, "core") and layer_of(path) is None:
            found.append(f"{path}: belongs to no layer; add its folder to LAYERS")
    for including, included in includes(sources):
        reason = fault(including, included)
        if reason:
            found.append(f"{including} includes {included}: {reason}")
    found += [f"folders include each other in a circle: {' -> '.join(c)}" for c in folder_circles(sources)]
    return found + [f"concepts include each other in a circle: {' -> '.join(c)}" for c in unit_circles(sources)]


def folder_circles(sources):
    """Circles among the folders of core; each once."""
    edges = {}
    for including, included in includes(sources):
        a, b = folder_of(including), folder_of(included)
        if a != b and within(including, "core") and within(included, "core"):
            edges.setdefault(a, set()).add(b)
    return circles(edges)


def unit_of(path, sources):
    """A header and its source are one concept; so is a part of it, x_y.h beside x.cpp, that has no source of its own."""
    stem = posixpath.splitext(path)[0]
    while stem + ".cpp" not in sources and "_" in posixpath.basename(stem):
        whole = stem.rpartition("_")[0]
        if whole + ".cpp" not in sources and whole + ".h" not in sources:
            break
        stem = whole
    return stem


def unit_circles(sources):
    """Circles among the concepts of a folder of core: those over several folders are circles of these."""
    edges = {}
    for including, included in includes(sources):
        a, b = unit_of(including, sources), unit_of(included, sources)
        if a != b and within(including, "core") and folder_of(including) == folder_of(included):
            edges.setdefault(a, set()).add(b)
    return circles(edges)
