# SPDX-License-Identifier: Apache-2.0
"""What a demo that was stopped has left in its folder, so that the next one goes on: the same arguments, the number of updates, and
which configurations are done. Their weights and curves are in <name>.checkpoints, and in what <name>'s run wrote."""

import contextlib
import glob
import json
import os
import shutil

NAME = "unfinished.json"


class Unfinished:
    """asked: the arguments that make runs comparable. With others than those of the stopped demo, all begins anew."""

    def __init__(self, folder, asked):
        self._folder, self._state = folder, {}
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError), open(os.path.join(folder, NAME), encoding="ascii") as file:
            self._state = json.load(file)
        if self._state.get("asked") != asked:
            self.finish()
            self._state = {"asked": asked, "steps": None, "done": []}

    @property
    def steps(self):
        return self._state["steps"]

    @steps.setter
    def steps(self, steps):
        self._state["steps"] = steps
        self._write()

    def is_done(self, name):
        return name in self._state["done"]

    def checkpoints(self, name):
        return os.path.join(self._folder, name + ".checkpoints")

    def note_done(self, name):
        self._state["done"].append(name)
        self._write()
        shutil.rmtree(self.checkpoints(name), ignore_errors=True)

    def finish(self):
        """The next demo begins anew."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self._folder, NAME))
        for each in glob.glob(os.path.join(glob.escape(self._folder), "*.checkpoints")):
            shutil.rmtree(each)

    def _write(self):
        path = os.path.join(self._folder, NAME)
        with open(path + ".new", "w", encoding="ascii") as file:
            json.dump(self._state, file)
        os.replace(path + ".new", path)
