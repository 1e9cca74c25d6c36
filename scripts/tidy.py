#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over the library, its plugins, the tools and the examples: scripts/tidy.py BUILD_FOLDER

A source that was clean is not looked at again until it, a header that it includes, its compiler
command, the configuration or clang-tidy changes. The memory of that is BUILD_FOLDER/tidy.
"""

import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("core/", "kernels/", "c_api/", "plugins/")
CLANG_TIDY = "clang-tidy-19"
INCLUDE = re.compile(rb'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)


def included_files(source, found):
    """Adds the project's files that `source` includes, directly or not, to the set `found`."""
    found.add(source)
    for name in INCLUDE.findall(source.read_bytes()):
        for base in (ROOT, source.parent, ROOT / "c_api/include"):
            path = (base / name.decode()).resolve()
            if path.is_file() and path.is_relative_to(ROOT) and path not in found:
                included_files(path, found)
                break


def fingerprint(source, arguments, version):
    found = set()
    included_files(source, found)
    digest = hashlib.sha256()
    for text in (version, *arguments):
        digest.update(text.encode() + b"\0")
    configurations = [ROOT / ".clang-tidy", *source.parent.glob(".clang-tidy")]
    for path in sorted(found) + configurations:
        digest.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def compiler_arguments(entry):
    """What clang needs of gcc's command: no -Werror (gcc is the judge of compiler warnings)."""
    arguments = shlex.split(entry["command"])
    while arguments and Path(arguments[0]).name == "ccache":
        arguments.pop(0)
    skip_next = False
    kept = []
    for argument in arguments[1:]:
        if skip_next or argument in ("-c", "-Werror"):
            skip_next = False
        elif argument == "-o":
            skip_next = True
        elif not argument.startswith("-fsanitize"):
            kept.append(argument)
    driver = "clang" if entry["file"].endswith(".c") else "clang++"
    return [driver, *kept]


def run_one(source, arguments):
    command = [CLANG_TIDY, "--quiet", str(source), "--", *arguments[1:], "-Wno-everything"]
    if arguments[0] == "clang++":
        command.insert(-1, "--driver-mode=g++")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip() or done.stderr.strip()


def main():
    build = Path(sys.argv[1]).resolve()
    memory = build / "tidy"
    memory.mkdir(exist_ok=True)
    version = subprocess.run([CLANG_TIDY, "--version"], capture_output=True, text=True, check=True).stdout

    work = []
    total = 0
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["file"]).resolve()
        name = str(source.relative_to(ROOT)) if source.is_relative_to(ROOT) else ""
        if not name.startswith(FOLDERS) or not source.is_file():
            continue
        total += 1
        arguments = compiler_arguments(entry)
        mark = memory / fingerprint(source, arguments, version)
        if not mark.exists():
            work.append((name, source, arguments, mark))
    if total == 0:
        sys.exit(f"tidy: no source of {', '.join(FOLDERS)} in {build}/compile_commands.json")

    failed = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = {pool.submit(run_one, source, arguments): (name, mark)
                for name, source, arguments, mark in work}
        for run in concurrent.futures.as_completed(runs):
            name, mark = runs[run]
            status, text = run.result()
            if status == 0:
                mark.touch()
            else:
                failed.append(name)
                print(text, flush=True)
    print(f"tidy: {total} sources, {len(work)} looked at, {len(failed)} with findings"
          + "".join(f"\n  {name}" for name in sorted(failed)))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
