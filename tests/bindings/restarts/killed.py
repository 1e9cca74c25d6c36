# SPDX-License-Identifier: Apache-2.0
"""Runs an example; in the first attempt the last rank is killed behind its first save, or the one of number KILLED_BEHIND_SAVE.

    outrigger run -n 2 --max-restarts 1 -- python killed.py EXAMPLE [ARGUMENTS]
"""
import os
import runpy
import signal
import sys

from outrigger import lowlevel

save = lowlevel.engine_save
left = int(os.environ.get("KILLED_BEHIND_SAVE", "1"))


def save_and_die(*arguments):
    global left
    save(*arguments)
    left -= 1
    if left == 0 and int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
        os.kill(os.getpid(), signal.SIGKILL)


if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    lowlevel.engine_save = save_and_die
if "deepspeed" in sys.argv[1]:
    import outrigger.torch.compat
    outrigger.torch.compat.install()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
