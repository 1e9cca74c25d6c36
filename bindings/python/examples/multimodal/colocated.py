# SPDX-License-Identifier: Apache-2.0
"""The same training in one process: both engines, no messages."""
import collections
import time

import digits
import torch
from language import Language, loss_of
from vision import Vision

import outrigger.torch
from outrigger import Comm, Context


def masters(engine):
    """The float32 masters, by name."""
    full = outrigger.torch.utils.safe_get_full_fp32_param
    return {name: full(parameter).numpy() for name, parameter in engine.module.named_parameters()}


class Colocated:
    def __init__(self, settings):
        self.settings = settings
        comm = Comm.self_group(Context(workers=1))
        self.vision, self.language = (outrigger.torch.initialize(model=model, config=settings.config(part), comm=comm)[0] for model, part in
                                      ((Vision(settings), settings.vision), (Language(settings), settings.language)))
        self.times = collections.Counter()

    def train_step(self, step):
        """The losses of its micro-batches."""
        losses = []
        for micro in range(self.settings.micro_batches):
            clock = [time.perf_counter()]
            patches, words = digits.batch(self.settings, step * self.settings.micro_batches + micro)
            embedding = self.vision(patches.to(self.vision.compute_dtype))
            clock.append(time.perf_counter())
            received = embedding.detach().float().requires_grad_()
            loss = loss_of(self.language, words, received.to(self.language.compute_dtype))
            self.language.backward(loss)
            clock.append(time.perf_counter())
            self.vision.backward(embedding, received.grad.to(embedding.dtype))
            clock.append(time.perf_counter())
            losses.append(loss.item())
            if micro == self.settings.micro_batches - 1:
                outrigger.torch.step_many([self.vision, self.language])
            else:
                self.vision.step()
                self.language.step()
            clock.append(time.perf_counter())
            for phase, begin, end in zip(("vision forward", "language", "vision backward", "step"), clock, clock[1:]):
                self.times[phase] += end - begin
        return losses

    def parameters(self):
        return [masters(self.vision), masters(self.language)]


def seconds_a_step(settings, steps):
    """Of a step, and of its phases."""
    torch.set_num_threads(1)
    training = Colocated(settings)
    training.train_step(0)
    training.times.clear()
    begin = time.perf_counter()
    for step in range(1, steps + 1):
        training.train_step(step)
    return (time.perf_counter() - begin) / steps, {phase: seconds / steps for phase, seconds in training.times.items()}
