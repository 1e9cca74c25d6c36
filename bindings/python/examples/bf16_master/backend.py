# SPDX-License-Identifier: Apache-2.0
"""The module `deepspeed`: Outrigger under that name, or DeepSpeed itself on a CPU."""
import atexit
import importlib.util
import logging
import os
import socket
import sys
from pathlib import Path

BACKENDS = ("outrigger", "deepspeed")


class BackendMissing(ImportError):
    """The library is not installed for this Python."""


def load(backend):
    """Imports the library and makes torch.distributed ready, over gloo."""
    if importlib.util.find_spec(backend) is None:
        raise BackendMissing(f"--backend {backend}: {sys.executable} has no {backend}")
    if backend == "outrigger":
        import outrigger.torch.compat
        outrigger.torch.compat.install()
    else:
        _prepare_deepspeed()
    import deepspeed
    if backend == "deepspeed" and "outrigger" in deepspeed.__version__:
        raise BackendMissing("--backend deepspeed: outrigger.torch.compat stands in for DeepSpeed in this process")
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)  # it writes to standard output
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    return deepspeed


def _prepare_deepspeed():
    """It wants a CPU to be named, a launcher's variables for one process, too, and ninja, which pip puts beside Python, on the path."""
    world = os.environ.get("LOCAL_WORLD_SIZE", "1")
    for name, value in (("DS_ACCELERATOR", "cpu"), ("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_WORLD_SIZE", world),
                        ("LOCAL_SIZE", world), ("MASTER_ADDR", "127.0.0.1")):
        os.environ.setdefault(name, value)
    if "MASTER_PORT" not in os.environ:
        os.environ["MASTER_PORT"] = str(_free_port())
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    if os.environ["RANK"] == "0":
        atexit.register(_remove_buffers, os.environ["MASTER_PORT"])


def _free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _remove_buffers(port):
    """DeepSpeed leaves its blocks of shared memory behind; these are this job's."""
    for path in Path("/dev/shm").glob(f"deepspeed_allreduce_buffer_*_{port}_*"):
        if path.stat().st_uid == os.getuid():
            path.unlink(missing_ok=True)


def version(library, backend):
    if backend == "outrigger":
        import outrigger
        return f"Outrigger {outrigger.version()}"
    return f"DeepSpeed {library.__version__}"
