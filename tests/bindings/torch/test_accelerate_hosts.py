# SPDX-License-Identifier: Apache-2.0
"""accelerate launch on two machines, which two launches on this one stand for, trains with the bits of ranks of one host.

    test_accelerate_hosts.py LAUNCHER
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from jobs import free_port, stored

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "bindings/python/examples/torch"
EXAMPLE, CONFIG = EXAMPLES / "accelerate_gpt2.py", EXAMPLES / "two_machines.yaml"
launcher = None


class Machines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="outrigger-accelerate-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = dict(os.environ, OMP_NUM_THREADS="1")

    def launch(self, processes):
        """On two machines, so many in all."""
        port = free_port()
        launches = [subprocess.Popen([sys.executable, "-m", "outrigger.torch.compat", "-m", "accelerate.commands.launch", "--config_file", str(CONFIG), "--machine_rank", str(machine),
                                      "--num_processes", str(processes), "--main_process_ip", "127.0.0.1", "--main_process_port", str(port), str(EXAMPLE), "--checkpoints", str(self.folder / "machines")],
                                     env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for machine in range(2)]
        try:
            written = [each.communicate(timeout=280)[0] for each in launches]
        finally:
            for each in launches:
                each.kill()
        self.assertEqual([each.returncode for each in launches], [0, 0], "\n".join(written))
        self.assertIn("an engine of outrigger.torch.engine", written[0])
        return stored(self.folder / "machines")

    def on_one_host(self, ranks, each):
        """each: ranks that find each other in memory, as on a machine."""
        pretend = f"LOCAL_RANK=$((RANK % {each})) LOCAL_WORLD_SIZE={each}; export LOCAL_RANK LOCAL_WORLD_SIZE; " if each < ranks else ""
        done = subprocess.run([launcher, "run", "-n", str(ranks), "--", "sh", "-c", f'{pretend}exec "$@"', "sh", sys.executable, str(EXAMPLE), "--checkpoints", str(self.folder / "host")],
                              env=self.environment, capture_output=True, text=True, timeout=280, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return stored(self.folder / "host")

    def test_one_process_on_each(self):
        found = self.launch(2)
        self.assertGreater(len(found), 3 * 20)
        self.assertEqual(found, self.on_one_host(2, 2))

    def test_a_module_has_to_be_named(self):
        for words in ([], ["-m"], ["-c", "pass"]):
            done = subprocess.run([sys.executable, "-m", "outrigger.torch.compat", *words], env=self.environment, capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("usage: python -m outrigger.torch.compat SCRIPT", done.stderr)

    def test_two_processes_on_each(self):
        self.assertEqual(self.launch(4), self.on_one_host(4, 2))


if __name__ == "__main__":
    launcher = sys.argv.pop(1)
    unittest.main()
