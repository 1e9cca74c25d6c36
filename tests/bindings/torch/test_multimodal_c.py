# SPDX-License-Identifier: Apache-2.0
"""The example of two groups of processes in C, beside PyTorch: the same two models written again with torch.nn.functional and autograd, in double, from the
first values that the program has saved and the strips that its numbers mean.   test_multimodal_c.py LAUNCHER PROGRAM"""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from outrigger import Message

LAUNCHER, PROGRAM = sys.argv[1:3]
SEED, STEPS, MICRO_BATCHES, STRIPS, LENGTH, HEADS, LR, CLIP = 3, 3, 3, 7, 2, 2, 0.5, 0.5
BEGIN, END = 10, 11
OPTIONS = ["--seed", SEED, "--micro-batches", MICRO_BATCHES, "--strips", STRIPS, "--length", LENGTH, "--optimizer", "SGD", "--lr", LR, "--clip", CLIP,
           "--vision-precision", "fp32", "--language-precision", "fp32", "--grad-scale", 1000, "--report", 1]

# Of how far PyTorch has moved the weights of a model, the norm of what ours differs. Ours are rounded to float32 after each step: measured 4e-6. A wrong
# factor makes 0.1 and more.
BOUND = 1e-5


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def first_uniform(seed, purpose, index):
    """The first number of a stream, as c_api/examples/gpt/random.h has them."""
    golden = 0x9E3779B97F4A7C15
    key = mix((mix(mix((seed + golden) % 2**64) ^ purpose) + golden * (index + 1)) % 2**64)
    return (mix((key + golden) % 2**64) >> 11) * 2.0**-53


def batch(scans, number):
    """A micro-batch: patches [strips, patches, 8 rows · 4 columns] and words [strips, digits]."""
    trained = len(scans) - len(scans) // 5
    first = number * STRIPS * LENGTH
    taken = np.array([scans[int(first_uniform(SEED, 1, first + i) * trained)] for i in range(STRIPS * LENGTH)])
    images = torch.tensor(taken[:, 1:] / 16).reshape(STRIPS, LENGTH, 8, 2, 4)
    return images.permute(0, 1, 3, 2, 4).reshape(STRIPS, 2 * LENGTH, 32), torch.tensor(taken[:, 0].astype(np.int64)).reshape(STRIPS, LENGTH)


def linear(w, name, x):
    return x @ w[name + ".matrix"] + w[name + ".bias"][0]


def norm(w, name, x):
    return functional.layer_norm(x, x.shape[-1:], w[name + ".gain"][0], w[name + ".bias"][0], 1e-5)


def attention(w, name, x, seen=None, is_causal=False):
    normed = norm(w, name + ".norm", x)
    keys, values = linear(w, name + ".keys_values", normed if seen is None else seen).chunk(2, -1)
    q, k, v = (each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in (linear(w, name + ".queries", normed), keys, values))
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal).transpose(1, 2).flatten(2)
    return x + linear(w, name + ".out", mixed)


def feed(w, x):
    return x + linear(w, "feed.out", functional.gelu(linear(w, "feed.in", norm(w, "feed.norm", x))))


def vision(w, patches):
    return norm(w, "after", feed(w, attention(w, "look", linear(w, "patch", patches) + w["place"])))


def language_loss(w, embedding, words):
    edge = words.new_ones(len(words), 1)
    x = w["word"][torch.cat([BEGIN * edge, words], 1)] + w["place"]
    x = feed(w, attention(w, "look", attention(w, "listen", x, is_causal=True), embedding))
    return functional.cross_entropy(linear(w, "scores", norm(w, "after", x)).flatten(0, 1), torch.cat([words, END * edge], 1).flatten())


def saved(prefix):
    """The weights of both models, in double."""
    messages = [Message(Path(f"{prefix}.{part}.safetensors").read_bytes()) for part in ("vision", "language")]
    return [{name: torch.tensor(message[name], dtype=torch.float64) for name in message} for message in messages]


def plain(models, scans):
    """Trains models in one place. Returns the losses and norms of the steps."""
    parameters = [each.requires_grad_() for model in models for each in model.values()]
    optimizer = torch.optim.SGD(parameters, lr=LR)
    told = []
    for step in range(STEPS):
        losses = []
        for micro in range(MICRO_BATCHES):
            patches, words = batch(scans, step * MICRO_BATCHES + micro)
            losses.append(language_loss(models[1], vision(models[0], patches), words))
            (losses[-1] / MICRO_BATCHES).backward()
        told.append((sum(losses).item() / MICRO_BATCHES, torch.nn.utils.clip_grad_norm_(parameters, CLIP).item()))
        optimizer.step()
        optimizer.zero_grad()
    return told


def furthest(ours, expected, begin):
    """Over both models: what ours differs, of what was expected to move."""
    def flat(model):
        return torch.cat([model[name].detach().flatten() for name in sorted(model)])
    return max((torch.linalg.norm(flat(a) - flat(b)) / torch.linalg.norm(flat(b) - flat(c))).item() for a, b, c in zip(ours, expected, begin))


class BesidePyTorch(unittest.TestCase):
    def run_program(self, launcher, options):
        done = subprocess.run([*launcher, PROGRAM, *map(str, OPTIONS + options)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [(float(line.split()[3].strip(",")), float(line.split()[5].strip(","))) for line in done.stdout.splitlines() if line.startswith("step ")]

    def test_is_the_training_of_plain_pytorch(self):
        with tempfile.TemporaryDirectory() as folder:
            file, prefix = f"{folder}/scans", f"{folder}/weights"
            numbers = np.random.default_rng(0)
            scans = np.concatenate([numbers.integers(0, 10, (40, 1)), numbers.integers(0, 17, (40, 64))], 1).astype(np.uint8)
            scans.tofile(file)
            self.run_program([], ["--colocated", "--digits", file, "--steps", 0, "--save", prefix])
            begin, expected = saved(prefix), saved(prefix)
            told = plain(expected, scans)
            self.assertGreater(min(norm for _, norm in told), 1.5 * CLIP)
            groups = [LAUNCHER, "run", "-n", "3", "--"]
            for launcher, options in (([], ["--colocated"]), (groups, ["--vision-ranks", 2]), (groups, ["--vision-ranks", 1, "--language-stage", 3])):
                with self.subTest(options=options):
                    said = self.run_program(launcher, [*options, "--digits", file, "--steps", STEPS, "--save", prefix])
                    np.testing.assert_allclose(said, told, rtol=2e-6)
                    differs = furthest(saved(prefix), expected, begin)
                    self.assertLess(differs, BOUND)
                    print(f"{options}: differs by {differs:.2g} of what PyTorch has moved", file=sys.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
