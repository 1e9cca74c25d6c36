# SPDX-License-Identifier: Apache-2.0
"""On the two ranks of a launcher: a training that one rank saved goes on on both, and the other way around.

    outrigger run -n 2 -- python test_checkpoints_other_ranks.py"""
import itertools
import unittest

import numpy
import resuming
import torch
from models import solo
from resuming import DECAYS, HOSTS, Case, differing, start, train, values


class OtherRanks(Case):
    """Without dropout and BatchNorm, whose values depend on which rank has what. 1e-5: sums of gradients in another order."""
    NETWORK = {"network": {"dropout": 0.0, "norm": False}, "train_micro_batch_size_per_gpu": None, "train_batch_size": resuming.BATCH}

    def start(self, seed, comm, **options):
        own = {**self.NETWORK, **options, "train_micro_batch_size_per_gpu": resuming.BATCH // comm.size}
        return start(seed, comm, **own)

    def mean(self, losses, comm):
        every = numpy.frombuffer(comm.all_gather(numpy.array(losses)))
        return every.reshape(comm.size, -1).mean(0).tolist()

    def goes_on(self, before, after, stage, **options):
        """before, after: whether the ranks work alone, of which the first one counts, or all together."""
        first, second = (solo() if alone else self.comm for alone in (before, after))
        engine = self.start(0, first, stage=stage, **options)
        train(engine, 0, 4, noise=False)
        if not (before and self.comm.rank):
            engine.save_checkpoint(self.folder, "at4", {"rank": self.comm.rank})
        expected = self.mean(train(engine, 4, 8, noise=False), first)
        engine.destroy()
        self.comm.barrier()
        engine = self.start(1, second, stage=stage, **options)
        if not (after and self.comm.rank):
            _, state = engine.load_checkpoint(self.folder, "at4")
            self.assertEqual(state, {"rank": 0 if before else self.comm.rank})
            self.assertEqual((engine.global_steps, engine.module.calls.item()), (4, 4))
            self.assertAlmostEqual(engine.get_lr()[0], 1e-2 * 0.9**4, delta=1e-12)
            losses = self.mean(train(engine, 4, 8, noise=False), second)
            for one, other in zip(expected, losses):
                self.assertAlmostEqual(one, other, delta=1e-5 * one)
            self.assertEqual(engine.module.calls.item(), 8)
        engine.destroy()
        self.comm.barrier()

    def test_on_fewer_and_on_more(self):
        for (before, after), stage in itertools.product(((False, True), (True, False)), range(4)):
            with self.subTest(stage=stage, before=before):
                self.goes_on(before, after, stage, **DECAYS["PyTorch's"])

    def test_a_log_line_says_it(self):
        if self.comm.rank == 0:
            self.start(0, solo()).save_checkpoint(self.folder)
        self.comm.barrier()
        torch.manual_seed(50 + self.comm.rank)
        kept = torch.get_rng_state()
        engine = self.start(0, self.comm)
        torch.manual_seed(50 + self.comm.rank)
        with self.assertLogs("outrigger.torch", "WARNING") if self.comm.rank == 0 else self.assertNoLogs("outrigger.torch", "WARNING"):
            engine.load_checkpoint(self.folder)
        self.assertEqual(torch.equal(torch.get_rng_state(), kept), self.comm.rank > 0)

    def test_an_optimizer_of_pytorch(self):
        self.goes_on(False, True, 0, make=HOSTS["RMSprop"], **DECAYS["PyTorch's"])  # its states are of whole parameters
        self.goes_on(True, False, 0, make=HOSTS["RMSprop"], **DECAYS["PyTorch's"])
        engine = self.start(0, self.comm, stage=2, make=HOSTS["RMSprop"])
        train(engine, 0, 2)
        engine.save_checkpoint(self.folder, "slices")
        engine.destroy()
        engine = self.start(1, solo(), stage=2, make=HOSTS["RMSprop"])
        before = values(engine)
        with self.assertRaisesRegex(ValueError, "states of RMSprop are slices of the 2 ranks .* stage 2"):
            engine.load_checkpoint(self.folder, "slices")
        self.assertEqual(differing(before, values(engine)), [])
        engine.load_checkpoint(self.folder, "slices", load_optimizer_states=False)
        self.assertEqual(engine.global_steps, 2)


if __name__ == "__main__":
    unittest.main()
