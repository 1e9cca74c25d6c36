# SPDX-License-Identifier: Apache-2.0
"""One rank of the vision group and one of the language group, as actors of Ray. A method ends when its work is done; who calls which when is in
schedule.py."""
import collections
import contextlib
import gc
import os
import time

import digits
import environment  # noqa: F401  before ray
import ray
import torch
import wire
from colocated import masters
from language import Language, loss_of, read
from layers import attention
from vision import Vision

import outrigger.ray
import outrigger.torch


def one_or_all(values):
    """As an actor's method returns them under num_returns=len(values)."""
    return values[0] if len(values) == 1 else values


class Worker:
    """What ranks of both groups do. rank: in its group."""

    group, color = "", 0

    def __init__(self, rank):
        torch.set_num_threads(1)
        self.rank = rank
        self.sender = f"{self.group} rank {rank}"
        self.settings = self.world = self.engine = None
        self.times = collections.Counter()

    def is_alive(self):
        return True

    def join(self, actors, settings):
        """All actors of both groups meet to train, each in a new engine; what was before, such as a group that a rank was lost from, is left
        behind. Returns the process's number."""
        self.leave()
        self.settings = settings
        self.world = outrigger.ray.group(actors, timeout=settings.timeout)
        comm = self.world.split(self.color, self.rank)
        shares = wire.share(settings, self.group)
        self.start, self.end = sum(shares[:self.rank]), sum(shares[:self.rank + 1])
        part = getattr(settings, self.group)
        self.engine = outrigger.torch.initialize(model=self.model(comm), config=settings.config(part), comm=comm)[0]
        self.times.clear()
        return os.getpid()

    def leave(self):
        self.world = self.engine = None
        gc.collect()  # an engine is in cycles

    def step(self, is_last):
        """The end of a micro-batch; of the last one, the update of both groups: one norm, one clip coefficient, all or none."""
        with self.timed("step"):
            if not is_last:
                self.engine.step()
                return None
            outrigger.torch.step_many([self.engine], self.world)
        report = self.engine.report
        return {"norm": report.grad_norm, "reason": report.reason, "skipped": self.engine.skipped_steps}

    def save(self, folder, step):
        self.engine.save_checkpoint(os.path.join(folder, self.group), tag=f"step{step}", client_state={"step": step})

    def load(self, folder, step=None):
        """The checkpoint of that step, or the latest. Returns its step; 0: there is none, and the training begins."""
        tag = None if step is None else f"step{step}"
        path, state = self.engine.load_checkpoint(os.path.join(folder, self.group), tag=tag)
        return 0 if path is None else state["step"]

    def parameters(self):
        return masters(self.engine)

    def take_times(self):
        """Seconds by phase since the last call."""
        times, self.times = dict(self.times), collections.Counter()
        return times

    @contextlib.contextmanager
    def timed(self, phase):
        begin = time.perf_counter()
        yield
        self.times[phase] += time.perf_counter() - begin

    def received(self, references, unpack, *arguments):
        """What unpack makes of the messages. Until the last of them was sent this rank waits, and from then on it is the transfer; one clock counts for
        all processes of a host."""
        begin = time.perf_counter()
        *result, sent = unpack(self.settings, ray.get(references), *arguments)
        arrived = max(begin, sent)
        self.times["waiting"] += arrived - begin
        self.times["transfer"] += time.perf_counter() - arrived
        return result


class VisionWorker(Worker):
    """Has a part of the patches of every strip."""

    group, color = "vision", 0

    def model(self, comm):
        self.flying = {}  # embeddings by micro-batch, until their gradients are there
        return Vision(self.settings, outrigger.torch.UlyssesAttention(attention, comm))

    def embedding_of(self, patches):
        return self.engine(patches[:, self.start:self.end].to(self.engine.compute_dtype), self.start)

    def forward(self, number):
        """Returns a message for each language rank."""
        with self.timed("vision forward"):
            embedding = self.flying[number] = self.embedding_of(digits.batch(self.settings, number)[0])
        with self.timed("transfer"):
            parts = embedding.split(wire.share(self.settings, "language"))
            return one_or_all([wire.pack("embedding", part, number, self.sender) for part in parts])

    def backward(self, number, references):
        """references: to a message of each language rank."""
        grad, tag = self.received(references, wire.unpack_grad, number, self.rank)
        with self.timed("vision backward"):
            self.engine.backward(self.flying.pop(number), grad, tag=tag)

    def embed(self, count):
        """Of strips that are held out, all of which one language rank reads."""
        with torch.no_grad():
            embedding = self.embedding_of(digits.held_out(self.settings, count)[0])
        return wire.pack("embedding", embedding, count, self.sender)


class LanguageWorker(Worker):
    """Has a part of the strips."""

    group, color = "language", 1

    def model(self, comm):
        self.losses = []
        self.dtype = torch.bfloat16 if self.settings.vision.precision == "bf16" else torch.float32  # that embeddings come in
        return Language(self.settings)

    def train(self, number, references):
        """references: to a message of each vision rank. Returns a message for each of them."""
        embedding, = self.received(references, wire.unpack_embedding, number, self.rank, self.dtype)
        with self.timed("language"):
            received = embedding.float().requires_grad_()
            words = digits.batch(self.settings, number)[1][self.start:self.end]
            loss = loss_of(self.engine, words, received.to(self.engine.compute_dtype))
            # The engine takes the mean over ranks, and the factor makes it the mean over strips.
            self.engine.backward(loss * (len(words) * self.settings.language.ranks / self.settings.strips))
            self.losses.append(loss.item())
        with self.timed("transfer"):
            parts = received.grad.split(wire.share(self.settings, "vision"), 1)
            return one_or_all([wire.pack_grad(self.settings, part, number, self.sender, self.engine.tag) for part in parts])

    def read(self, count, references):
        """What it reads on strips that are held out, [count, digits], and what is there."""
        embedding, = self.received(references, wire.unpack_embedding, count, self.rank, self.dtype, count)
        words = read(self.engine, embedding.to(self.engine.compute_dtype), self.settings.digits)
        return words.numpy(), digits.held_out(self.settings, count)[1].numpy()

    def take_losses(self):
        """Of this rank's strips, by micro-batch since the last call."""
        losses, self.losses = self.losses, []
        return losses
