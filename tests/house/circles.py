# SPDX-License-Identifier: Apache-2.0
"""Circles of things that need each other: of folders (layers.py), of Python's modules (imports.py)."""


def circles(edges):
    """edges: {name: the names that it needs}. Each circle as its names in order, the first one again at the end."""
    found, done = [], set()

    def walk(name, trail):
        if name in trail:
            found.append(trail[trail.index(name):] + [name])
        elif name not in done:
            for following in sorted(edges.get(name, ())):
                walk(following, trail + [name])
            done.add(name)

    for name in sorted(edges):
        walk(name, [])
    return found
