# SPDX-License-Identifier: Apache-2.0
"""The candle example learns Shakespeare's plays in two workers.

    test_rust_plays.py LAUNCHER PROGRAM FOLDER
"""
import collections
import math
import pathlib
import re
import subprocess
import sys

LAUNCHER, PROGRAM, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/demo"))
from plays import download, make_text  # noqa: E402


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = FOLDER / "plays.txt"
    make_text(download(str(FOLDER)), str(text))
    end = subprocess.run([LAUNCHER, "run", "-n", "2", "--", PROGRAM, text, "80"], capture_output=True, text=True, timeout=1600, check=False)
    print(end.stdout, end.stderr)
    assert end.returncode == 0, end.returncode
    loss = float(re.search(r"held-out loss (\S+) after 80 steps on 2 ranks", end.stdout)[1])
    content = text.read_bytes()
    counts = collections.Counter(content).values()
    alone = -sum(count / len(content) * math.log(count / len(content)) for count in counts)
    assert loss < alone - 0.5, f"{loss} nats for a character, and the characters' own frequencies give {alone}"


if __name__ == "__main__":
    main()
