# SPDX-License-Identifier: Apache-2.0
"""The MPI libraries that tests run on: where they lie, how they start ranks, and how they let ranks live when one dies."""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "scripts" / "hosts"))
import hosts  # noqa: E402 - found by the line above

# name: (folder of build/mpi, library)
KINDS = {"openmpi": ("openmpi", "libmpi.so.40"), "mpich": ("mpich", "libmpi.so.12"), "abi": ("mpich", "libmpi_abi.so.1"),
         "hosts2": ("openmpi", "libmpi.so.40"), "hosts4": ("openmpi", "libmpi.so.40")}  # on so many hosts, which are namespaces
# MPICH's launcher fails by itself when a rank dies, even if it is told to go on; a shell in front of each rank hides it for a while.
SHELL = ["sh", "-c", '"$@"; sleep 4', "sh"]


class Launcher:
    """name: of KINDS. environment: for all ranks."""

    def __init__(self, name: str, build: pathlib.Path):
        folder, library = KINDS[name]
        self.name, self.folder = name, ROOT / "build" / "mpi" / folder
        self.library = self.folder / "lib" / library
        self.is_open_mpi = folder == "openmpi"
        self.hosts = int(name[5:]) if name.startswith("hosts") else 0
        self.environment = os.environ | {
            "OTR_MPI_LIBRARY": str(self.library), "OTR_PLUGIN_PATH": str(build), "OTR_TEST_MPI": "1", "GTEST_COLOR": "no",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",  # of a container's only user
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "PRTE_MCA_hwloc_default_binding_policy": "none",
            "OMPI_MCA_btl": "self,sm", "OMPI_MCA_pml": "ob1", "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_mpi_event_tick_rate": "1"}

    def command(self, ranks: int, survive: bool, on: "hosts.Hosts | None") -> list[str]:
        program = self.folder / "bin" / ("mpirun" if self.is_open_mpi else "mpiexec")
        if not self.is_open_mpi:
            return [str(program), "-n", str(ranks), *(SHELL if survive else [])]
        start = [str(program)] if on is None else on.launcher(program, -(-ranks // self.hosts))
        return [*start, *(["--with-ft", "ulfm"] if survive else []), "-n", str(ranks)]

    def run(self, ranks: int, program: list[str], survive: bool = False, timeout: float = 120, **variables: str) -> tuple[int, str]:
        """Its exit status and what the ranks wrote; whatever is left is ended."""
        with (tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as written,
              hosts.hosts(self.hosts) if self.hosts else contextlib.nullcontext() as on):
            lines = pathlib.Path(folder) / "lines"
            environment = self.environment | {"OTR_TEST_BOARD": f"{folder}/board", "OTR_TEST_LINES": str(lines), "TMPDIR": folder} | variables
            environment |= {} if on is None else on.environment
            started = subprocess.Popen([*self.command(ranks, survive, on), *program], env=environment, stdin=subprocess.DEVNULL,
                                       stdout=written, stderr=subprocess.STDOUT)
            try:
                status = started.wait(timeout)
                for _ in range(50):  # a launcher may end before ranks that outlive another one
                    if not survive or not members(folder):
                        break
                    time.sleep(0.1)
            except subprocess.TimeoutExpired:
                status = 124
            finally:
                for process in members(folder):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                started.wait()
            written.seek(0)
            return status, written.read() + (lines.read_text() if lines.exists() else "")


def members(folder: str) -> list[int]:
    """The processes of a run: the launcher, its helpers and the ranks, which may be in sessions of their own, and stopped."""
    marked = f"TMPDIR={folder}".encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if marked in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:  # it has ended, or is another user's
            pass
    return found
