# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher: a load while an asynchronous save of the same engine is under way, or failed.

    outrigger run -n 2 -- python test_checkpoints_beside.py"""
import os
import resource
import unittest

import resuming
import torch

import outrigger
import outrigger.torch

WIDTH = 1500  # its save takes longer than what comes before the load


class Beside(resuming.Case):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.BatchNorm1d(WIDTH))
        self.engine, *_ = outrigger.torch.initialize(model=module, config=resuming.config(), comm=self.comm)

    def step(self):
        self.engine.backward(self.engine(torch.randn(4, WIDTH)).square().mean())
        self.engine.step()

    def place(self):
        """By each of those who keep one: the engine, the library, the buffers, the weights."""
        module = self.engine.module
        return (self.engine.global_steps, self.engine._library.get_progress()["steps"]["applied"], int(module[1].num_batches_tracked),
                float(self.engine.read(module[0].weight, outrigger.lowlevel.VALUE_MASTER).double().sum()))

    def test_a_load_waits_for_the_save(self):
        """And reads nothing before: neither that there is no checkpoint, nor an older one, nor parts of one that is being replaced."""
        first, tag = os.path.join(self.folder, "first"), os.path.join(self.folder, "tag")
        for folder, name, asked in ((first, "a", None), (first, "b", None), (tag, "x", "x"), (tag, "x", "x")):
            with self.subTest(os.path.basename(folder), name=name):
                self.step()
                place = self.place()
                self.engine.save_checkpoint(folder, name, client_state={"at": place}, asynchronous=True)
                path, state = self.engine.load_checkpoint(folder, asked)
                self.assertEqual((path, state), (os.path.join(folder, name), {"at": place}))
                self.assertEqual(self.place(), place)

    def test_so_does_a_function(self):
        """custom_load_fn, which the library does not load for."""
        seen = []
        for _ in range(2):
            self.step()
            place = self.place()
            self.engine.save_checkpoint(self.folder, "x", client_state={"at": place}, asynchronous=True)
            _, state = self.engine.load_checkpoint(self.folder, load_module_only=True, custom_load_fn=lambda src, dst: seen.append(
                float(src["0.weight"].double().sum())))
            self.assertEqual((state, seen[-1]), ({"at": place}, place[-1]))

    def test_a_save_that_failed_is_told_once(self):
        self.step()
        self.engine.save_checkpoint(self.folder, "a")
        place = self.place()
        self.step()
        now = self.place()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, limits[1]))  # of a rank's file; the ranks' memory needs less
        try:
            self.engine.save_checkpoint(self.folder, "b", asynchronous=True)
            with self.assertRaisesRegex(outrigger.OutriggerError, 'E_IO: .*the asynchronous save of checkpoint "b" failed'):
                self.engine.load_checkpoint(self.folder)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.assertEqual(self.place(), now)
        path, _ = self.engine.load_checkpoint(self.folder)
        self.assertEqual((path, self.place()), (os.path.join(self.folder, "a"), place))


if __name__ == "__main__":
    unittest.main()
