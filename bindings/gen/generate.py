# SPDX-License-Identifier: Apache-2.0
"""Writes the declarations that other languages take from outrigger.h and its table, and Rust's builder of configurations, which takes its keys
from their schema; or with --check compares them.

    python3 bindings/gen/generate.py [--check]
"""
import argparse
import difflib
import pathlib
import sys

import api
import calls
import docs
import header
import java
import julia
import layout
import python
import rust
import rust_config

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = "docs/configuration.schema.json"
OUTPUTS = {
    "c_api/include/outrigger_api.h": api.generate_header,
    "c_api/src/api_table.h": api.generate_table,
    "rust/outrigger-sys/src/bindings.rs": rust.generate,
    "rust/outrigger/src/generated.rs": rust.generate_safe,
    "rust/outrigger/src/config/keys.rs": lambda _: rust_config.generate((ROOT / SCHEMA).read_text(encoding="utf-8")),
    "julia/src/liboutrigger.jl": julia.generate,
    "bindings/python/outrigger/lowlevel.pyi": python.generate,
    "bindings/swig/docs.i": docs.generate,
    "bindings/swig/calls.i": calls.generate,
    "tests/bindings/layout/layout.c": layout.generate,
    **java.generators(),
}


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--check", action="store_true", help="write nothing; fail and show what would change")
    check = options.parse_args().check
    model = header.parse((ROOT / "c_api/include/outrigger.h").read_text(encoding="utf-8"))
    stale = 0
    for name, generator in OUTPUTS.items():
        path, text = ROOT / name, generator(model)
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if old == text:
            continue
        stale += 1
        if check:
            sys.stderr.writelines(difflib.unified_diff(
                old.splitlines(True), text.splitlines(True), name, "generated"))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print("wrote", name)
    if check and stale:
        sys.exit(f"{stale} generated file(s) differ from outrigger.h or {SCHEMA}; run python3 bindings/gen/generate.py")


if __name__ == "__main__":
    main()
