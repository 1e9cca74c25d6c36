# SPDX-License-Identifier: Apache-2.0
"""The end of a script waits for gloo's threads, which take the interpreter's lock after a collective has ended."""
import ctypes
import threading
import time
import unittest

from outrigger.torch import distributed

PR_SET_NAME = 15


class Exit(unittest.TestCase):
    def thread(self, work):
        """A thread that has the name of gloo's until the test ends."""
        started, end = threading.Event(), threading.Event()

        def run():
            ctypes.CDLL(None).prctl(PR_SET_NAME, b"pt_gloo_runloop", 0, 0, 0)
            started.set()
            work(end)
            end.wait()

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(end.set)
        started.wait()

    def waited(self, seconds):
        begin = time.monotonic()
        distributed._await_gloo(seconds)
        return time.monotonic() - begin

    def test_a_thread_that_still_works_is_awaited(self):
        done = threading.Event()

        def work(end):
            for _ in range(100):  # takes the lock again and again, and sleeps in between
                sum(range(10000))
                time.sleep(0.002)
            done.set()

        self.thread(work)
        self.assertLess(self.waited(60), 50)
        self.assertTrue(done.is_set())

    def test_the_wait_ends_with_a_thread_that_never_sleeps(self):
        def work(end):
            while not end.is_set():
                pass

        self.thread(work)
        self.assertLess(self.waited(0.2), 30)

    def test_without_such_a_thread_there_is_no_wait(self):
        end = time.monotonic() + 30  # the kernel lists a joined thread a moment longer
        while distributed._gloo_threads() and time.monotonic() < end:
            time.sleep(0.001)
        self.assertEqual(distributed._gloo_threads(), {})
        self.assertLess(self.waited(60), 5)


unittest.main()
