# SPDX-License-Identifier: Apache-2.0
"""Accelerate's loop and transformers' Trainer with DeepSpeed configurations, unchanged on one rank and on two: that they take
DeepSpeed's path, and that losses, norms and rates are DeepSpeed's.

    test_libraries.py LAUNCHER             runs libraries/*.py and compares with libraries/deepspeed.json
    test_libraries.py LAUNCHER SCRIPT…     these of them, on two ranks
    test_libraries.py LAUNCHER --record    writes that file: with a Python whose DeepSpeed is the real one, 0.19.8
"""
import itertools
import json
import sys
import unittest
from pathlib import Path

import test_scripts

SCRIPTS = Path(__file__).parent / "libraries"
RECORD = SCRIPTS / "deepspeed.json"
RANKS = (1, 2)
# The largest relative difference. accelerate_plugin and _offload are bf16, trainer_config bfloat16 by autocast, the others float32.
TOLERANCE = {"accelerate_config": 5e-6, "accelerate_offload": 2e-3, "accelerate_plugin": 2e-3, "trainer_config": 2e-3, "trainer_stage3": 5e-6}
# Gradient norms of 16 bits: DeepSpeed sums ranks in them, the library in float32. The Trainer's scripts print them at 10 n + 1.
NORMS = {"trainer_config": 1e-2}


def bound(script, step):
    return NORMS[script] if script in NORMS and step % 10 == 1 else TOLERANCE[script]


def outcome(script, ranks, *options):
    text = test_scripts.run(SCRIPTS / f"{script}.py", ranks, *options)
    engines = {line.split()[1] for line in text.splitlines() if line.startswith("engine ")}
    return test_scripts.losses_in(text), engines


class Libraries(unittest.TestCase):
    def test_every_script_is_compared(self):
        self.assertEqual({path.stem for path in SCRIPTS.glob("*.py")} - {"common"}, set(TOLERANCE))

    def test_losses(self):
        record = json.loads(RECORD.read_text())["losses"]
        scripts, worlds = (test_scripts.chosen, RANKS[1:]) if test_scripts.chosen else (set(TOLERANCE), RANKS)
        for script, ranks in itertools.product(sorted(scripts), worlds):
            with self.subTest(script=script, ranks=ranks):
                found, engines = outcome(script, ranks, *test_scripts.COMPAT)
                self.assertEqual(engines, {"outrigger.torch.engine"})
                expected = {int(step): loss for step, loss in record[script][str(ranks)].items()}
                self.assertEqual(set(found), set(expected))
                self.assertGreater(len(found), 10)
                differences = {step: abs(found[step] - loss) / abs(loss) for step, loss in expected.items() if found[step] != loss}
                print(f"{script} on {ranks}: {len(found)} values, furthest from DeepSpeed by {max(differences.values()):.2g}", flush=True)
                self.assertFalse({step: each for step, each in differences.items() if each > bound(script, step)})


def record():
    import accelerate
    import deepspeed
    import torch
    import transformers
    found = {}
    for script in sorted(TOLERANCE):
        for ranks in RANKS:
            losses, engines = outcome(script, ranks)
            assert engines == {"deepspeed.runtime.engine"}, engines
            found.setdefault(script, {})[ranks] = losses
    versions = {each.__name__: each.__version__ for each in (deepspeed, torch, transformers, accelerate)}
    RECORD.write_text(json.dumps({**versions, "accelerator": "cpu", "losses": found}) + "\n")


if __name__ == "__main__":
    test_scripts.launcher, test_scripts.chosen = sys.argv.pop(1), test_scripts.take_chosen(set(TOLERANCE))
    if "--record" in sys.argv:
        record()
    else:
        unittest.main(verbosity=2)
