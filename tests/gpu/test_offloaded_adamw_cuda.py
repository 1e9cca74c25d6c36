# SPDX-License-Identifier: Apache-2.0
"""OffloadedAdamW with parameters on a GPU, beside the same on the host: the same bits. On a machine with a GPU, by
scripts/gpu/test.sh; the copies' order is tested without one in tests/bindings/torch/test_offloaded_adamw_device.py."""
import copy
import unittest

import torch

from outrigger.torch import OffloadedAdamW

SHAPES = ((515, 1031), (6,), (), (0, 3), (2, 3, 4))
FORMATS = {"float32": ("float32", None), "split": ("bfloat16", None), "float16": ("float16", None),
           "in place": ("bfloat16", {"master": {"format": "bfloat16"}, "exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}),
           "blocks": ("bfloat16", {"exp_avg": {"format": "block8"}, "exp_avg_sq": {"format": "block8"}})}


def parameters(dtype, device):
    generator = torch.Generator().manual_seed(3)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(getattr(torch, dtype)).to(device)) for shape in SHAPES]


def set_grads(params, step):
    generator = torch.Generator().manual_seed(100 + step)
    for each in params:
        each.grad = torch.randn(each.shape, generator=generator).to(each.dtype).to(each.device)


def model(device):
    torch.manual_seed(5)
    layers = [torch.nn.Embedding(300, 256)]
    for _ in range(3):
        layers += [torch.nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True, norm_first=True)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(256, 300)).to(device)


def train(module, optimizer, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for _ in range(2):  # gradients are accumulated
            ids = torch.randint(300, (4, 65), generator=generator).to("cuda")
            loss = torch.nn.functional.cross_entropy(module(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            (loss / 2).backward()
        optimizer.step()
        optimizer.zero_grad()


@unittest.skipUnless(torch.cuda.is_available(), "needs a GPU")
class OnAGpu(unittest.TestCase):
    def setUp(self):
        torch.use_deterministic_algorithms(True, warn_only=True)

    def test_has_the_hosts_bits(self):
        for name, (dtype, states) in FORMATS.items():
            for max_norm in (None, 0.5):
                with self.subTest(name, max_norm=max_norm):
                    there, here = parameters(dtype, "cuda"), parameters(dtype, "cpu")
                    options = {"lr": 0.02, "weight_decay": 0.1, "states": states, "max_norm": max_norm}
                    one, other = OffloadedAdamW(there, **options), OffloadedAdamW(here, **options)
                    for step in range(4):
                        for params, optimizer in ((there, one), (here, other)):
                            set_grads(params, step)
                            optimizer.step()
                        if max_norm:
                            self.assertEqual(one.grad_norm, other.grad_norm)
                    for a, b in zip(there, here, strict=True):
                        self.assertEqual(a.device.type, "cuda")
                        self.assertTrue(torch.equal(a.detach().cpu(), b.detach()))

    def test_overlap_changes_no_bits(self):
        runs = []
        for overlap in (True, False):
            module = model("cuda")
            optimizer = OffloadedAdamW(module.parameters(), lr=1e-3, max_norm=1.0)
            optimizer.overlap = overlap
            train(module, optimizer, 5)
            runs.append([each.detach().clone() for each in module.parameters()])
        for one, other in zip(*runs, strict=True):
            self.assertTrue(torch.equal(one, other))

    def test_follows_torchs_adamw(self):
        train(model("cuda"), OffloadedAdamW(model("cuda").parameters()), 1)  # what PyTorch's libraries take once
        runs, memory = [], []
        for of in (OffloadedAdamW, torch.optim.AdamW):
            module = model("cuda")
            before = torch.cuda.memory_allocated()
            optimizer = of(module.parameters(), lr=1e-3, weight_decay=0.1)
            train(module, optimizer, 3)
            memory.append(torch.cuda.memory_allocated() - before)
            runs.append([each.detach().cpu() for each in module.parameters()])
            moments = sum(each.numel() * 8 for each in module.parameters())
            del module, optimizer  # not while the next one's memory is counted
        for one, other in zip(*runs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
        self.assertLess(memory[0], 0.1 * moments)
        self.assertGreater(memory[1], 0.9 * moments)

    def test_goes_on_from_a_state_dict(self):
        module = model("cuda")
        optimizer = OffloadedAdamW(module.parameters(), lr=1e-3)
        train(module, optimizer, 2)
        saved, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(module.state_dict())
        train(module, optimizer, 2, seed=1)
        again = model("cuda")
        again.load_state_dict(weights)
        other = OffloadedAdamW(again.parameters(), lr=1e-3)
        other.load_state_dict(saved)
        train(again, other, 2, seed=1)
        for one, two in zip(module.parameters(), again.parameters(), strict=True):
            self.assertTrue(torch.equal(one, two))

    def test_a_scaler_and_another_stream(self):
        module, other = model("cuda"), torch.cuda.Stream()
        optimizer, scaler = OffloadedAdamW(module.parameters(), lr=1e-3), torch.amp.GradScaler("cuda", init_scale=2.0**10)
        before = [each.detach().clone() for each in module.parameters()]
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            for _ in range(3):
                ids = torch.randint(300, (4, 65), device="cuda")
                with torch.autocast("cuda", torch.float16):
                    loss = torch.nn.functional.cross_entropy(module(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        torch.cuda.synchronize()
        self.assertTrue(any(not torch.equal(a, b.detach()) for a, b in zip(before, module.parameters())))
        self.assertTrue(all(torch.isfinite(each).all() for each in module.parameters()))


if __name__ == "__main__":
    unittest.main()
