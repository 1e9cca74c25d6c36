# SPDX-License-Identifier: Apache-2.0
"""A demo that was stopped goes on; one with other arguments, or after a whole one, begins anew."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts/demo"))

from unfinished import Unfinished


class Stopped(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def begun(self):
        first = Unfinished(folder=str(self.folder), asked={"batch": 8})
        self.assertIsNone(first.steps)
        first.steps = 700
        for name in ("one", "two"):
            pathlib.Path(first.checkpoints(name), "step1").mkdir(parents=True)
        first.note_done("one")
        return first

    def names(self):
        return {path.name for path in self.folder.iterdir()}

    def test_it_goes_on(self):
        self.begun()
        self.assertEqual(self.names(), {"unfinished.json", "two.checkpoints"})
        again = Unfinished(str(self.folder), {"batch": 8})
        self.assertEqual((again.steps, again.is_done("one"), again.is_done("two")), (700, True, False))
        self.assertEqual(self.names(), {"unfinished.json", "two.checkpoints"})
        again.finish()
        self.assertEqual(self.names(), set())
        self.assertIsNone(Unfinished(str(self.folder), {"batch": 8}).steps)

    def test_other_arguments_begin_anew(self):
        self.begun()
        other = Unfinished(str(self.folder), {"batch": 4})
        self.assertEqual((other.steps, other.is_done("one"), self.names()), (None, False, set()))

    def test_a_damaged_note_begins_anew(self):
        self.begun()
        (self.folder / "unfinished.json").write_text("{", encoding="ascii")
        self.assertIsNone(Unfinished(str(self.folder), {"batch": 8}).steps)


if __name__ == "__main__":
    unittest.main()
