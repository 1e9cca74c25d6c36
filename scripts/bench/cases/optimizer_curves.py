# SPDX-License-Identifier: Apache-2.0
"""One optimizer step against the number of parameters, of tensors and of threads: curves, not rows.

bench.curves gets a dictionary for each curve and format: `curve` (what varies), `format`, `fixed` (what does not), `points` (`x`,
`rounds`, and for each side ns a parameter, or `reason`) and `missing` (side → why it has no points, or no more).
"""

import contextlib
import dataclasses
import time

import machine
import measure
from bench_case import OURS
from cases.optimizer_step import LOOP, NAMES, OF_OURS, THREADS, VARIANTS, agreement, check, loop_count, specification
from sides import Side, SideFailed

MINUTES = 6
PEERS = ("deepspeed", "torch_fused")
VARIANT_OF = {"float32": VARIANTS[0], "bfloat16": VARIANTS[1]}
SIZES = (10**3, 10**4, 10**5, 10**6, 10**7, 64 << 20, 256 << 20)
TENSORS, TENSORS_TOTAL = (1, 10, 100, 1000, 10_000), 10**7  # each divides
THREADS_COUNT = 64 << 20
HELD = {"float32": 68, "bfloat16": 34}  # bytes a parameter of all sides, with what a check takes meanwhile
BESIDE = 3 << 29  # what the sides hold beside that
LOOP_FROM, LOOP_CHOSEN = 10**6, 10**7  # below, the loop would measure the start of its threads; above, its form stays


def run(bench):
    end = min(bench.deadline, time.monotonic() + 60 * MINUTES)
    threads = min(THREADS, len(bench.cores))
    for done, form in enumerate(VARIANT_OF):
        now = time.monotonic()
        deadline = now + (end - now) / (len(VARIANT_OF) - done)  # one format does not take the other's time
        most = 0.9 * machine.available_bytes() - BESIDE
        sizes = [count for count in SIZES if count <= 10**6 or count * HELD[form] <= most]
        at = min(THREADS_COUNT, sizes[-1])
        by_size = _curve(bench, form, "parameters", f"one tensor, {threads} threads")
        by_tensors = _curve(bench, form, "tensors", f"10⁷ parameters in all, {threads} threads")
        by_threads = _curve(bench, form, "threads", f"one tensor of {at / 2**20:.0f} Mi parameters")
        with _session(bench, form, threads, [by_size, by_tensors]) as session:
            for count in sizes:
                _point(by_size, count, session, count, 1, deadline)
            for tensors in TENSORS if TENSORS_TOTAL <= sizes[-1] else ():
                _point(by_tensors, tensors, session, TENSORS_TOTAL, tensors, deadline)
        for number in _numbers_of_threads(len(bench.cores)):
            if number == threads:  # measured already
                by_threads["points"] += [{**point, "x": number} for point in by_size["points"] if point["x"] == at]
                by_threads["missing"].update(by_size["missing"])
                continue
            with _session(bench, form, number, [by_threads]) as session:
                _point(by_threads, number, session, at, 1, deadline)
    return []


def _curve(bench, form, curve, fixed):
    made = {"curve": curve, "format": form, "fixed": fixed, "points": [], "missing": {}}
    bench.curves.append(made)
    return made


def _numbers_of_threads(cores):
    return sorted({1 << bit for bit in range(cores.bit_length()) if 1 << bit <= cores} | {cores})


@dataclasses.dataclass
class _Session:
    """The sides of one format and number of threads; each point gives them a new shape."""

    bench: object
    form: str
    sides: dict  # who → Side
    curves: list
    loop_chosen: bool = False

    def drop(self, who, reason):
        self.sides.pop(who).close()
        for curve in self.curves:
            curve["missing"].setdefault(NAMES.get(who, who), reason)


@contextlib.contextmanager
def _session(bench, form, threads, curves):
    folder = bench.scratch(f"optimizer_curves-{form}")
    logs = bench.output / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    variant = dataclasses.replace(VARIANT_OF[form], count=SIZES[0])
    session = _Session(bench, form, {}, curves)
    try:
        for who in (OURS, *PEERS, LOOP):
            if bench.peer_missing and who not in (OURS, *OF_OURS):
                for curve in curves:
                    curve["missing"][NAMES[who]] = bench.peer_missing
                continue
            session.sides[who] = Side(log_folder=logs, **specification(bench, variant, who, folder, threads))
        for who, side in list(session.sides.items()):
            try:
                bench.facts[side.name] = side.ready(timeout=300)[0]
            except SideFailed as failure:
                session.drop(who, str(failure))
        yield session
    finally:
        for side in session.sides.values():
            side.close()


def _point(curve, x, session, count, tensors, deadline):
    point = {"x": x, "rounds": 0}
    curve["points"].append(point)
    if OURS not in session.sides or time.monotonic() > deadline:
        point["reason"] = curve["missing"].get(OURS, "no time was left")
        return
    variant = dataclasses.replace(VARIANT_OF[session.form], count=count, tensors=tensors)
    try:
        _prepare(session, variant)
        chosen = [side for who, side in session.sides.items() if who != LOOP or count >= LOOP_FROM]
        least, most = (3, 5) if count > 10**7 else (5, 9)
        times = max(1, min(2000, 4 * 10**6 // count))  # so that a call of microseconds is timed in milliseconds
        rounds = measure.interleave(chosen, most, 1, deadline, session.bench.seed, least=least, times=times)
    except SideFailed as failure:
        point["reason"] = str(failure)
        return
    point["rounds"] = len(rounds)
    point["ns_per_parameter"] = {
        name: measure.summary([each / count * 1e9 for each in seconds]) for name, seconds in rounds.seconds.items()
    }


def _prepare(session, variant):
    """Gives the sides their shape and compares their numbers; a peer that fails or differs is left out from here on."""
    folder = session.bench.scratch(f"optimizer_curves-{session.form}")
    own = None
    for who, side in list(session.sides.items()):
        try:
            side.shape(loop_count(variant) if who == LOOP else f"{variant.count} {variant.tensors}", timeout=120)
            if who == LOOP:
                if variant.count <= LOOP_CHOSEN or not session.loop_chosen:
                    side.check(folder, timeout=120)
                    session.loop_chosen = True
            elif who == OURS:
                own, _ = check(side, who, folder)
            elif not (numbers := agreement(variant, own, check(side, who, folder)[0]))["agree"]:
                raise SideFailed(f"its numbers differ at {variant.count} parameters in {variant.tensors} tensors: {numbers}")
        except SideFailed as failure:
            session.drop(who, str(failure))
            if who == OURS:
                raise
