# SPDX-License-Identifier: Apache-2.0
"""No module of the Python package imports another in a circle: not at its top, not in a function, not for its types alone.

A module that needs what stands above it is told so by a Protocol of its own, or is given it; an import in a function hides a
circle and does not end it."""

import ast

from circles import circles

ROOT = "bindings/python/"
PACKAGE = "outrigger"
SUFFIXES = {".py", ".pyi"}


def module_of(path):
    """bindings/python/outrigger/torch/__init__.py → outrigger.torch; a stub is the module that it declares."""
    return path.removeprefix(ROOT).rpartition(".")[0].removesuffix("/__init__").replace("/", ".")


def _packages(module):
    """Those around a module, the outermost first: Python runs their __init__ before it."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _named(tree, package):
    """(what may be a module, else what is one) of each import in it, wherever it stands. package: that relative ones begin from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package.split(".")
            start = around[:len(around) - node.level + 1] if node.level else []
            base = ".".join([*start, *filter(None, [node.module])])
            yield from ((f"{base}.{each.name}", base) for each in node.names)


def imports(sources):
    """{module: the project's modules that it imports}. sources: {path: text}. With a module come the packages around it, but
    for those that the importing one lies in itself: they run already."""
    known = {module_of(path) for path in sources}
    edges = {}
    for path, text in sources.items():
        module = module_of(path)
        is_package = path.endswith(("/__init__.py", "/__init__.pyi"))
        own = [*_packages(module), *([module] if is_package else [])]
        needs = edges.setdefault(module, set())
        for name, base in _named(ast.parse(text, path), own[-1]):
            target = name if name in known else base
            needs.update(known & ({target} | (set(_packages(target)) - set(own))))
    return edges


def violations(sources):
    return [f"modules import each other in a circle: {' -> '.join(circle)}" for circle in circles(imports(sources))]
