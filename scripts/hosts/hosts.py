# SPDX-License-Identifier: Apache-2.0
"""Hosts of one machine: network namespaces, each with an address of its own, between which bytes cross a cable of a set bandwidth.
Needs root and `ip`, `tc`. Open MPI's launcher starts ranks in them (rsh.py is its remote shell)."""
import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys

RSH = pathlib.Path(__file__).with_name("rsh.py")


@dataclasses.dataclass
class Hosts:
    names: list[str]  # of the namespaces
    addresses: list[str]

    def launcher(self, mpirun: pathlib.Path, each: int) -> list[str]:
        """Open MPI's mpirun for so many ranks on each host, from inside of the first one; the number of ranks comes behind."""
        where = ",".join(f"{address}:{each}" for address in self.addresses)
        agent = f"{sys.executable} {RSH} {','.join(f'{a}={n}' for a, n in zip(self.addresses, self.names))}"
        inside = ["ip", "netns", "exec", self.names[0], "unshare", "--uts", "sh", "-c", f'hostname {self.names[0]}; exec "$@"', "sh"]
        return [*inside, str(mpirun), "--prtemca", "plm_ssh_agent", agent, "--host", where, "--map-by", ":oversubscribe", "--bind-to", "none"]

    # What ranks and daemons need to talk over these cables: shared memory on a host, TCP between them.
    environment = {"OMPI_MCA_btl": "self,sm,tcp", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl_tcp_if_include": "10.77.0.0/16",
                   "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def missing() -> str:
    """Why there can be no such hosts; "" if there can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"there is no {tool} (Debian's iproute2)"
    tried = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else tried.stderr.strip()


def _ip(*words: object) -> None:
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")


@contextlib.contextmanager
def hosts(count: int, megabits: int = 0):
    """So many, on a switch; each sends so many Mbit/s at most (0: no limit). They go with the block, with all that runs in them."""
    mark = f"otr{os.getpid() % 100000}"
    switch, made = f"{mark}s", []
    _ip("netns", "add", switch)
    try:
        _ip("-n", switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", switch, "link", "set", "switch", "up")
        for number in range(count):
            name, address = f"{mark}h{number}", f"10.77.0.{number + 1}"
            _ip("netns", "add", name)
            made.append((name, address))
            cable = f"{mark}c{number}"
            _ip("link", "add", cable, "netns", switch, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", switch, "link", "set", cable, "master", "switch", "up")
            _ip("-n", name, "addr", "add", f"{address}/16", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", name, "link", "set", device, "up")
            if megabits:
                subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{megabits}mbit",
                                "burst", "256kb", "latency", "100ms"], check=True)
        yield Hosts([name for name, _ in made], [address for _, address in made])
    finally:
        for name in [*(name for name, _ in made), switch]:
            for process in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), 9)
            subprocess.run(["ip", "netns", "del", name], check=False)
