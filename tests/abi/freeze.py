#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what tests/abi compares with: the frozen header and table of this version, and the list of symbols.

Run it when the public header has changed and its version is not released yet. A header that is
released stays as it is: raise the version first.
"""

from pathlib import Path

import header_model

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "c_api/include/outrigger.h"
SYMBOLS = ROOT / "c_api/symbols.txt"


def main():
    text = HEADER.read_text(encoding="utf-8")
    version = ".".join(
        next(line.split()[2] for line in text.splitlines() if line.startswith(f"#define OTR_VERSION_{part} "))
        for part in ("MAJOR", "MINOR"))
    folder = Path(__file__).parent
    (folder / f"otr_{version}.h").write_text(text, encoding="utf-8")
    names = ordered(SYMBOLS.read_text(encoding="utf-8").split(), header_model.parse(text).functions)
    SYMBOLS.write_text("\n".join(names) + "\n", encoding="utf-8")
    (folder / f"otr_{version}.symbols").write_text("\n".join(names) + "\n", encoding="utf-8")
    print(f"tests/abi/otr_{version}.h, its symbols and c_api/symbols.txt: {len(names)} functions; now run bindings/gen/generate.py")


def ordered(before, functions):
    """The order of the table otr_api: what was there stays where it was, new functions come last."""
    return [name for name in before if name in functions] + [name for name in functions if name not in before]


if __name__ == "__main__":
    main()
