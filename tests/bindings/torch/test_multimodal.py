# SPDX-License-Identifier: Apache-2.0
"""The example of two groups of Ray actors: beside the same training of plain PyTorch and of both engines in one process, with wrong factors put in, with
ranks lost, and with messages that are not those that are waited for."""
import dataclasses
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "bindings/python/examples/multimodal"))

import colocated  # noqa: E402
import digits  # noqa: E402
import environment  # noqa: E402, F401
import numpy as np  # noqa: E402
import ray  # noqa: E402
import schedule  # noqa: E402
import torch  # noqa: E402
import wire  # noqa: E402
from groups import Groups, cluster  # noqa: E402
from language import Language, loss_of  # noqa: E402
from settings import Part, Settings  # noqa: E402
from vision import Vision  # noqa: E402
from workers import VisionWorker  # noqa: E402

from outrigger import OutriggerError, lowlevel  # noqa: E402

SGD = {"type": "SGD", "params": {"lr": 0.5}}  # what it moves is as large as the gradient, so a wrong factor shows
EXACT = Settings(vision=Part(2, 2, "float32"), language=Part(1, 1, "float32"), steps=3, strips=5, digits=3, width=16, blocks=1, optimizer=SGD, clip=0.5,
                 decays=False, grad_dtype="float32", grad_scale=1000.0)
MIXED = Settings(steps=6, strips=6, width=16, blocks=1, every=2)

# Of how far plain PyTorch has moved the parameters of a model, the norm of what ours differs. Sums come in another order: measured 5e-7. A wrong factor
# makes 0.1 and more.
BOUND = 3e-6

FAULTS = {
    "nothing": lambda grad, tag: (grad, tag),
    "the gradient is doubled": lambda grad, tag: (2 * grad, tag),
    "no tag": lambda grad, tag: (grad, None),
    "the tag has no loss scale": lambda grad, tag: (grad, with_values(tag, loss_scale=1.0)),
    "the tag has no ranks": lambda grad, tag: (grad, with_values(tag, ranks=0)),
    "the tag says that it was divided": lambda grad, tag: (grad, with_values(tag, accumulation=2)),
}


def with_values(tag, **values):
    for name, value in values.items():
        setattr(tag, name, value)
    return tag


class Faulty(VisionWorker):
    fault = "nothing"

    def set_fault(self, fault):
        self.fault = fault

    def received(self, references, unpack, *arguments):
        return FAULTS[self.fault](*super().received(references, unpack, *arguments))


def models(settings):
    return torch.nn.ModuleList([Vision(settings), Language(settings)])


def plain(settings):
    """The parameters of both models after a training of plain PyTorch."""
    both = models(settings)
    optimizer = torch.optim.SGD(both.parameters(), lr=SGD["params"]["lr"])
    for step in range(settings.steps):
        for micro in range(settings.micro_batches):
            patches, words = digits.batch(settings, step * settings.micro_batches + micro)
            (loss_of(both[1], words, both[0](patches)) / settings.micro_batches).backward()
        norm = torch.nn.utils.clip_grad_norm_(both.parameters(), settings.clip)
        assert norm > 1.5 * settings.clip, norm
        optimizer.step()
        optimizer.zero_grad()
    return values(both), norm.item()


def values(both):
    return [{name: each.detach().numpy().copy() for name, each in model.named_parameters()} for model in both]


def furthest(settings, ours, expected):
    """Over both models: what ours differs, of what was expected to move."""
    def flat(named):
        return np.concatenate([named[name].ravel() for name in sorted(named)])
    begin = [flat(each) for each in values(models(settings))]
    return max(np.linalg.norm(flat(a) - flat(b)) / np.linalg.norm(flat(b) - c) for a, b, c in zip(ours, expected, begin))


def parameters(groups):
    """Of both models, the same on all ranks."""
    return [groups.call(each, "parameters")[0] for each in (groups.vision, groups.language)]


def same(one, other):
    return all(np.array_equal(a[name], b[name]) for a, b in zip(one, other) for name in a)


