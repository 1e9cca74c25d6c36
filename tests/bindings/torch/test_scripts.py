# SPDX-License-Identifier: Apache-2.0
"""Scripts written for DeepSpeed run unchanged on two ranks, and their losses are DeepSpeed's.

    test_scripts.py LAUNCHER             runs them here and compares with scripts/deepspeed.json; LAUNCHER: a path, or "torchrun"
    test_scripts.py LAUNCHER SCRIPT…     these of them
    test_scripts.py LAUNCHER --record    writes that file: with a Python whose DeepSpeed is the real one, 0.19.8
"""
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
RECORD = SCRIPTS / "deepspeed.json"
# The largest relative difference: 16-bit runs round elsewhere, and what they print are sums of that. Muon: on a CPU DeepSpeed's
# Newton-Schulz is in float32, too.
TOLERANCE = {"arguments": 1e-6, "momentum": 5e-6, "muon": 5e-6, "stage3": 5e-6, "tensor_backward": 5e-6, "accumulation": 1e-3,
             "cpu_adam": 2e-3, "inspection": 2e-3, "language_model": 2e-3}
WITHOUT_DEEPSPEED = {"fp16_scaling"}  # DeepSpeed has no fp16 on a CPU; the script checks itself
COMPAT = ("-m", "outrigger.torch.compat")
launcher = None
chosen = set()  # the scripts that were named; none: all


def run(script, ranks, *options, strict=False):
    """What a script prints on so many ranks of the launcher. strict: warnings are errors (torchrun has no way to say so)."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(script.parent), os.environ.get("PYTHONPATH", "")]), OMP_NUM_THREADS="1")
    if launcher == "torchrun":
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *options, str(script)]
    else:
        command = [launcher, "run", "-n", str(ranks), "--", sys.executable, *(["-W", "error"] if strict else []), *options, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def losses_in(text):
    return {int(step): float(loss) for word, step, loss in (line.split() for line in text.splitlines() if line.startswith("loss "))}


def losses(script, *options):
    return losses_in(run(SCRIPTS / f"{script}.py", 2, *options, strict=bool(options)))


class Scripts(unittest.TestCase):
    def test_every_script_is_compared(self):
        names = {path.stem for path in SCRIPTS.glob("*.py")} - {"common"}
        self.assertEqual(names, set(TOLERANCE) | WITHOUT_DEEPSPEED)

    def test_losses(self):
        record = json.loads(RECORD.read_text())
        for script in sorted(chosen or set(TOLERANCE) | WITHOUT_DEEPSPEED):
            with self.subTest(script=script):
                found = losses(script, *COMPAT)
                if script in WITHOUT_DEEPSPEED:
                    self.assertEqual(len(found), 20)
                    continue
                expected = {int(step): loss for step, loss in record["losses"][script].items()}
                self.assertEqual(set(found), set(expected))
                worst = max(abs(found[step] - loss) / abs(loss) for step, loss in expected.items())
                print(f"{script}: {len(found)} values, furthest from DeepSpeed by {worst:.2g}", flush=True)
                self.assertLess(worst, TOLERANCE[script])

    def test_schedules(self):
        from outrigger.torch import lr_schedules
        record = json.loads(RECORD.read_text())["schedules"]
        for (name, parameters), expected in zip(SCHEDULES, record, strict=True):
            with self.subTest(name=name, **parameters):
                for found, given in zip(rates(getattr(lr_schedules, name), parameters), expected, strict=True):
                    for a, b in zip(found, given, strict=True):
                        self.assertAlmostEqual(a, b, delta=1e-12)


SCHEDULES = [
    ("WarmupLR", {"warmup_num_steps": 10}), ("WarmupLR", {"warmup_min_lr": 0.001, "warmup_max_lr": 0.1, "warmup_num_steps": 1}),
    ("WarmupLR", {"warmup_num_steps": 7, "warmup_type": "linear"}),
    ("WarmupDecayLR", {"total_num_steps": 40, "warmup_num_steps": 10, "warmup_max_lr": 0.2}),
    ("WarmupDecayLR", {"total_num_steps": 12, "warmup_num_steps": 12, "warmup_type": "linear"}),
    ("WarmupCosineLR", {"total_num_steps": 40, "warmup_num_steps": 10}),
    ("WarmupCosineLR", {"total_num_steps": 30, "warmup_num_steps": 5, "warmup_min_ratio": 0.1, "cos_min_ratio": 0.05,
                        "warmup_type": "linear"}),
    ("LRRangeTest", {"lr_range_test_min_lr": 0.01, "lr_range_test_step_size": 5, "lr_range_test_step_rate": 2.0}),
    ("LRRangeTest", {"lr_range_test_step_size": 5, "lr_range_test_staircase": True}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 10}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 10, "cycle_second_step_size": 15,
                  "cycle_first_stair_count": 3, "cycle_second_stair_count": 5, "decay_step_size": 4, "decay_lr_rate": 0.5,
                  "decay_mom_rate": 0.01}),
]


def rates(schedule, parameters):
    """lr and beta1 at construction and after each of 50 steps."""
    import torch
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=0.05)
    made = schedule(optimizer, **parameters)
    result = []
    for _ in range(51):
        group = optimizer.param_groups[0]
        result.append([group["lr"], group["betas"][0]])
        made.step()
    return result


def take_chosen(scripts):
    """Those of these scripts that the arguments name, taken out of the arguments."""
    named = {each for each in sys.argv[1:] if each in scripts}
    sys.argv[1:] = [each for each in sys.argv[1:] if each not in named]
    return named


def record():
    import deepspeed
    import torch
    from deepspeed.runtime import lr_schedules
    scripts = {script: losses(script) for script in sorted(TOLERANCE)}
    schedules = [rates(getattr(lr_schedules, name), parameters) for name, parameters in SCHEDULES]
    RECORD.write_text(json.dumps({"deepspeed": deepspeed.__version__, "torch": torch.__version__, "ranks": 2, "accelerator": "cpu",
                                  "losses": scripts, "schedules": schedules}) + "\n")


if __name__ == "__main__":
    launcher, chosen = sys.argv.pop(1), take_chosen(set(TOLERANCE) | WITHOUT_DEEPSPEED)
    if "--record" in sys.argv:
        record()
    else:
        unittest.main(verbosity=2)
