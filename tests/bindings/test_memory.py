# SPDX-License-Identifier: Apache-2.0
"""What an engine holds: by its ledger, and as the system says."""
import unittest

import numpy as np
import outrigger


class Memory(unittest.TestCase):
    def test_host_memory(self):
        for config in ({}, {"bf16": {"enabled": True}}):
            with self.subTest(config=config), outrigger.Engine(outrigger.Comm.self_group(outrigger.Context()), config) as engine:
                engine.add_parameter("w", np.ones((1 << 20, 3), np.float32))
                engine.commit()
                with engine.begin_pass() as p:
                    p.add_grad(0, np.ones((1 << 20, 3), np.float32))
                engine.step()
                report = engine.host_memory
                held = sum(resident for purpose, resident, _ in engine.memory if purpose != "total")
                self.assertLessEqual(report["bytes"], held)
                self.assertGreater(report["bytes"], 0.9 * held)
                if report["reason"] is None:
                    self.assertGreater(report["resident_bytes"], 0.9 * report["bytes"])
                    self.assertLessEqual(report["huge_bytes"], report["resident_bytes"])
                self.assertEqual(report["pin"], {"policy": "prefer", "wanted_bytes": 0, "pinned_bytes": 0, "reason": None})
                self.assertEqual(report["binding"]["binds"], report["binding"]["reason"] is None)
        with self.assertRaisesRegex(ValueError, "closed"):
            print(engine.host_memory)

    def test_memory(self):
        engine = outrigger.Engine(outrigger.Comm.self_group(outrigger.Context(workers=1)), {})
        engine.add_parameter("w", np.ones(1000, np.float32))
        engine.commit()
        entries = {purpose: resident for purpose, resident, _ in engine.memory}
        self.assertEqual(entries.pop("total"), sum(entries.values()))

    def test_arrays_after_their_time(self):
        """What they show then means nothing; the process lives, and the memory is given back."""
        gathered = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}, "outrigger": {"share_parameters": False}}
        for config in ({}, gathered):
            with self.subTest(config=config):
                engine = outrigger.Engine(outrigger.Comm.self_group(outrigger.Context(workers=1)), config)
                engine.add_parameter("w", np.ones((1 << 20, 2), np.float32))
                engine.commit()
                arrays = []
                for float32 in (False, True):
                    with engine.acquire([0], float32) as weights:
                        self.assertEqual(weights[0].sum(dtype=np.float64), 1 << 21)
                        arrays += weights
                with engine.begin_pass([np.ones(1 << 20, np.float32)]) as first, engine.begin_pass() as second:
                    arrays.append(first.output_grad())
                    for a_pass in (first, second):  # the second one's place is taken
                        slot = a_pass.slot(0)
                        slot[:] = 0
                        a_pass.add_grad(0, slot)
                        arrays.append(slot)
                engine.step()
                engine.finalize()
                self.assertEqual(dict(row[:2] for row in engine.memory)["total"], arrays[2].nbytes, "the output's gradient alone")
                for after in (engine.close, lambda: None):
                    for array in arrays:
                        np.sum(array, dtype=np.float64)
                        if array.flags.writeable:
                            array[-1] = 1
                    after()


if __name__ == "__main__":
    unittest.main()