class OnRay(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.enterClassContext(cluster(6))
        cls.groups = Groups(EXACT, vision=Faulty)

    def trained(self, groups, settings, fault="nothing"):
        """The parameters after all steps, and what the engines say of the last."""
        if fault != "nothing":
            groups.call(groups.vision, "set_fault", fault)
        groups.join(settings)
        for step in range(settings.steps):
            said = schedule.train_step(groups, step)
        if fault != "nothing":
            groups.call(groups.vision, "set_fault", "nothing")
        return parameters(groups), said

    def test_is_the_training_in_one_place(self):
        expected, norm = plain(EXACT)
        ours, said = self.trained(self.groups, EXACT)
        differs = furthest(EXACT, ours, expected)
        self.assertLess(differs, BOUND)
        for each in said:
            self.assertAlmostEqual(each["norm"] / norm, 1, places=5)
        together = colocated.Colocated(EXACT)
        for step in range(EXACT.steps):
            together.train_step(step)
        self.assertLess(furthest(EXACT, together.parameters(), expected), BOUND)
        turns, _ = self.trained(self.groups, dataclasses.replace(EXACT, ahead=1))
        self.assertTrue(same(turns, ours), "the overlap changes bits")
        for fault in list(FAULTS)[1:]:
            with self.subTest(fault=fault):
                self.assertGreater(furthest(EXACT, self.trained(self.groups, EXACT, fault)[0], expected), 1e3 * BOUND)
        print(f"plain PyTorch differs by {differs:.2g} of what it has moved", file=sys.stderr)

    def test_other_widths(self):
        """One rank looks, two read, with different numbers of strips; the way back is a fan-in."""
        settings = dataclasses.replace(EXACT, vision=Part(1, 1, "float32"), language=Part(2, 3, "float32"), micro_batches=3)
        groups = Groups(settings)
        ours, _ = self.trained(groups, settings)
        self.assertLess(furthest(settings, ours, plain(settings)[0]), BOUND)
        groups.end()

    def test_all_or_none(self):
        """Gradients that overflow on their way reach the vision group alone, and neither is updated."""
        settings = dataclasses.replace(EXACT, steps=1, grad_dtype="float16", grad_scale=1e9)
        ours, said = self.trained(self.groups, settings)
        self.assertTrue(same(ours, values(models(settings))))
        self.assertEqual([(each["reason"], each["skipped"]) for each in said],
                         [(lowlevel.SKIP_NONFINITE, 1)] * 2 + [(lowlevel.SKIP_JOINT, 1)])

    def test_lost_ranks(self):
        """The bits are those of a training that lost nobody."""
        expected, _ = self.trained(self.groups, MIXED)
        for kill in ((3, "vision", 1), (1, "language", 0)):
            with self.subTest(kill=kill), tempfile.TemporaryDirectory() as folder:
                self.groups.join()
                said = []
                losses = schedule.train(self.groups, folder, kill, say=said.append)
                self.assertEqual((len(said), sorted(losses)), (1, list(range(MIXED.steps))))
                self.assertIn(f"{kill[1]} rank {kill[2]} was lost", said[0])
                self.assertIn(f"go on from step {kill[0] // 2 * 2}", said[0])
                self.assertTrue(same(parameters(self.groups), expected))
                self.groups.join()  # a training that is started again
                self.assertEqual(self.groups.load(folder), MIXED.steps)
                self.assertTrue(same(parameters(self.groups), expected))

    def test_learns(self):
        """A short form, with strips of one digit; train.py is the full one."""
        settings = Settings(steps=60, digits=1)
        self.groups.join(settings)
        with tempfile.TemporaryDirectory() as folder:
            losses = schedule.train(self.groups, folder)
        right = schedule.accuracy(self.groups)[0]
        self.assertLess(losses[59], losses[0] / 3)
        self.assertGreater(right, 0.7)

    def test_is_on_loopback(self):
        self.assertEqual([each["NodeManagerAddress"] for each in ray.nodes()], ["127.0.0.1"])


class Wire(unittest.TestCase):
    def refused(self, text, packed, error=wire.WireError):
        with self.assertRaisesRegex(error, text):
            wire.unpack_grad(EXACT, packed, 7, 0)

    def grad(self, number=7, shape=(5, 3, 16), settings=EXACT, **tag):
        with_defaults = with_values(lowlevel.CallInfo(), **{"loss_scale": 1.0, "ranks": 1, **tag})
        return wire.pack_grad(settings, torch.ones(shape), number, "language rank 0", with_defaults)

    def test_a_gradient(self):
        grad, tag, _ = wire.unpack_grad(EXACT, [self.grad()], 7, 0)
        self.assertTrue(torch.equal(grad, torch.full((5, 3, 16), 1000.0)))
        self.assertEqual((tag.loss_scale, tag.accumulation, tag.ranks), (1000.0, 0, 1))

    def test_is_refused_by_name(self):
        self.refused("language rank 0 sent micro-batch 8, and this is micro-batch 7", [self.grad(8)])
        self.refused("as torch.float16 .*, and torch.float32", [self.grad(settings=dataclasses.replace(EXACT, grad_dtype="float16"))])
        self.refused(r"\[5, 2, 16\], and torch.float32 \[5, 3, 16\]", [self.grad(shape=(5, 2, 16))])
        self.refused("without a tag", [wire.pack("embedding_grad", torch.ones(5, 3, 16), 7, "language rank 0")])
        self.refused("language rank 0 sent embedding .* waits for embedding_grad", [wire.pack("embedding", torch.ones(5, 3, 16), 7, "language rank 0")])
        damaged = self.grad().copy()
        damaged[-1] ^= 1
        self.refused("checksum", [damaged], OutriggerError)
        with self.assertRaisesRegex(wire.WireError, "a gradient's tag"):
            wire.unpack_embedding(EXACT, [wire.pack("embedding", torch.ones(5, 3, 16), 7, "vision rank 0", with_values(lowlevel.CallInfo(), loss_scale=1.0))] * 2,
                                  7, 0, torch.float32)

    def test_parts_with_different_factors(self):
        two = dataclasses.replace(EXACT, language=Part(2, 1, "float32"))
        parts = [self.grad(shape=(3, 3, 16), ranks=2), self.grad(shape=(2, 3, 16), ranks=1)]
        with self.assertRaisesRegex(wire.WireError, "different factors"):
            wire.unpack_grad(two, parts, 7, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
