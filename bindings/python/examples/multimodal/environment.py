# SPDX-License-Identifier: Apache-2.0
"""What Ray reads from the environment when it is imported, so this comes before it. Its processes inherit it."""
import os
import secrets

os.environ.update(RAY_USAGE_STATS_ENABLED="0",
                  RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # no cluster: all listens on loopback
                  RAY_IGNORE_UNHANDLED_ERRORS="1",  # what follows from an error that was seen
                  RAY_worker_register_timeout_seconds="600",  # a busy machine starts processes slowly
                  OMP_NUM_THREADS="1",
                  PYTHONPATH=os.pathsep.join(filter(None, [os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH")])))
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else Ray leaves one in the home folder
