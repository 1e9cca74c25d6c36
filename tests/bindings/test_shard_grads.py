# SPDX-License-Identifier: Apache-2.0
"""A shard's gradients in another place, their norm before a step, and their factor, as Python has them."""
import gc
import sys
import unittest

import numpy as np

import outrigger
from outrigger import Context


class Gradients(unittest.TestCase):
    def test_they_move(self):
        context = Context(workers=1)
        weights = np.zeros(1000, np.float32)
        shard = outrigger.Shard(context, weights)
        optimizer = outrigger.Optimizer(context, {"type": "SGD", "params": {"lr": 0.5}})
        with self.assertRaisesRegex(outrigger.OutriggerError, r"shard 0 \(\"shard\"\) has no gradients: give them by otr_shard_set_grads"):
            optimizer.step([shard])
        shard.set_grads(np.full(1000, 3, np.float32))
        gc.collect()
        np.random.default_rng(0).random((50, 1000)).astype(np.float32)  # would reuse freed memory
        optimizer.set_value("gradient_factor", 0.25)
        self.assertAlmostEqual(optimizer.norm([shard]), 0.75 * 1000**0.5)
        self.assertEqual(optimizer.step([shard]).updates, 1000)
        np.testing.assert_array_equal(weights, np.float32(-0.375))
        with self.assertRaisesRegex(outrigger.OutriggerError, "grads has 4 elements, weights 1000"):
            shard.set_grads(np.ones(4, np.float32))
        self.assertAlmostEqual(optimizer.norm([shard]), 0.75 * 1000**0.5)

    def test_they_are_held_and_let_go(self):
        context = Context(workers=1)
        shard = outrigger.Shard(context, np.zeros(10, np.float32))
        grads = np.ones(10, np.float32)
        counts = [sys.getrefcount(grads)]
        shard.set_grads(grads)
        counts.append(sys.getrefcount(grads))
        shard.set_grads(None)
        counts.append(sys.getrefcount(grads))
        self.assertGreater(counts[1], counts[0])
        self.assertEqual(counts[2], counts[0])
        with self.assertRaisesRegex(outrigger.OutriggerError, "no gradients"):
            outrigger.Optimizer(context, {"type": "SGD", "params": {"lr": 0.5}}).norm([shard])


if __name__ == "__main__":
    unittest.main()
