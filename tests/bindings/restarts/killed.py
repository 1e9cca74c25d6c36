# SPDX-License-Identifier: Apache-2.0
"""Runs an example; in the first attempt the last rank is killed behind its first save, or the save of number KILLED_BEHIND_SAVE, or
the call of the step of number KILLED_BEHIND_STEP. With KILLED_HOST all ranks of torchrun's last agent are, and the agent.

    outrigger run -n 2 --max-restarts 1 -- python killed.py EXAMPLE [ARGUMENTS]
"""
import os
import runpy
import signal
import sys

from outrigger import lowlevel

what, count = ("step", os.environ["KILLED_BEHIND_STEP"]) if "KILLED_BEHIND_STEP" in os.environ else ("save", os.environ.get("KILLED_BEHIND_SAVE", "1"))
left = int(count)
call = getattr(lowlevel, f"engine_{what}")
agent = os.getppid() if "KILLED_HOST" in os.environ else None
place, places = ("GROUP_RANK", "GROUP_WORLD_SIZE") if agent else ("RANK", "WORLD_SIZE")


def call_and_die(*arguments):
    global left
    result = call(*arguments)
    left -= 1
    if left == 0 and int(os.environ[place]) == int(os.environ[places]) - 1:
        if agent and os.getppid() == agent:  # nobody else has killed it
            os.kill(agent, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    return result


if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    setattr(lowlevel, f"engine_{what}", call_and_die)
if "deepspeed" in sys.argv[1]:
    import outrigger.torch.compat
    outrigger.torch.compat.install()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
