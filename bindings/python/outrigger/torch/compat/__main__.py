# SPDX-License-Identifier: Apache-2.0
"""python -m outrigger.torch.compat SCRIPT [ARGUMENTS…]"""
import runpy
import sys
from pathlib import Path

from . import install


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m outrigger.torch.compat SCRIPT [ARGUMENTS…]")
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    install()
    runpy.run_path(sys.argv[0], run_name="__main__")


main()
