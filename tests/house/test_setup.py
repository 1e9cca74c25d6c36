# SPDX-License-Identifier: Apache-2.0
"""scripts/setup.sh on machines that lack something, and what scripts/build.sh configures, played by fake commands
in a copy of the scripts."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import tree

TOOLS = ["bash", "awk", "sed", "comm", "sort", "tr", "mkdir", "flock", "dirname", "env", "cat", "rm", "tee", "true",
         "chmod", "mv", "grep"]


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        shutil.copytree(tree.ROOT / "scripts/setup", self.root / "scripts/setup")
        for script in ("setup.sh", "build.sh", "ccache.sh"):
            shutil.copy(tree.ROOT / "scripts" / script, self.root / "scripts" / script)
        self.bin = self.root / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.calls = self.root / "calls"
        self.calls.touch()
        self.listed = [line.split() for line in
                       (self.root / "scripts/setup/dependencies.txt").read_text().splitlines()
                       if line and not line.startswith("#")]
        self.installed(name for kind, _, name in self.listed if kind == "apt")
        self.fake("apt-get", 'echo "apt-get $*" >> "$CALLS"; exit ${APT_STATUS:-0}')
        self.fake("apt-cache", "exit 1")
        self.fake("id", "echo ${FAKE_ID:-0}")
        self.fake("sudo", 'echo "sudo $*" >> "$CALLS"; [[ ${FAKE_SUDO:-0} == 1 ]] || exit 1; shift; exec "$@"')
        for tool in ("julia", "cargo"):
            self.fake(tool, "exit 0")
        # A python3 whose venv is made at once and whose pip always succeeds.
        self.fake("python3", 'echo "python3 $*" >> "$CALLS"; case "$*" in --version) echo "Python 3.11.0";; '
                             '*venv*) mkdir -p build/venv/bin; rm -f build/venv/bin/python; '
                             'tee build/venv/bin/python < "$0" > /dev/null; chmod +x build/venv/bin/python;; esac')

    def fake(self, name, body):
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        path.chmod(0o755)

    def installed(self, names):
        rows = "".join(f"{name} installed\\n" for name in names)
        self.fake("dpkg-query", f"printf '{rows}'")

    def run_setup(self, *arguments, **environment):
        done = subprocess.run(
            ["bash", "scripts/setup.sh", *arguments], cwd=self.root, capture_output=True, text=True, check=False,
            env={"PATH": str(self.bin), "CALLS": str(self.calls), "OTR_PYTHON": str(self.bin / "python3"),
                 **environment}, stdin=subprocess.DEVNULL, timeout=30)
        return done.returncode, done.stdout + done.stderr, self.calls.read_text()

    def without(self, *names):
        self.installed(n for k, _, n in self.listed if k == "apt" and n not in names)

    def test_nothing_missing_asks_no_package_client_twice(self):
        (self.root / "build/aarch64-root").mkdir(parents=True)
        status, text, calls = self.run_setup()
        self.assertEqual((status, "setup: ready\n" in text), (0, True), text)
        self.assertIn("-m pip install", calls)
        self.assertNotIn("apt-get", calls)
        self.calls.write_text("")
        status, text, calls = self.run_setup()
        self.assertEqual((status, text), (0, "setup: ready, nothing was missing\n"))
        self.assertNotIn("install", calls)

    def test_root_installs_only_what_is_missing(self):
        self.without("libhwloc-dev", "ccache")
        status, text, calls = self.run_setup()
        self.assertIn("installing with apt: ccache libhwloc-dev\n", text)
        self.assertIn("install -y --no-install-recommends ccache libhwloc-dev\n", calls)
        self.assertLess(calls.index(" update"), calls.index(" install"))
        self.assertEqual(status, 1, "still missing after a fake install")
        self.assertIn("missing ccache libhwloc-dev", text)

    def test_without_rights_it_prints_the_command_and_stops(self):
        self.without("libhwloc-dev")
        status, text, calls = self.run_setup(FAKE_ID="1000")
        self.assertEqual(status, 1)
        self.assertIn("missing libhwloc-dev; run: sudo bash scripts/setup.sh system", text)
        self.assertNotIn("apt-get", calls)
        self.assertNotIn("pip", calls)

    def test_passwordless_sudo_is_used(self):
        self.without("libhwloc-dev")
        _, _, calls = self.run_setup(FAKE_ID="1000", FAKE_SUDO="1")
        self.assertRegex(calls, r"sudo -n env DEBIAN_FRONTEND=noninteractive apt-get .*install .*libhwloc-dev")

    def test_an_optional_part_is_a_named_skip_unless_all_is_required(self):
        self.without("shellcheck", "swig")
        status, text, _ = self.run_setup(APT_STATUS="100")
        self.assertEqual(status, 0, text)
        self.assertIn("skipped: lint (missing shellcheck", text)
        self.assertIn("skipped: python (missing swig", text)
        status, text, _ = self.run_setup(APT_STATUS="100", OTR_REQUIRE_ALL="1")
        self.assertEqual(status, 1)
        self.assertIn("OTR_REQUIRE_ALL=1", text)

    def test_julia_and_rust_that_cannot_be_had_are_named(self):
        for tool in ("julia", "cargo"):
            (self.bin / tool).unlink()
        status, text, _ = self.run_setup(APT_STATUS="100")
        self.assertEqual(status, 0, text)
        self.assertIn("skipped: julia", text)
        self.assertIn("skipped: rust", text)

    def test_crates_are_fetched_once(self):
        self.fake("cargo", 'echo "cargo $*" >> "$CALLS"; case "$1" in metadata) [[ -f fetched ]];; fetch) : > fetched; exit ${CARGO_STATUS:-0};; esac')
        status, text, calls = self.run_setup(CARGO_STATUS="101")
        self.assertEqual(status, 0, text)
        self.assertIn("skipped: rust (cargo could not fetch", text)
        (self.root / "fetched").unlink()
        self.assertIn("installing with cargo fetch: ", self.run_setup()[1])
        self.calls.write_text("")
        self.run_setup()
        self.assertNotIn("cargo fetch", self.calls.read_text())

    def test_the_adapters_crates_come_with_the_soak(self):
        self.fake("cargo", 'echo "cargo $*" >> "$CALLS"; [[ $1 != metadata || $* != *candle* ]]')
        self.fake("rustup", 'echo "rustup $*" >> "$CALLS"; [[ $3 != cargo || $4 != --version ]]')
        calls = self.run_setup("soak")[2]
        self.assertIn("cargo fetch --quiet --locked --manifest-path rust/outrigger-candle/Cargo.toml", calls)
        self.assertRegex(calls, r"rustup toolchain install 1\.77 .*\nrustup run 1\.77 cargo fetch --quiet --locked --manifest-path rust/Cargo\.toml")
        self.assertNotIn("rust/outrigger-candle", self.run_setup("frameworks")[1])

    def test_what_long_tests_alone_import_comes_with_the_soak(self):
        calls = self.run_setup("frameworks")[2]
        self.assertIn("torch==", calls)
        self.assertNotIn("pandas==", calls)
        self.calls.write_text("")
        self.assertRegex(self.run_setup("soak")[2], "-m pip install .*pandas==")

    def test_highway_for_aarch64_is_unpacked_once(self):
        archives = "build/aarch64-root.new/cache/archives"
        self.fake("apt-get", 'echo "apt-get $*" >> "$CALLS"; [[ $* != *--download-only* ]] || '
                             f'{{ mkdir -p {archives}; echo > {archives}/libhwy1_1_arm64.deb; }}')
        self.fake("dpkg-deb", 'mkdir -p "$3/usr/include/hwy"')
        status, text, calls = self.run_setup()
        self.assertEqual((status, "skipped" in text), (0, False), text)
        self.assertRegex(calls, r"apt-get .*APT::Architecture=arm64 .*install --download-only .*libhwy-dev\n")
        self.assertTrue((self.root / "build/aarch64-root/usr/include/hwy").is_dir())
        self.assertFalse((self.root / "build/aarch64-root.new").exists())
        self.calls.write_text("")
        self.assertNotIn("apt-get", self.run_setup()[2])

    def test_highway_for_aarch64_that_cannot_be_had_is_named(self):
        status, text, _ = self.run_setup(APT_STATUS="100")
        self.assertEqual(status, 0, text)
        self.assertIn("skipped: aarch64 (apt has no libhwy-dev of arm64", text)
        self.assertFalse((self.root / "build").joinpath("aarch64-root").exists())

    def test_the_demo_needs_no_tests_and_no_other_language(self):
        for tool in ("julia", "cargo"):
            (self.bin / tool).unlink()
        self.without(*(n for k, part, n in self.listed if k == "apt" and part not in ("build", "demo")))
        status, text, calls = self.run_setup("demo")
        self.assertEqual((status, "skipped" in text), (0, False), text)
        self.assertNotIn("apt-get", calls)
        self.assertRegex(calls, "-m pip install .*numpy.* matplotlib")
        self.assertNotRegex(calls, "pytest|torch|ruff")
        self.calls.write_text("")
        self.assertEqual(self.run_setup("demo")[:2], (0, "setup: ready, nothing was missing\n"))
        # What the tests want comes on top.
        self.without()
        calls = self.run_setup()[2]
        self.assertIn("pytest", calls)
        self.assertNotRegex(calls, "venv --clear|matplotlib")
        self.without("libhwloc-dev", "python3-venv")
        status, text, _ = self.run_setup("demo", FAKE_ID="1000")
        self.assertIn("missing libhwloc-dev; run: sudo bash scripts/setup.sh system", text)
        self.assertEqual(status, 1)

    def test_an_installation_needs_neither_tests_nor_python(self):
        for tool in ("julia", "cargo", "python3"):
            (self.bin / tool).unlink()
        self.without(*(n for k, part, n in self.listed if k == "apt" and part != "build"))
        self.assertEqual(self.run_setup("build"), (0, "setup: ready, nothing was missing\n", ""))
        self.without("libhwloc-dev")
        status, text, _ = self.run_setup("build", FAKE_ID="1000")
        self.assertEqual((status, "missing libhwloc-dev" in text), (1, True), text)
        done = subprocess.run(["make", "--no-print-directory", "-n", "install", "PREFIX=/somewhere"], cwd=tree.ROOT, capture_output=True,
                              text=True, check=True)
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()],
                         ["scripts/setup.sh", "scripts/build.sh", "cmake"], done.stdout)
        self.assertIn("setup.sh build\n", done.stdout)
        self.assertIn(" outrigger outrigger_simulated outrigger_cuda outrigger_mpi outrigger_nccl outrigger_tool\n", done.stdout)

    def run_build(self, *arguments):
        """What CMake is told to configure."""
        self.fake("cmake", 'echo "cmake $*" >> "$CALLS"')
        self.calls.write_text("")
        subprocess.run(["bash", "scripts/build.sh", "build/release", "", *arguments], cwd=self.root, check=True,
                       env={"PATH": str(self.bin), "CALLS": str(self.calls)}, timeout=30)
        return self.calls.read_text().splitlines()[0]

    def test_single_targets_are_configured_without_tests_unless_the_folder_has_some(self):
        self.run_setup()
        self.assertRegex(self.run_build(), "-DOTR_TESTS=ON .*-DOTR_TEST_PYTHON=")
        self.assertRegex(self.run_build("outrigger"), "-DOTR_TESTS=OFF")
        self.assertNotIn("PYTHON", self.run_build("outrigger").upper())
        cache = self.root / "build/release/CMakeCache.txt"
        cache.parent.mkdir()
        cache.write_text("OTR_TESTS:BOOL=ON\n")
        self.assertRegex(self.run_build("outrigger"), "-DOTR_TESTS=ON .*-DOTR_TEST_PYTHON=")

    def test_system_writes_nothing_into_the_tree(self):
        self.assertEqual(self.run_setup("system")[0], 0)
        self.assertFalse((self.root / "build").exists())


if __name__ == "__main__":
    os.umask(0o022)
    unittest.main()
