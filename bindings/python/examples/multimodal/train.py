# SPDX-License-Identifier: Apache-2.0
"""Trains a vision group and a language group to read strips of scanned digits out, as actors of Ray.

    python train.py
    python train.py --language-ranks 2 --vision-stage 3 --language-precision fp16
    python train.py --checkpoints DIR --kill vision:1:150        # a process is killed in step 150, and replaced
"""
import argparse
import dataclasses
import json
import tempfile
import time
from pathlib import Path

import colocated
import digits
import schedule
from groups import Groups, cluster
from settings import PRECISIONS, Settings

PHASES = ("vision forward", "transfer", "waiting", "language", "vision backward", "step")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = Settings()
    for group in ("vision", "language"):
        part = getattr(defaults, group)
        parser.add_argument(f"--{group}-ranks", type=int, default=part.ranks)
        parser.add_argument(f"--{group}-stage", type=int, default=part.stage, choices=range(4))
        parser.add_argument(f"--{group}-precision", default=part.precision, choices=PRECISIONS)
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--micro-batches", type=int, default=defaults.micro_batches, help="of a step")
    parser.add_argument("--ahead", type=int, default=defaults.ahead, help="micro-batches that the vision group is ahead; 1: the groups take turns")
    parser.add_argument("--checkpoints", metavar="DIR", help="save the training here, and go on from here")
    parser.add_argument("--summary", metavar="FILE", type=Path, help="write what is printed at the end as JSON, too")
    parser.add_argument("--kill", metavar="GROUP:RANK:STEP", help="kill that process in that step")
    return parser.parse_args()


def settings_of(given):
    settings = Settings(steps=given.steps, micro_batches=given.micro_batches, ahead=given.ahead)
    parts = {group: dataclasses.replace(getattr(settings, group), **{key: getattr(given, f"{group}_{key}") for key in ("ranks", "stage", "precision")})
             for group in ("vision", "language")}
    return dataclasses.replace(settings, **parts)


def milliseconds(times):
    return ", ".join(f"{phase} {1e3 * times[phase]:.1f}" for phase in PHASES if phase in times)


def tell_times(groups, settings, steps=20):
    """What a step takes, beside one process that has both models. These steps go on from the end of the training, so they come last."""
    def step_of():
        begin = time.perf_counter()
        for step in range(settings.steps, settings.steps + steps):
            schedule.train_step(groups, step)
        return (time.perf_counter() - begin) / steps
    groups.call(groups.all, "take_times")
    found = {"steps": steps, "step": step_of(), "ranks": []}
    print(f"a step of the groups: {1e3 * found['step']:.1f} ms")
    for group, actors in (("vision", groups.vision), ("language", groups.language)):
        for rank, times in enumerate(groups.call(actors, "take_times")):
            found["ranks"].append({"group": group, "rank": rank, "phases": {phase: seconds / steps for phase, seconds in times.items()}})
            print(f"  {group} rank {rank}, ms: {milliseconds(found['ranks'][-1]['phases'])}")
    whole, times = colocated.seconds_a_step(settings, steps)
    print(f"a step of both models in one process: {1e3 * whole:.1f} ms\n  ms: {milliseconds(times)}")
    return {**found, "colocated": {"step": whole, "phases": times}}


def main():
    given = arguments()
    settings = settings_of(given)
    kill = None
    if given.kill:
        group, rank, step = given.kill.split(":")
        kill = int(step), group, int(rank)
    with tempfile.TemporaryDirectory() as folder, cluster(settings.vision.ranks + settings.language.ranks):
        groups = Groups(settings)
        begin = time.perf_counter()
        losses = schedule.train(groups, given.checkpoints or folder, kill, say=print)
        took = time.perf_counter() - begin
        for step in [step for step in losses if (step + 1) % (settings.steps // 6 or 1) == 0]:
            print(f"loss {step + 1} {losses[step]:.4f}")
        words, strips, read = schedule.accuracy(groups)
        print(f"{len(losses)} steps in {took:.1f} s; of strips that were held out it reads {words:.1%} of the digits and {strips:.1%} of all strips right")
        for there, said in read[:3]:
            print(f"  {digits.text(there)}: {digits.text(said)}")
        assert settings.steps < Settings.steps or words > 0.95, "it does not learn"
        times = tell_times(groups, settings)
        if given.summary:
            given.summary.write_text(json.dumps({"settings": dataclasses.asdict(settings), "seconds": took, "losses": list(losses.values()),
                                                 "digits_right": words, "strips_right": strips, "times": times}) + "\n", encoding="utf-8")
        groups.end()


if __name__ == "__main__":
    main()
