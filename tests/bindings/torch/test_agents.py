# SPDX-License-Identifier: Apache-2.0
"""Two agents of torchrun on this machine, as on two hosts: test_hosts.py on their ranks."""
import os
import pathlib
import socket
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Agents(unittest.TestCase):
    def test_two_hosts_of_two_ranks(self):
        port = free_port()
        environment = os.environ | {"PYTHONPATH": f"{HERE}{os.pathsep}{os.environ['PYTHONPATH']}", "OMP_NUM_THREADS": "1"}
        agents = [subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={node}", "--nproc-per-node=2",
                                    "--master-addr=127.0.0.1", f"--master-port={port}", str(HERE / "test_hosts.py")],
                                   env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for node in range(2)]
        try:
            written = [agent.communicate(timeout=240)[0] for agent in agents]
        finally:
            for agent in agents:
                agent.kill()
        for agent, text in zip(agents, written):
            self.assertEqual(agent.returncode, 0, text)
            self.assertEqual(text.count("\nOK\n"), 2, text)


if __name__ == "__main__":
    unittest.main()
