#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The header as a later release may have it: grow.py HEADER OUT puts two words at the end of each struct
that begins with its size."""

import re
import sys
from pathlib import Path

STRUCT = re.compile(r"(typedef struct (otr_\w+) \{\n  uint32_t struct_size;.*?)(\n\} \2;)", re.DOTALL)


def main():
    header, out = map(Path, sys.argv[1:])
    text, count = STRUCT.subn(r"\1\n  uint64_t later[2];\3", header.read_text(encoding="utf-8"))
    if count < 9:
        sys.exit(f"grow: {header} has {count} structs that begin with struct_size; there were 9")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
