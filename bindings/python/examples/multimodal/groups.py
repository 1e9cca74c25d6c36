# SPDX-License-Identifier: Apache-2.0
"""Ray on this machine, and the actors of both groups: started, and replaced where one is lost."""
import contextlib
import shutil
import tempfile
import time

import environment  # noqa: F401  before ray
import ray
from workers import LanguageWorker, VisionWorker

STARTUP = 600  # seconds until processes that have just begun have imported PyTorch, on a busy machine


@contextlib.contextmanager
def cluster(ranks):
    """Ray, for this program alone: on loopback, without dashboard and usage statistics, for so many actors, with 100 MiB for objects."""
    folder = tempfile.mkdtemp(prefix="ray-")
    try:
        ray.init(address="local", num_cpus=ranks, object_store_memory=100 * 2**20, include_dashboard=False, log_to_driver=False, logging_level="error", _temp_dir=folder)
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


class Groups:
    """The actors. vision, language: their classes."""

    def __init__(self, settings, vision=VisionWorker, language=LanguageWorker):
        self.settings = settings
        places = [(group, rank) for group in ("vision", "language") for rank in range(getattr(settings, group).ranks)]
        kinds = {"vision": ray.remote(num_cpus=1)(vision), "language": ray.remote(num_cpus=1)(language)}
        self._make = {place: lambda place=place: kinds[place[0]].remote(place[1]) for place in places}
        self._actors = {place: make() for place, make in self._make.items()}
        self.join()

    @property
    def all(self):
        return list(self._actors.values())

    @property
    def vision(self):
        return [actor for (group, _), actor in self._actors.items() if group == "vision"]

    @property
    def language(self):
        return [actor for (group, _), actor in self._actors.items() if group == "language"]

    def call(self, actors, method, *arguments):
        """The method of each of them, at the same time; their results."""
        return ray.get([getattr(actor, method).remote(*arguments) for actor in actors], timeout=self.settings.timeout)

    def join(self, settings=None):
        """New engines, in new groups. settings: others, for as many ranks."""
        self.settings = settings or self.settings
        ray.get([each.is_alive.remote() for each in self.all], timeout=STARTUP)
        self.pids = dict(zip(self._actors, self.call(self.all, "join", self.all, self.settings)))

    def load(self, folder):
        """The latest moment of which both groups have a checkpoint. Returns its step. The vision group saves last, so its latest is of that moment."""
        step = self.call(self.vision, "load", folder)[0]
        if step:
            self.call(self.language, "load", folder, step)
        return step

    def save(self, folder, step):
        self.call(self.language, "save", folder, step)
        self.call(self.vision, "save", folder, step)

    def replace_lost(self):
        """A new actor in the place of each whose process is gone. Returns who they were."""
        lost = []
        for (group, rank), actor in self._actors.items():
            if not _is_alive(actor):
                lost.append(f"{group} rank {rank}")
                ray.kill(actor)  # in case it hangs
                self._actors[group, rank] = self._make[group, rank]()
        return lost

    def end(self):
        for actor in self.all:
            ray.kill(actor)


def _is_alive(actor, seconds=60):
    """Whether it answers. What it does now comes first: it has heard of the loss, or is about to."""
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        with contextlib.suppress(ray.exceptions.ActorUnavailableError):  # Ray does not know yet
            try:
                ray.get(actor.is_alive.remote(), timeout=seconds)
                return True
            except (ray.exceptions.ActorDiedError, ray.exceptions.GetTimeoutError):
                return False
        time.sleep(0.1)
    return False
