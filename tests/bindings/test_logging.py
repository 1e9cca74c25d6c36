# SPDX-License-Identifier: Apache-2.0
"""Log lines of the library come to logging.getLogger("outrigger"), from any thread, until the interpreter ends."""
import contextlib
import ctypes
import inspect
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

from outrigger import Comm, Context, Engine, lowlevel

OLD_FORM = {"zero_optimization": True}  # legal, with a warning
LOGGER = logging.getLogger("outrigger")


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


def engine_of(context, config=OLD_FORM):
    return Engine(Comm.self_group(context), config)


def sink_of(options):
    """The callback as the library calls it, without the interpreter's lock."""
    address = ctypes.c_void_p.from_address(int(options.this) + 8).value  # behind struct_size and log_level
    return ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)(address)


def until(condition):
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


class Logging(unittest.TestCase):
    def setUp(self):
        self.handler = Kept()
        LOGGER.addHandler(self.handler)
        LOGGER.propagate = False

    def tearDown(self):
        LOGGER.removeHandler(self.handler)
        LOGGER.propagate = True
        LOGGER.setLevel(logging.NOTSET)

    def texts(self):
        return [record.getMessage() for record in self.handler.records]

    def test_a_warning_on_the_main_thread(self):
        engine_of(Context(workers=1)).close()
        (record,) = self.handler.records
        self.assertEqual((record.name, record.levelno), ("outrigger", logging.WARNING))
        self.assertIn("zero_optimization", record.getMessage())
        self.assertIn("old form", record.getMessage())

    def test_on_another_thread_before_the_call_returns(self):
        seen = []

        def work():
            engine_of(Context(workers=1)).close()
            seen.extend(self.texts())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(30)
        self.assertEqual(len(seen), 1)
        self.assertEqual(self.handler.records[0].thread, thread.ident)

    def test_the_level_is_the_loggers_when_the_context_is_made(self):
        for python, library in ((logging.DEBUG, lowlevel.LOG_DEBUG), (logging.INFO, lowlevel.LOG_INFO),
                                (logging.WARNING, lowlevel.LOG_WARNING), (logging.ERROR, lowlevel.LOG_ERROR),
                                (logging.CRITICAL, lowlevel.LOG_ERROR)):
            LOGGER.setLevel(python)
            quiet = library == lowlevel.LOG_ERROR
            context = Context(workers=1)
            LOGGER.setLevel(logging.DEBUG)
            with self.subTest(python=python):
                del self.handler.records[:]
                engine_of(context).close()
                self.assertEqual(len(self.handler.records), 0 if quiet else 1)
        engine_of(Context(workers=1, log_level=lowlevel.LOG_ERROR)).close()
        self.assertEqual(len(self.handler.records), 0)

    def test_levels_and_signs(self):
        LOGGER.setLevel(logging.DEBUG)
        sink = sink_of(lowlevel.ContextOptions())
        for level in (lowlevel.LOG_ERROR, lowlevel.LOG_WARNING, lowlevel.LOG_INFO, lowlevel.LOG_DEBUG):
            sink(level, b"100 %d \xff", None)
        until(lambda: len(self.handler.records) == 4)
        self.assertEqual([record.levelno for record in self.handler.records], [40, 30, 20, 10])
        self.assertEqual(set(self.texts()), {"100 %d \N{REPLACEMENT CHARACTER}"})

    def test_many_threads_without_the_lock_lose_nothing_and_keep_their_order(self):
        sink = sink_of(lowlevel.ContextOptions())

        def write(number):
            for index in range(300):
                sink(lowlevel.LOG_WARNING, f"{number} {index}".encode(), None)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: len(self.handler.records) == 1200)
        for number in range(4):
            mine = [text.split()[1] for text in self.texts() if text.split()[0] == str(number)]
            self.assertEqual(mine, [str(index) for index in range(300)])

    def test_a_handler_may_call_the_library(self):
        context = Context(workers=1)

        class Calls(logging.Handler):
            def emit(handler, record):
                if len(self.handler.records) < 3:
                    engine_of(context).close()  # writes the next line

        LOGGER.addHandler(calls := Calls())
        try:
            engine_of(context).close()
            until(lambda: len(self.handler.records) >= 3)
        finally:
            LOGGER.removeHandler(calls)
        self.assertEqual(len(self.handler.records), 3)

    def test_what_a_handler_raises_on_the_main_thread_comes_out(self):
        class Pressed(logging.Handler):
            def emit(self, record):
                os.kill(os.getpid(), signal.SIGINT)

        LOGGER.addHandler(pressed := Pressed())
        try:
            with self.assertRaises(KeyboardInterrupt):
                engine_of(Context(workers=1)).close()
                time.sleep(1)
        finally:
            LOGGER.removeHandler(pressed)
        engine_of(Context(workers=1)).close()
        self.assertEqual(len(self.handler.records), 2)

    def test_an_error_keeps_its_text(self):
        """Lines of the failed call are handed over after its text was read, though the handler makes calls."""
        texts = []

        class Calls(logging.Handler):
            def emit(self, record):
                with contextlib.suppress(Exception):
                    lowlevel.context_create(None)

        def work():
            sink_of(lowlevel.ContextOptions())(lowlevel.LOG_WARNING, b"a line", None)
            try:
                Context(workers=-5)
            except lowlevel.OutriggerError as error:
                texts.append(error.text)

        LOGGER.addHandler(calls := Calls())
        try:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join(30)
        finally:
            LOGGER.removeHandler(calls)
        self.assertIn("workers = -5", texts[0])


PROGRAM = """
import atexit, logging, os, sys
from outrigger import Comm, Context, Engine
logging.basicConfig(format="%(name)s %(levelname)s %(message).40s", stream=sys.stdout)
def warn():
    Engine(Comm.self_group(Context(workers=1)), {"zero_optimization": True})
"""


class Ends(unittest.TestCase):
    def lines(self, rest, code=0):
        done = subprocess.run([sys.executable, "-c", PROGRAM + rest], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (code, ""))
        return done.stdout.splitlines()

    def test_at_exit(self):
        self.assertTrue(self.lines("warn()")[0].startswith("outrigger WARNING "))
        self.assertEqual(len(self.lines("atexit.register(warn); warn()")), 2)

    def test_after_the_end_nothing_is_said_and_nothing_crashes(self):
        self.assertEqual(self.lines(f"""
import ctypes
from outrigger import lowlevel
{inspect.getsource(sink_of)}
class Late:
    def __del__(self, sink=sink_of(lowlevel.ContextOptions())):
        sink(1, b"late", None)
late = Late()
"""), [])

    def test_the_end_while_a_thread_writes(self):
        self.assertGreater(len(self.lines("""
import threading, time
def work():
    while True:
        warn()
threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
logging.getLogger("outrigger").setLevel(logging.CRITICAL)
time.sleep(0.2)
""")), 0)

    def test_a_forked_child_says_only_its_own(self):
        found = self.lines("""
warn()
sys.stdout.flush()
if os.fork() == 0:
    warn()
    sys.exit(0)
os.wait()
""")
        self.assertEqual(len(found), 2)

    def test_without_logging_nothing_is_imported_for_it(self):
        self.assertEqual(self.lines("", 0), [])
        done = subprocess.run([sys.executable, "-c", "import sys, outrigger; outrigger.Context(workers=1); print('logging' in sys.modules)"],
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "False\n")


if __name__ == "__main__":
    unittest.main()
