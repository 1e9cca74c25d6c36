# SPDX-License-Identifier: Apache-2.0
"""outrigger.numpy: gradients by value, in random chains (chain.py). `test_numpy_gradients.py N` draws N of them."""
import sys
import unittest
from unittest import mock

import chain
import numpy as np

import outrigger
import outrigger.numpy

SEEDS = chain.seeds(sys.argv, 60)


class Host:
    stages = (0, 1, 2, 3)
    forms = ("assign", "slot", "halves", "two passes")

    @staticmethod
    def make(weights, config, comm):
        return outrigger.numpy.Engine(weights, config, comm=comm)

    @staticmethod
    def step_many(engines):
        return outrigger.step_many([engine.library for engine in engines])

    @classmethod
    def backward(cls, engine, form, x, cotangents, tag):
        if form == "two passes":  # over the same output: they add
            first = cls.backward(engine, "assign", x, [each * 0.25 for each in cotangents], tag)
            rest = cls.backward(engine, "slot", x, [each * 0.75 for each in cotangents], tag)
            return first[0] + rest[0], rest[1], first[2] + rest[2]
        weights = {name: engine.read(name).astype(np.float64) for name in ("w", "b")}
        with engine.backward(*cotangents, tag=tag) as grads:
            dy = sum(np.asarray(each, np.float64) for each in grads.outputs)
            found, dx = chain.pulled_back(weights, x, dy)
            for name, grad in found.items():
                if form == "slot":
                    with grads.slot(name) as place:
                        place[...] = grad
                elif form == "halves":
                    grads[name] = grad / 2
                    grads[name] = (grad / 2).astype(np.float32)
                else:
                    grads[name] = grad
            return dx, grads.tag, grads.unscale(dx)


class Gradients(unittest.TestCase):
    def test_of_random_chains(self):
        for seed in SEEDS:
            chain.run(Host, seed)


# What a wrong factor at a border of the adapter would be.
MUTATIONS = {
    "outputs without their factor": (outrigger.Pass, "output_grad", lambda true: lambda self, i=0: true(self, i) / self.scale),
    "outputs with it twice": (outrigger.Pass, "output_grad", lambda true: lambda self, i=0: true(self, i) * self.scale),
    "unscale does nothing": (outrigger.numpy.Gradients, "unscale", lambda true: lambda self, grad: np.asarray(grad, np.float32)),
    "unscale twice": (outrigger.numpy.Gradients, "unscale", lambda true: lambda self, grad: true(self, true(self, grad))),
    "a tag is not handed on": (outrigger.Engine, "begin_pass", lambda true: lambda self, grads=(), tag=None: true(self, grads)),
    "a gradient is added twice": (outrigger.Pass, "add_grad",
                                  lambda true: lambda self, id, grad: (true(self, id, np.array(grad)), true(self, id, np.array(grad)))),
    "a gradient is dropped": (outrigger.Pass, "add_grad", lambda true: lambda self, id, grad: id == 0 or true(self, id, grad)),
}


class Mutations(unittest.TestCase):
    def test_each_is_caught(self):
        for name, (owner, attribute, mutated) in MUTATIONS.items():
            with self.subTest(name), mock.patch.object(owner, attribute, mutated(getattr(owner, attribute))), \
                    self.assertRaises(AssertionError):
                for seed in range(30):
                    chain.run(Host, seed)


if __name__ == "__main__":
    unittest.main()
