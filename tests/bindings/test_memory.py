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


if __name__ == "__main__":
    unittest.main()
