# SPDX-License-Identifier: Apache-2.0
"""What goes wrong between ranks over a real MPI library: every survivor hears in time, and of the right rank.
test_faults.py BUILD RANK_PROGRAM KIND [TEST…]"""
import pathlib
import re
import sys
import unittest

import launchers

LINE = re.compile(r"^rank (-?\d+): (\w+) after ([\d.]+) s: (.*)$", re.M)
RANKS = 3
SOON = 4  # seconds until all know of what a kernel or a rank says; 1 where a machine is not busy


class Faults(unittest.TestCase):
    def ranks(self, *scenario: str, ranks: int = RANKS, survive: bool = True, within: float = 60, **variables: str) -> dict[int, list[tuple[str, float, str]]]:
        """Of each rank its lines: (status, seconds, text)."""
        _, self.written = launcher.run(ranks, [program, *scenario], survive, within, **variables)
        lines: dict[int, list[tuple[str, float, str]]] = {}
        for rank, status, seconds, text in LINE.findall(self.written):
            lines.setdefault(int(rank), []).append((status, float(seconds), text))
        return lines

    def expect(self, lines, ranks, status, parts, within=SOON, place=0):
        for rank in ranks:
            self.assertIn(rank, lines, self.written)
            found, seconds, text = lines[rank][place]
            self.assertEqual(found, status, self.written)
            self.assertLess(seconds, within, self.written)
            for part in parts:
                self.assertIn(part, text, self.written)
        self.assertEqual(len({lines[rank][place][2] for rank in ranks}), 1, self.written)  # one text

    def test_all_is_well(self):
        lines = self.ranks("well", survive=False)
        self.expect(lines, range(RANKS), "OTR_OK", [], within=60)
        self.assertEqual(self.written.count("sum 6\n"), RANKS, self.written)

    def test_a_dead_rank_is_named(self):
        self.expect(self.ranks("dies"), [0, 2], "OTR_E_PEER_DEAD", ["rank 1 (process ", "ended", "barrier", "last checkpoint"])

    def test_a_dead_rank_is_named_while_data_moves(self):
        lines = self.ranks("dies moving")
        for rank in (0, 2):
            status, seconds, text = lines[rank][0]
            self.assertEqual(status, "OTR_E_PEER_DEAD", self.written)
            self.assertIn("rank 1 (process ", text)
            self.assertLess(seconds, 1 + SOON)

    def test_a_silent_rank_is_named_at_the_deadline(self):
        self.expect(self.ranks("stops", "2", within=10), [0, 2], "OTR_E_TIMEOUT",
                    ["1 of 3 ranks did not come to barrier", "within 2 s", "rank 1 (process ", "does not answer", "raise the timeout"], within=8)

    def test_a_late_rank_is_waited_for(self):
        self.expect(self.ranks("is late"), range(RANKS), "OTR_OK", [], within=10)

    def test_an_interrupted_call_can_be_made_again(self):
        lines = self.ranks("is interrupted")
        for rank in (0, 2):
            statuses = [status for status, _, _ in lines[rank]]
            self.assertEqual(statuses, ["OTR_E_INTERRUPTED", "OTR_E_STATE", "OTR_OK"], self.written)
            self.assertIn(f"by the host of rank {rank} while it waited. Make the call again", lines[rank][0][2])
            self.assertIn("make the interrupted call again first", lines[rank][1][2])
        self.assertEqual(lines[1][0][0], "OTR_OK", self.written)

    def test_a_rank_that_leaves_one_group_ends_that_one(self):
        lines = self.ranks("leaves")
        self.expect(lines, [0, 2], "OTR_E_PEER_DEAD", ["rank 1 (process ", "left", "what was made on this communicator cannot go on"])
        self.expect(lines, range(RANKS), "OTR_OK", [], within=10, place=1)

    def test_an_abort_reaches_every_duplicate(self):
        self.expect(self.ranks("aborts"), range(RANKS), "OTR_E_ABORTED", ["rank 1 aborted the job: enough"])

    def test_different_calls_are_an_error_on_all(self):
        self.expect(self.ranks("differs"), range(RANKS), "OTR_E_MISMATCH",
                    ["rank 0 calls barrier", "rank 1 calls all_gather 'otr_comm_all_reduce_sum'"])

    def test_mpi_that_is_finalised_too_early_is_an_error(self):
        multiple = "4096" if kind == "abi" else "3"
        self.expect(self.ranks("finalises", "20", multiple), range(RANKS), "OTR_E_STATE", ["MPI_Finalize was called", "destroy"])

    def test_levels_of_threads(self):
        single, serialised = ("0", "2048") if kind == "abi" else ("0", "2")
        lines = self.ranks("well", "20", serialised, survive=False)
        self.expect(lines, range(RANKS), "OTR_OK", [], within=60)
        lines = self.ranks("well", "20", single, ranks=1, survive=False)
        self.expect(lines, [-1], "OTR_E_UNSUPPORTED", ["MPI_THREAD_MULTIPLE", "mpi4py"])

    def test_a_library_that_is_not_there_is_named(self):
        lines = self.ranks("well", ranks=1, survive=False, OTR_MPI_LIBRARY="/nowhere/libmpi.so.40")
        self.expect(lines, [-1], "OTR_E_NOT_FOUND", ["/nowhere/libmpi.so.40", "OTR_MPI_LIBRARY names it", "MPICH"])
        lines = self.ranks("well", ranks=1, survive=False, OTR_MPI_LIBRARY="libm.so.6")
        self.expect(lines, [-1], "OTR_E_UNSUPPORTED", ["libm.so.6", "has no MPI_Initialized", "MPI 3"])


if __name__ == "__main__":
    build, program, kind = sys.argv[1:4]
    launcher = launchers.Launcher(kind, pathlib.Path(build))
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
