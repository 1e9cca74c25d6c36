# SPDX-License-Identifier: Apache-2.0
"""Runs an example whose steps take a moment longer, so that something can happen meanwhile.

    outrigger run -n 2 -- python slow.py EXAMPLE [ARGUMENTS]
"""
import runpy
import sys
import time

from outrigger import lowlevel

step = lowlevel.engine_step


def step_slowly(*arguments):
    time.sleep(0.1)
    return step(*arguments)


lowlevel.engine_step = step_slowly
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
