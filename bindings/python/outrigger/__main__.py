# SPDX-License-Identifier: Apache-2.0
"""The command `outrigger` of an installed package, also as python -m outrigger: outrigger run -n 2 -- python train.py"""
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    """Becomes the command, which lies in this package; its signals and exit code are its own."""
    command = Path(__file__).parent / "bin" / "outrigger"
    if not command.exists():
        sys.exit(f"outrigger: {command} does not exist: this package is one of a build folder, which has the command in c_api/tools")
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and what it becomes would inherit that
        signal.signal(ignored, signal.SIG_DFL)
    os.execv(command, ["outrigger", *sys.argv[1:]])


if __name__ == "__main__":
    main()
