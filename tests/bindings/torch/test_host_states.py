# SPDX-License-Identifier: Apache-2.0
"""The example host_states in its short form, and the guard of optimizers that a caller gives (DeepSpeed's PR #8010)."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "bindings/python/examples/host_states"
sys.path.insert(0, str(EXAMPLE))
import bound  # noqa: E402
import child  # noqa: E402
import configurations  # noqa: E402
import host_states  # noqa: E402
import outrigger.torch  # noqa: E402
import torch  # noqa: E402

COUNT = 20_000_000
LOW = {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}


def run(*words):
    return subprocess.run([sys.executable, "-W", "error", EXAMPLE / "host_states.py", *map(str, words)], capture_output=True, text=True, timeout=200, check=False)


class HostStates(unittest.TestCase):
    def test_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "found.json"
            done = run("--parameters", COUNT, "--forms", "bf16_bf16", "--only", "memory", "--threads", 1, "--output", output)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            six = next(row for row in json.loads(output.read_text(encoding="utf-8"))["memory"] if row["side"] == "outrigger")
        self.assertRegex(done.stdout, r"bfloat16 master and moments \| Outrigger \| 6\.\d+ \| 6\.000 ")
        ten = host_states.with_bytes(child.memory("bf16_float32", "outrigger", COUNT, 1), COUNT)
        for row, expected in ((six, 6), (ten, 10)):
            self.assertEqual(row["of_ledger"], expected)
            self.assertEqual(row["ledger"], row["estimate"])
            # Pages of the kernel: threads' stacks and the like come on top, a few MB whatever the count.
            self.assertAlmostEqual(row["states"], expected, delta=0.2)

    def test_updates_are_within_the_bound(self):
        for form in ("float32", "bf16_float32", "bf16_bf16", "split_bf16"):
            found = child.update(form, "outrigger", 20_000, 1)
            with self.subTest(form, **found):
                self.assertLessEqual(found["of_bound"], 1)
                self.assertGreater(found["of_bound"], 0.01)  # it is not far too wide
                self.assertGreater(found["without_factor_of_bound"], 10)
        self.assertLess(child.update("bf16_bf16", "outrigger", 20_000, 1)["bound"], 0.1 * found["moved"])

    def test_the_bound_knows_the_rounding(self):
        """PyTorch's float64 AdamW is at its centre; rounding by truncation, twice as far, leaves it."""
        def ratio(rounded, rounds):
            weight = (0.05 * torch.randn(20_000, generator=torch.Generator().manual_seed(3))).bfloat16()
            reference, parameter = bound.Reference(weight, rounds, False, False), torch.nn.Parameter(weight.double())
            optimizer = torch.optim.AdamW([parameter], lr=configurations.LR, betas=configurations.BETAS, eps=configurations.EPS, weight_decay=configurations.DECAY)
            for step in range(6):
                parameter.grad = torch.randn(20_000, generator=torch.Generator().manual_seed(step)).double()
                optimizer.step()
                parameter.data.copy_(rounded(parameter.data))
                reference.step(parameter.grad)
            return ((parameter.detach() - reference.weights).abs() / reference.bound).max().item()
        self.assertLess(ratio(lambda x: x, False), 1e-6)
        self.assertLessEqual(ratio(lambda x: x.float().bfloat16(), True), 1)
        self.assertGreater(ratio(lambda x: (x.float().view(torch.int32) & -65536).view(torch.float32), True), 1)

    def test_wrong_use(self):
        for words, text in ((("--parameters", 0), "--parameters 0 is not a positive number"), (("--share", 1), "--share 1.0 is not above 0"),
                            (("--parameters", 10**13), "would take 180000.0 GB"), (("--forms", "float16"), "invalid choice: 'float16'")):
            done = run(*words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)


class Guard(unittest.TestCase):
    def engine(self, states, bf16, kind=outrigger.torch.CPUAdam, **more):
        model = torch.nn.Linear(64, 64, bias=False)
        options = {} if states is None else {"fp32_optimizer_states": states}
        return outrigger.torch.initialize(
            model=model, optimizer=kind(model.parameters(), lr=0.1, **options), comm=outrigger.Comm.self_group(outrigger.Context(workers=1)),
            config={"bf16": {"enabled": True, **bf16}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, **more})[0]

    def moments(self, engine):
        """Bytes an element, by the ledger."""
        count = sum(parameter.numel() for parameter in engine.module.parameters())
        return next(held for purpose, held, _ in engine.memory() if purpose == "exp_avg") / count

    def test_contradictions(self):
        for states, bf16, value, way in ((True, LOW, "bf16.bf16_optimizer_states is true", "make it with fp32_optimizer_states=False"),
                                         (None, LOW, r"fp32_optimizer_states=True \(the default\)", "leave optimizer= out"),
                                         (False, {}, "bf16.bf16_optimizer_states is false", "outrigger.states"),
                                         (False, {"bf16_master_weights_and_grads": True}, "with fp32_optimizer_states=False",
                                          "set bf16.bf16_optimizer_states and bf16.bf16_master_weights_and_grads to true")):
            for error in (AssertionError, ValueError, outrigger.OutriggerError):  # what scripts for DeepSpeed catch, and our own
                with self.subTest(states=states, bf16=bf16, error=error), self.assertRaisesRegex(
                        error, f"{value}.*moments are either bfloat16 or float32.*{way}"):
                    self.engine(states, bf16)

    def test_what_agrees(self):
        one = {"outrigger": {"states": {moment: {"format": "bfloat16"} for moment in ("exp_avg", "exp_avg_sq")}}}
        for states, bf16, more, size in ((False, LOW, {}, 2), (True, {"bf16_master_weights_and_grads": True}, {}, 4), (True, {}, {}, 4),
                                         (False, {}, one, 2), (True, {}, one, 2)):
            with self.subTest(states=states, bf16=bf16, more=more):
                self.assertLess(abs(self.moments(self.engine(states, bf16, **more)) - size), 0.5 * size)
        # PyTorch's AdamW says nothing of formats.
        self.assertLess(self.moments(self.engine(None, LOW, torch.optim.AdamW)), 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
