# SPDX-License-Identifier: Apache-2.0
"""What every section needs: the programs, the time that is left, and a way to run something."""
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "bindings/python/examples"


class Missing(Exception):
    """Why a section has no figures."""


class Context:
    def __init__(self, options):
        self.build, self.work, self.short = options.build.absolute(), options.work.absolute(), options.short
        self.peer_python = options.peer_python.absolute()
        self.peer_missing = options.peer_missing or ("" if self.peer_python.is_file() else "there is no Python with DeepSpeed; make bench installs one")
        self.deadline = time.monotonic() + 60 * options.minutes
        self.stopped = False  # by Ctrl-C
        self.work.mkdir(parents=True, exist_ok=True)
        self.environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "DS_ACCELERATOR": "cpu"}
        paths = [str(self.build / "python"), os.environ.get("PYTHONPATH", "")]
        self.environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        operators = self.peer_python.parent.parent / "torch_extensions"
        if operators.is_dir():
            self.environment["TORCH_EXTENSIONS_DIR"] = str(operators)

    def minutes_left(self):
        return max(0.0, (self.deadline - time.monotonic()) / 60)

    def measure(self, section):
        """What the section found, up to Ctrl-C."""
        self.load = os.getloadavg()[0]
        try:
            return section.measure(self)
        except Missing as reason:
            return {"missing": str(reason)}
        except KeyboardInterrupt:
            self.stopped = True
            return {"missing": "stopped before it had figures"}

    def run(self, command, log, timeout=3600, check=True, only_output=False):
        """Standard output and error go into the file `log` of the work folder; only_output: the output alone. Returns its text."""
        path = self.work / log
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            try:
                code = subprocess.run(list(map(str, command)), stdout=file, stderr=subprocess.DEVNULL if only_output else subprocess.STDOUT,
                                      env=self.environment, timeout=timeout, check=False).returncode
            except OSError as error:
                raise Missing(f"{Path(command[0]).name} does not run: {error.strerror}") from error
            except subprocess.TimeoutExpired:
                raise Missing(f"longer than {timeout:.0f} s") from None
        text = path.read_text(encoding="utf-8", errors="replace")
        if check and code:
            last = (text.strip().splitlines() or ["no output"])[-1]
            raise Missing(f"exit code {code}: {last}"[:300])
        return text

    def python(self, *words, log, **more):
        return self.run([sys.executable, *words], log, **more)
