# SPDX-License-Identifier: Apache-2.0
"""What the disk gives to a file of so many bytes, as fio measures it: direct, 4 MiB at a time, four at a time, durable at the end.

fio.py MODE FOLDER BYTES; MODE: write or read
"""

import json
import pathlib
import subprocess
import sys

import worker


class Fio(worker.Worker):
    def __init__(self, mode, folder, size):
        self.mode, self.path, self.size = mode, pathlib.Path(folder) / "fio", int(size)

    def _run(self, mode):
        command = ["fio", "--name=disk", f"--filename={self.path}", f"--size={self.size}", f"--rw={mode}", "--bs=4M", "--direct=1",
                   "--ioengine=libaio", "--iodepth=4", "--end_fsync=1", "--fallocate=posix", "--output-format=json"]
        result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        return json.loads(result.stdout)["jobs"][0][mode]

    def setup(self):
        if self.mode == "read":
            self._run("write")
        version = subprocess.run(["fio", "--version"], check=True, capture_output=True, text=True, timeout=10)
        return {"peer": version.stdout.strip()}

    def check(self, folder):
        return {}

    def prepare(self):
        if self.mode == "write":
            self.path.unlink(missing_ok=True)
            subprocess.run(["sync"], check=True, timeout=60)

    def work(self):
        """fio's own time counts: not its start, but what it does in the end."""
        job = self._run(self.mode)
        return {"seconds": job["runtime"] / 1e3}


if __name__ == "__main__":
    worker.serve(lambda: Fio(*sys.argv[1:]))
