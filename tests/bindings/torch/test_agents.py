# SPDX-License-Identifier: Apache-2.0
"""test_hosts.py on the ranks of two agents of torchrun on this machine, as on two hosts, and on those of Open MPI's mpirun.
test_agents.py BUILD"""
import os
import pathlib
import subprocess
import sys
import unittest

from jobs import free_port

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "plugins" / "mpi"))
import launchers  # noqa: E402 - found by the line above


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

    @unittest.skipUnless((launchers.ROOT / "build" / "mpi" / "openmpi").exists(), "the set-up has fetched no Open MPI")
    def test_ranks_of_mpirun(self):
        status, text = launchers.Launcher("openmpi", build).run(4, [sys.executable, str(HERE / "test_hosts.py")], timeout=240, OMP_NUM_THREADS="1",
                                                                MASTER_PORT=str(free_port()))
        self.assertEqual(status, 0, text)
        self.assertEqual(text.count("\nOK\n"), 4, text)


if __name__ == "__main__":
    build = pathlib.Path(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
