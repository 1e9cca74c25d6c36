# SPDX-License-Identifier: Apache-2.0
"""Ranks find each other on a board that is full of what former ranks left."""
import concurrent.futures
import threading
import time
import unittest

from outrigger import OutriggerError, meeting


class Memory(dict):
    """A board of one process."""

    set, has, get = dict.__setitem__, dict.__contains__, dict.__getitem__

    def wait(self, key, seconds):
        end = time.monotonic() + seconds
        while key not in self and time.monotonic() < end:
            time.sleep(0.001)
        return key in self

    def pause(self, missing):
        time.sleep(0.001)


class Meeting(unittest.TestCase):
    def setUp(self):
        self.memory = Memory()

    def board(self):
        """One rank's."""
        return self.memory

    def agree(self, size, seconds=30.0, ranks=None):
        """What each of the ranks gets. ranks: those that come, in this order."""
        def one(rank):
            return meeting.agree(self.board(), rank, size, seconds)

        with concurrent.futures.ThreadPoolExecutor(size) as pool:
            return [each.result() for each in [pool.submit(one, rank) for rank in (range(size) if ranks is None else ranks)]]

    def test_each_meeting_has_a_name(self):
        seen = set()
        for size in (4, 2, 2, 3, 1):  # each finds what all before it left
            name, *others = self.agree(size)
            self.assertEqual(others, [name] * (size - 1))
            self.assertNotIn(name, seen)
            seen.add(name)

    def test_a_dead_rank_that_asked_is_not_taken_for_the_new_one(self):
        self.board().set("asks/1", "of a rank that died before it was answered")
        late = []
        new = threading.Timer(0.3, lambda: late.append(self.agree(2, ranks=[1])))
        new.start()
        first = self.agree(2, ranks=[0])
        new.join()
        self.assertEqual(late, [first])

    def test_who_did_not_come_is_named(self):
        with self.assertRaisesRegex(OutriggerError, r"E_TIMEOUT.*ranks 1, 2, 3 of 4 did not come within 0.2 s"):
            self.agree(4, 0.2, ranks=[0])
        with self.assertRaisesRegex(OutriggerError, r"E_TIMEOUT.*rank 3 waited 0.2 s for rank 0, which did not come"):
            self.agree(4, 0.2, ranks=[3])

    def test_all_who_came_hear_who_did_not(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for each in [pool.submit(self.agree, 3, seconds, [rank]) for rank, seconds in ((0, 0.5), (2, 30.0))]:
                with self.assertRaisesRegex(OutriggerError, r"E_TIMEOUT.*rank 1 of 3 did not come within 0.5 s"):
                    each.result()


if __name__ == "__main__":
    unittest.main()
