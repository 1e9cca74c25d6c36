# SPDX-License-Identifier: Apache-2.0
"""What the system says of this process's memory, on Linux."""
from pathlib import Path


def resident_and_peak():
    """Bytes that are resident, and the most that were since the process began or reset_peak()."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    found = dict(line.split(":", 1) for line in lines if line.startswith(("VmRSS", "VmHWM")))
    return tuple(1024 * int(found[name].split()[0]) for name in ("VmRSS", "VmHWM"))


def reset_peak():
    """Begins anew with what is resident now. Returns whether the system lets this process do so."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True
