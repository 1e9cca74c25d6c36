# SPDX-License-Identifier: Apache-2.0
"""The Rust crates as others see them: formatted, without a warning of clippy, and packages that build on their own.

    test_rust_form.py CARGO WORKSPACE [unittest's arguments]
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

CARGO, WORKSPACE = sys.argv[1], pathlib.Path(sys.argv[2])
RUST = pathlib.Path(__file__).resolve().parents[2] / "rust"


def copied_home(folder):
    """Cargo's home again, with what was downloaded and nothing that was unpacked: a package of this workspace that an
    earlier run unpacked has the same version, so cargo would build against that one."""
    home = pathlib.Path(os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo")
    registry = pathlib.Path(folder, "registry")
    registry.mkdir()
    kept = [path for path in home.glob("*") if path.name != "registry"]
    downloaded = [path for path in home.glob("registry/*") if path.name != "src"]
    for path, into in [(path, folder) for path in kept] + [(path, registry) for path in downloaded]:
        pathlib.Path(into, path.name).symlink_to(path)
    return folder


class Form(unittest.TestCase):
    def cargo(self, tool, *arguments, **environment):
        if tool != "package" and subprocess.run([CARGO, tool, "--version"], capture_output=True, check=False).returncode:
            self.missing(f"no cargo {tool}")
        command = [CARGO, tool, "--manifest-path", WORKSPACE / "Cargo.toml", *arguments]
        end = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False,
                             env=os.environ | environment)
        self.assertEqual(end.returncode, 0, end.stdout + end.stderr)

    def missing(self, what):
        if os.environ.get("OTR_REQUIRE_ALL") == "1":
            self.fail(what)
        self.skipTest(what)

    def test_format(self):
        self.cargo("fmt", "--all", "--check")

    def test_clippy(self):
        self.cargo("clippy", "--offline", "--locked", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings")

    def test_package(self):
        """What the registry lacks, the crates below, comes from the tree; packages of one workspace find each other since cargo 1.90."""
        version = subprocess.run([CARGO, "--version"], capture_output=True, text=True, check=True).stdout
        if tuple(map(int, re.search(r"(\d+)\.(\d+)", version).groups())) < (1, 90):
            self.missing(f"{version.strip()} packages crates one by one")
        below = [] if WORKSPACE == RUST else [
            argument for name in ("outrigger", "outrigger-sys")
            for argument in ("--config", f'patch.crates-io.{name}.path="{RUST / name}"')]
        with tempfile.TemporaryDirectory(prefix="otr_cargo_") as home:
            self.cargo("package", "--offline", "--quiet", "--allow-dirty", "--workspace",
                       *(["--exclude", "systest"] if WORKSPACE == RUST else []), *below, CARGO_HOME=copied_home(home))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
