# SPDX-License-Identifier: Apache-2.0
"""The order of work. An actor does what it is asked in the order in which it is asked; a message is passed on as a reference to Ray's object store, and
waited for where it is used."""
import collections
import os
import signal

import environment  # noqa: F401  before ray
import numpy as np
import ray
from ray.exceptions import RayError


def listed(references):
    return references if isinstance(references, list) else [references]


def begin_step(groups, step):
    """Nothing is waited for. The vision group is up to `ahead` micro-batches ahead of the gradients that it has got: while the language group reads one, it
    looks at the next. Returns references to what the engines say of the step, and before them to the ends of what led there."""
    settings, vision, language = groups.settings, groups.vision, groups.language
    numbers = [step * settings.micro_batches + micro for micro in range(settings.micro_batches)]
    waiting, gradients, ends = collections.deque(numbers), {}, []

    def end_micro_batch(actors, number):
        if number != numbers[-1]:
            ends.extend(each.step.remote(False) for each in actors)

    def look():
        number = waiting.popleft()
        sent = [listed(each.forward.options(num_returns=len(language)).remote(number)) for each in vision]
        read = [listed(each.train.options(num_returns=len(vision)).remote(number, [of[rank] for of in sent])) for rank, each in enumerate(language)]
        gradients[number] = [[of[rank] for of in read] for rank in range(len(vision))]
        end_micro_batch(language, number)

    for _ in numbers[:settings.ahead]:
        look()
    for number in numbers:
        ends.extend(each.backward.remote(number, references) for each, references in zip(vision, gradients.pop(number)))
        end_micro_batch(vision, number)
        if waiting:
            look()
    return ends + [each.step.remote(True) for each in groups.all]


def train_step(groups, step):
    """Returns what the engines say of the step."""
    return [each for each in ray.get(begin_step(groups, step), timeout=groups.settings.timeout) if each is not None]


def train(groups, folder, kill=None, say=lambda text: None, restarts=3):
    """From the last checkpoint in the folder to the end; a lost rank is replaced, and both groups go on from the last checkpoint. kill: (step, group, rank)
    of a process to kill, to see that. Returns the losses by step, of the language group's rank 0."""
    settings, losses, lost = groups.settings, {}, []
    step = groups.load(folder)
    while step < settings.steps:
        try:
            if lost:
                groups.join()
                failed, step = step, groups.load(folder)
                say(f"step {failed}: {', '.join(lost)} was lost and is replaced; both groups go on from step {step}")
                lost = []
            work = begin_step(groups, step)
            if kill is not None and kill[0] == step:
                os.kill(groups.pids[kill[1:]], signal.SIGKILL)
                kill = None
            ray.get(work, timeout=settings.timeout)
            losses[step] = float(np.mean(groups.call(groups.language[:1], "take_losses")[0]))
            step += 1
            if step % settings.every == 0 or step == settings.steps:
                groups.save(folder, step)
        except RayError:
            found = groups.replace_lost()
            if not found or not restarts:
                raise
            restarts -= 1
            lost += found
    return losses


def accuracy(groups, count=400):
    """Of words and of whole strips that are held out, and the strips as they are and as they were read."""
    embeddings = [each.embed.remote(count) for each in groups.vision]
    reading = [each.read.remote(count, embeddings) for each in groups.language]
    read, there = ray.get(reading, timeout=groups.settings.timeout)[0]
    return float((read == there).mean()), float((read == there).all(1).mean()), list(zip(there, read))
