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


def micro_batches(groups, step):
    """Begins a step; nothing is waited for. The vision group is up to `ahead` micro-batches ahead of the gradients that it has got: while the language
    group reads one, it looks at the next. Returns references to the ends of the last micro-batch."""
    settings, vision, language = groups.settings, groups.vision, groups.language
    numbers = [step * settings.micro_batches + micro for micro in range(settings.micro_batches)]
    waiting, gradients, ends = collections.deque(numbers), {}, []

    def look():
        number = waiting.popleft()
        sent = [listed(each.forward.options(num_returns=len(language)).remote(number)) for each in vision]
        read = [listed(each.train.options(num_returns=len(vision)).remote(number, [of[rank] for of in sent])) for rank, each in enumerate(language)]
        gradients[number] = [[of[rank] for of in read] for rank in range(len(vision))]

    for _ in numbers[:settings.ahead]:
        look()
    for number in numbers:
        for each, references in zip(vision, gradients.pop(number)):
            ends.append(each.backward.remote(number, references))
        ends = ends + [each.step.remote(number == numbers[-1]) for each in groups.all]
        if waiting:
            look()
    return ends


def train_step(groups, step):
    """Returns what the engines say of the step."""
    return [each for each in ray.get(micro_batches(groups, step), timeout=groups.settings.timeout) if each is not None]


def train(groups, folder, kill=None, say=lambda text: None, restarts=3):
    """From the last checkpoint in the folder to the end; a lost rank is replaced, and both groups go on from the last checkpoint. kill: (step, group, rank)
    of a process to kill, to see that. Returns the losses by step, of the language group's rank 0."""
    settings, losses = groups.settings, {}
    step = groups.load(folder)
    while step < settings.steps:
        try:
            work = micro_batches(groups, step)
            if kill is not None and kill[0] == step:
                os.kill(groups.pids[kill[1:]], signal.SIGKILL)
                kill = None
            ray.get(work, timeout=settings.timeout)
            losses[step] = float(np.mean(groups.call(groups.language[:1], "take_losses")[0]))
            step += 1
            if step % settings.every == 0 or step == settings.steps:
                groups.save(folder, step)
        except RayError as error:
            lost = groups.replace_lost()
            if not lost or not restarts:
                raise
            restarts -= 1
            groups.join()
            back = groups.load(folder)
            say(f"step {step}: {', '.join(lost)} was lost ({type(error).__name__}) and is replaced; both groups go on from step {back}")
            step = back
    return losses


def accuracy(groups, count=400):
    """Of words and of whole strips that are held out, and the last strips as they were read."""
    embeddings = [each.embed.remote(count) for each in groups.vision]
    read, there = ray.get(groups.language[0].read.remote(count, embeddings), timeout=groups.settings.timeout)
    if len(groups.language) > 1:  # a forward at stage 3 in slices would be collective
        ray.get([each.read.remote(count, embeddings) for each in groups.language[1:]], timeout=groups.settings.timeout)
    return float((read == there).mean()), float((read == there).all(1).mean()), list(zip(there, read))
