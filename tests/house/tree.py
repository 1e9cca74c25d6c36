# SPDX-License-Identifier: Apache-2.0
"""The project's files, as the checks of this folder see them."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED_FOLDERS = {".git", "build", "target", "__pycache__", ".venv"}
SOURCE_SUFFIXES = {".c", ".cc", ".cpp", ".h", ".hpp", ".cu", ".cuh", ".i", ".py", ".sh", ".rs", ".jl",
                   ".cmake", ".java", ".lua"}
SOURCE_NAMES = {"CMakeLists.txt", "Makefile", "run"}


def files():
    """Paths relative to the root: what git has and does not ignore, or all where there is no git."""
    done = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                          cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        names = done.stdout.split("\0")
    else:
        names = []
        for folder, folders, inside in os.walk(ROOT):
            folders[:] = [f for f in folders if f not in SKIPPED_FOLDERS]
            names += [str((Path(folder) / name).relative_to(ROOT)) for name in inside]
    return sorted(Path(name) for name in names if name and (ROOT / name).is_file())


def is_source(path):
    return path.suffix in SOURCE_SUFFIXES or path.name in SOURCE_NAMES


def text_of(path):
    """The file's text, or None for a binary file."""
    data = (ROOT / path).read_bytes()
    return None if b"\0" in data[:4096] else data.decode("utf-8")
