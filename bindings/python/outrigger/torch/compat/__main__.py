# SPDX-License-Identifier: Apache-2.0
"""python -m outrigger.torch.compat SCRIPT [ARGUMENTS…], or -m MODULE [ARGUMENTS…]"""
import os
import runpy
import sys
from pathlib import Path

from . import install

_USAGE = "usage: python -m outrigger.torch.compat SCRIPT [ARGUMENTS…], or python -m outrigger.torch.compat -m MODULE [ARGUMENTS…]"


def main():
    is_module = sys.argv[1:2] == ["-m"]
    del sys.argv[:1 + is_module]
    if not sys.argv or sys.argv[0].startswith("-"):
        sys.exit(_USAGE)
    install()
    if is_module:
        sys.path[0] = os.getcwd()  # as python -m has it
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


main()
