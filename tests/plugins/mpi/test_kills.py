# SPDX-License-Identifier: Apache-2.0
"""Random ranks of a training are killed at random moments. Every survivor ends in time, with one error that names the right rank, and the flight
recorders tell the same story.   test_kills.py BUILD TRAINS OUTRIGGER PLACE COUNT [SEED]   PLACE: shm, or hosts2: two hosts, which are namespaces"""
import contextlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import launchers

RANKS = 4
SOON = 4  # seconds until all know; docs/mpi.md promises one where a machine is not busy
READY = re.compile(r"^rank (\d+) process (\d+) ready at ([\d.]+)$", re.M)
ENDED = re.compile(r"^rank (\d+) process (\d+) ended at ([\d.]+): (\w+) (.*)$", re.M)


def start_here(program: list[str], environment: dict[str, str], job: str, output) -> list[subprocess.Popen]:
    ranks = []
    for rank in range(RANKS):
        place = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(RANKS), "OTR_JOB": job}
        ranks.append(subprocess.Popen(program, env=os.environ | environment | place, stdin=subprocess.DEVNULL, stdout=output, stderr=output))
    return ranks


def wait_for(condition, seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def check(killed: int, process: int, at: float, written: str, inspected: dict) -> float:
    """Returns the seconds that the last survivor needed."""
    ends = {int(rank): (float(moment), status, text) for rank, _, moment, status, text in ENDED.findall(written)}
    survivors = [rank for rank in range(RANKS) if rank != killed]
    assert sorted(ends) == survivors, f"ranks {sorted(ends)} told of an end"
    texts = {text for _, _, text in ends.values()}
    if place == "shm":  # between hosts two ranks may find it at the same moment, each in its own operation
        assert len(texts) == 1, f"survivors tell {len(texts)} stories: {texts}"
    for rank, (moment, status, text) in ends.items():
        assert status == "OTR_E_PEER_DEAD", f"rank {rank}: {status}"
        named = re.search(r"\brank (\d+) of all\b", text) or re.search(r"\brank (\d+) \(process \d+", text)
        assert named is not None and int(named[1]) == killed, f"rank {rank} names {named and named[0]}"
        assert moment - at < SOON, f"rank {rank} needed {moment - at:.2f} s"
    # Who heard of it from another rank that went may know its number only.
    assert any(f"(process {process}" in text for text in texts), f"nobody names process {process}"
    states = {rank["rank"]: rank["state"] for rank in inspected["ranks"]}
    assert states == {rank: "gone" if rank == killed else "OTR_E_PEER_DEAD" for rank in range(RANKS)}, states
    assert inspected["culprit"] == killed, inspected["verdict"]
    assert inspected["held_up"] == survivors, inspected["verdict"]
    assert f"rank {killed} (process {process} of " in inspected["verdict"], inspected["verdict"]
    assert " is gone: " in inspected["verdict"], inspected["verdict"]
    return max(moment for moment, _, _ in ends.values()) - at


def kill_one(number: int, chance: random.Random, on) -> float:
    stage, elements, killed, pause = chance.randrange(4), chance.choice([1000, 30000, 300000]), chance.randrange(RANKS), chance.uniform(0, 0.7)
    told = f"kill {number}: rank {killed} after {pause:.3f} s, stage {stage}, {elements} elements"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as output:
        lines = pathlib.Path(folder) / "lines"
        lines.touch()
        flights = str(pathlib.Path(folder) / "flights")
        environment = {"OTR_TEST_LINES": str(lines), "TMPDIR": folder, "OTR_FLIGHT_RECORDER": flights}
        program = [trains, str(stage), str(elements), "60"]
        if on is None:
            started = start_here(program, environment, folder, output)
        else:
            started = [subprocess.Popen([*launcher.command(RANKS, True, on), *program], env=launcher.environment | environment | on.environment,
                                        stdin=subprocess.DEVNULL, stdout=output, stderr=output)]
        try:
            wait_for(lambda: len(READY.findall(lines.read_text())) == RANKS, 60, "the ranks are ready")
            time.sleep(pause)
            process = next(int(process) for rank, process, _ in READY.findall(lines.read_text()) if int(rank) == killed)
            at = time.monotonic()
            os.kill(process, 9)
            wait_for(lambda: len(ENDED.findall(lines.read_text())) >= RANKS - 1, 30, "every survivor ends")
            # Of a rank that has told of its end nothing may hang either: not in its destructors.
            wait_for(lambda: not [p for p in launchers.members(folder) if "trains" in command_of(p)], 20, "every process ends")
            found = subprocess.run([outrigger, "inspect", flights, "--json"], capture_output=True, text=True, check=False)
            assert found.returncode == 0, found.stdout + found.stderr
            seconds = check(killed, process, at, lines.read_text(), json.loads(found.stdout))
        except (AssertionError, StopIteration) as error:
            output.seek(0)
            raise SystemExit(f"{told}: {error}\n{lines.read_text()}\n{output.read()}") from error
        finally:
            for left in launchers.members(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(left, 9)
            for each in started:
                each.wait()
    print(f"{told}: all know after {seconds:.3f} s", flush=True)
    return seconds


def command_of(process: int) -> str:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    return ""


build, trains, outrigger, place, count, *seed = sys.argv[1:]
if place != "shm" and launchers.hosts.missing():
    print(f"skipped: {launchers.hosts.missing()}")
    sys.exit(77)
launcher = launchers.Launcher("openmpi" if place == "shm" else place, pathlib.Path(build))
start = int(seed[0]) if seed else random.randrange(1 << 30)
print(f"{count} kills over {place}, seed {start}", flush=True)
with launchers.hosts.hosts(launcher.hosts) if launcher.hosts else contextlib.nullcontext() as hosts_now:
    chances = random.Random(start)
    took = [kill_one(number + 1, chances, hosts_now) for number in range(int(count))]
print(f"{count} of {count} kills over {place}: every survivor named the right rank, the last after {max(took):.3f} s, in the median {sorted(took)[len(took) // 2]:.3f} s")
