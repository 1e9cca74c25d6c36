# SPDX-License-Identifier: Apache-2.0
"""torch.compile and engines: the module is compiled as without an engine, and the numbers stay."""
import unittest
import warnings

import torch
import torch._dynamo
from models import Net, engine_of, master_of, net
from torch._dynamo.utils import counters


class Broken(Net):
    """Has one graph break of its own."""

    def forward(self, x):
        y = torch.tanh(self.a(x))
        torch._dynamo.graph_break()
        return self.c(torch.tanh(self.b(y)))


def broken():
    torch.manual_seed(0)
    return Broken()


def data(step, rows=8):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(rows, 6, generator=generator), torch.randn(rows, 4, generator=generator)


def train(engine, forward, x, t):
    loss = torch.nn.functional.mse_loss(forward(x.to(engine.compute_dtype)).float(), t)
    loss.backward()
    engine.step()
    return loss.detach()


def counted():
    """(graphs, graph breaks) since the last look."""
    found = counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())
    counters.clear()
    return found


class Compiled(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        torch._dynamo.reset()
        counters.clear()
        # PyTorch's own, from its look at tensors that live across a graph break.
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")

    def compare(self, engine, reference, step, steps=2):
        for number in range(steps):
            self.assertEqual(step(*data(number)), train(reference, reference, *data(number)))
        for one, other in zip(master_of(engine), master_of(reference)):
            self.assertTrue(torch.equal(one, other))
        self.assertEqual((engine.global_steps, engine.skipped_steps), (steps, 0))

    def test_no_graph_breaks_beyond_the_modules_own(self):
        for make, graphs, breaks in ((net, 1, 0), (broken, 2, 1)):
            plain = torch.compile(make(), backend="aot_eager")
            plain(data(0)[0]).sum().backward()
            self.assertEqual(counted(), (graphs, breaks))
            for stage, precision in ((0, {}), (1, {"bf16": {"enabled": True}}), (2, {"fp16": {"enabled": True}})):
                with self.subTest(model=make.__name__, stage=stage):
                    torch._dynamo.reset()
                    engine = engine_of(make(), stage=stage, **precision)
                    engine.compile("aot_eager")
                    self.assertTrue(engine.is_compiled)
                    self.compare(engine, engine_of(make(), stage=stage, **precision), lambda x, t: train(engine, engine, x, t))  # noqa: B023
                    self.assertEqual(counted(), (graphs, breaks))

    def test_what_is_compiled_around_an_engine(self):
        """The engine's call and what goes to the library are not traced: its module is a graph of its own."""
        for compiled in ("engine", "step"):
            with self.subTest(compiled=compiled):
                torch._dynamo.reset()
                engine = engine_of(net(), fp16={"enabled": True})
                if compiled == "engine":
                    forward, step = torch.compile(engine, backend="eager"), train
                else:
                    forward, step = engine, torch.compile(train, backend="eager")
                self.compare(engine, engine_of(net(), fp16={"enabled": True}), lambda x, t: step(engine, forward, x, t))  # noqa: B023

    def test_compiling_reads_no_gradient(self):
        """A module is compiled anew for other shapes, on some ranks perhaps, and looks at each parameter's .grad; reading one
        is collective, and ends the window's gradients."""
        engine = engine_of(net())
        engine.compile("eager")
        engine(data(0)[0]).sum().backward()
        before = counters["stats"]["unique_graphs"]
        with torch.no_grad():
            engine(data(1, rows=5)[0])
        self.assertGreater(counters["stats"]["unique_graphs"], before)
        engine.zero_grad()  # refused where a gradient was read
        engine(data(0)[0]).sum().backward()
        self.assertIsNotNone(engine.module.a.weight.grad)

    def test_arguments(self):
        engine = engine_of(net())
        with self.assertRaisesRegex(NotImplementedError, "schedule="):
            engine.compile(schedule=[(0, [])])
        with self.assertRaisesRegex(TypeError, "no_such"):
            engine.compile("eager", {"no_such": 1})
        self.assertFalse(engine.is_compiled)


if __name__ == "__main__":
    unittest.main()
