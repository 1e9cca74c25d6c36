# SPDX-License-Identifier: Apache-2.0
"""OffloadedAdamW over a device whose copies are late: one that nobody has waited for leaves stale numbers behind, so that a
missed wait fails by value. The order of copies and updates, gradients that change after they were copied, accumulation,
bounded room for gradients, threads; and that the streams of a real device are asked for this order."""
import contextlib
import math
import threading
import unittest
from unittest import mock

import torch

from outrigger.torch import OffloadedAdamW, offload_copies, offload_tensors, offloaded_adamw

BOUND = {"rtol": 2e-6, "atol": 2e-7}


class LateCopies:
    """Copies happen when they are waited for, in their order: to the host with what the device's memory held when they began, to
    the device with what the host's holds then. early: at once, as fast copies do, over whatever is still read. The device's
    memory is the CPU's; what its stream does happens at once."""

    def __init__(self, log):
        self.log, self.downs, self.ups, self.open, self.early = log, [], [], False, False
        self.numbers = 0

    def memory(self, count, dtype):
        filler = torch.full((count,), 77, dtype=torch.uint8).repeat_interleave(dtype.itemsize)
        return filler.view(dtype)

    def _begin(self, queue, kind, source, target):
        assert source.numel() == target.numel() and source.dtype == target.dtype
        self.numbers += 1
        queue.append((self.numbers, source.clone() if kind == "down" else source, target))
        self.log.append((kind, target.numel()))
        if self.early:
            self._finish(queue, self.numbers)
        return kind, self.numbers

    def down(self, source, target):
        return self._begin(self.downs, "down", source, target)

    def up(self, source, target):
        assert self.open, "a copy to the device that does not wait for what reads its target"
        return self._begin(self.ups, "up", source, target)

    def wait(self, copy):
        kind, number = copy
        self.log.append(("wait " + kind, number))
        self._finish(self.downs if kind == "down" else self.ups, number)

    @staticmethod
    def _finish(queue, number):
        while queue and queue[0][0] <= number:
            _, source, target = queue.pop(0)
            target.copy_(source)

    def open_up(self):
        self.open = True
        self.log.append(("open", 0))

    def close_up(self):
        self.open = False
        self.log.append(("close", 0))
        self._finish(self.ups, math.inf)


def net(dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(9, 20), torch.nn.Tanh(), torch.nn.Linear(20, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).to(dtype)


def backward(model, step, factor=1.0):
    generator = torch.Generator().manual_seed(step)
    dtype = next(model.parameters()).dtype
    x = torch.randn(5, 9, generator=generator).to(dtype)
    (factor * model(x).float().square().sum()).backward()


class Device(unittest.TestCase):
    def setUp(self):
        self.log = []
        self.copies = LateCopies(self.log)
        replaced = mock.patch.object(offloaded_adamw, "copies_of", lambda device: self.copies)
        replaced.start()
        self.addCleanup(replaced.stop)

    def pair(self, dtype=torch.float32, **options):
        ours, others = net(dtype), net(dtype)
        optimizer = OffloadedAdamW(ours.parameters(), lr=0.02, weight_decay=0.1, **options)
        plain = torch.optim.AdamW(others.parameters(), lr=0.02, weight_decay=0.1)
        return ours, optimizer, others, plain

    def alike(self, ours, others):
        for one, other in zip(ours.parameters(), others.parameters(), strict=True):
            torch.testing.assert_close(one.detach(), other.detach(), **BOUND)

    def train(self, ours, optimizer, others, plain, steps, between=lambda model, step: None):
        for step in steps:
            for model, each in ((ours, optimizer), (others, plain)):
                each.zero_grad()
                backward(model, step)
                between(model, step)
                each.step()

    def test_values(self):
        for options in ({}, {"gradient_buffer": 0}, {"gradient_buffer": 4 * 200}):
            for self.copies.early in (False, True):
                with self.subTest(**options, early=self.copies.early), mock.patch.object(offloaded_adamw, "_RUN", 30):
                    pair = self.pair(**options)
                    self.train(*pair, range(6))
                    self.alike(pair[0], pair[2])

    def test_16_bits_have_the_bits_of_the_host(self):
        for states in (None, {"master": {"format": "float32"}}, {"master": {"format": "bfloat16"}, "exp_avg": {"format": "block8"},
                                                                 "exp_avg_sq": {"format": "block8"}}):
            ours, other = net(torch.bfloat16), net(torch.bfloat16)
            optimizer = OffloadedAdamW(ours.parameters(), lr=0.02, states=states)
            with mock.patch.object(offloaded_adamw, "copies_of", lambda device: None):
                plain = OffloadedAdamW(other.parameters(), lr=0.02, states=states)
            self.train(ours, optimizer, other, plain, range(5))
            for one, two in zip(ours.parameters(), other.parameters()):
                self.assertTrue(torch.equal(one, two))

    def test_order(self):
        """Gradients come down in backward, last layer first; an update waits for its own; weights go up in the model's order
        after what read them; the next update waits for those copies."""
        ours, optimizer, _, _ = self.pair()
        sizes = [each.numel() for each in ours.parameters()]
        with mock.patch.object(offloaded_adamw, "_RUN", 1):  # each parameter by itself
            backward(ours, 0)
            downs = [size for kind, size in self.log if kind == "down"]
            self.assertEqual(sorted(downs), sorted(sizes))
            self.assertEqual(set(downs[:2]), set(sizes[-2:]))
            self.log.clear()
            optimizer.step()
            kinds = [kind for kind, _ in self.log]
            self.assertEqual(kinds, ["open"] + ["wait down", "up"] * 6 + ["close"])
            self.assertEqual([size for kind, size in self.log if kind == "up"], sizes)
            optimizer.zero_grad()
            backward(ours, 1)
            self.log.clear()
            optimizer.step()
        self.assertEqual([kind for kind, _ in self.log if kind != "wait down"], ["open"] + ["wait up", "up"] * 6 + ["close"])

    def test_one_run_comes_down_while_another_is_updated(self):
        ours, optimizer, others, plain = self.pair(gradient_buffer=0)
        with mock.patch.object(offloaded_adamw, "_RUN", 1):
            backward(ours, 0)
            self.assertEqual(self.log, [])
            optimizer.step()
        kinds = [kind for kind, _ in self.log]
        self.assertEqual(kinds, ["open", "down"] + ["down", "wait down", "up"] * 5 + ["wait down", "up", "close"])
        backward(others, 0)
        plain.step()
        self.alike(ours, others)
        largest = sorted(each.numel() * 4 for each in ours.parameters())[-2:]
        self.assertLessEqual(optimizer.host_bytes()["gradients"], sum(-(-size // 64) * 64 for size in largest))

    def test_room_is_bounded(self):
        ours, optimizer, others, plain = self.pair(gradient_buffer=800)
        self.train(ours, optimizer, others, plain, range(3))
        self.alike(ours, others)
        used = optimizer.host_bytes()["gradients"] - optimizer._staging.bytes
        self.assertLessEqual(used, 800)
        self.assertGreater(used, 0)

    def test_room_is_given_back(self):
        """By a gradient that comes in another dtype."""
        parameter = torch.nn.Parameter(torch.ones(64, dtype=torch.bfloat16))
        parameter.grad_dtype = None
        optimizer = OffloadedAdamW([parameter], gradient_buffer=64 * 4)
        for dtype in (torch.float32, torch.bfloat16, torch.float32):
            parameter.grad = torch.ones(64, dtype=dtype)
            optimizer._bring(parameter)
            self.assertEqual(optimizer.host_bytes()["gradients"], 64 * dtype.itemsize)
            optimizer.step()

    def test_without_overlap(self):
        ours, optimizer, others, plain = self.pair()
        optimizer.overlap = False
        for model in (ours, others):
            backward(model, 0)
        self.assertEqual(self.log, [])
        optimizer.step()
        plain.step()
        self.alike(ours, others)

    def test_gradients_that_change_after_the_copy(self):
        """In ways that versions tell of, and in ways that they do not; in whole, or in one element."""
        def one_element(model, step):
            model[2].weight.grad.data[1, 2] += 0.5

        def negated(model, step):
            for each in model.parameters():
                each.grad.data.neg_()

        def replaced(model, step):
            for each in model.parameters():
                each.grad = each.grad * 0.5

        def clipped(model, step):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)

        def zeroed(model, step):
            model.zero_grad(set_to_none=False)

        for change in (one_element, negated, replaced, clipped, zeroed):
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(change.__name__, dtype=dtype):
                    if dtype == torch.float32:
                        pair = self.pair()
                        self.train(*pair, range(4), change)
                        self.alike(pair[0], pair[2])
                        continue
                    ours, other = net(dtype), net(dtype)
                    optimizer, plain = OffloadedAdamW(ours.parameters()), OffloadedAdamW(other.parameters())
                    plain.overlap = False
                    self.train(ours, optimizer, other, plain, range(4), change)
                    for one, two in zip(ours.parameters(), other.parameters()):
                        self.assertTrue(torch.equal(one, two))

    def test_fingerprints(self):
        """One element that is lost in a sum of values, and signs that are lost in a sum of bits."""
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            values = torch.tensor([3e4, 1e-4, 0.5, -0.5] * 300, dtype=dtype)
            before = [offload_tensors.fingerprint(values) for _ in range(4)]
            small = values.clone()
            small[5] = 2e-4
            balanced = torch.tensor([0.5, -0.25] * 300, dtype=dtype)
            before[2] = offload_tensors.fingerprint(balanced)
            after = [offload_tensors.fingerprint(each) for each in (values.clone(), small, -balanced, -values)]
            self.assertEqual(offload_tensors.differ(before, after), [False, True, True, True])
        self.assertEqual(offload_tensors.differ([], []), [])

    def test_unchanged_gradients_are_not_copied_again(self):
        ours, optimizer, _, _ = self.pair()
        backward(ours, 0)
        self.log.clear()
        optimizer.step()
        self.assertNotIn("down", [kind for kind, _ in self.log])

    def test_accumulation(self):
        """The gradient stays and adds up on the device; the last copy counts. Without overlap before it, there is one."""
        for overlap in (True, False):
            ours, optimizer, others, plain = self.pair()
            for window in range(2):
                for model, each in ((ours, optimizer), (others, plain)):
                    each.zero_grad()
                    for micro in range(3):
                        optimizer.overlap = overlap or micro == 2
                        backward(model, 3 * window + micro, 1 / 3)
                self.assertEqual(len([1 for kind, _ in self.log if kind == "down"]), 18 if overlap else 6)
                self.log.clear()
                optimizer.step()
                plain.step()
            self.alike(ours, others)

    def test_gradients_that_are_dropped(self):
        ours, optimizer, others, plain = self.pair()
        for model, each in ((ours, optimizer), (others, plain)):
            backward(model, 0)
            each.zero_grad()
            model[4](torch.ones(2, 8)).sum().backward()  # the others have none
            each.step()
            backward(model, 1)
            each.step()
        self.alike(ours, others)

    def test_clipping_and_scale(self):
        for options in ({}, {"gradient_buffer": 0}):
            ours, optimizer, others, plain = self.pair(max_norm=0.7, **options)
            scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
            for step in range(4):
                optimizer.zero_grad()
                plain.zero_grad()
                scaler.scale(torch.zeros(1))
                backward(ours, step, 64.0)
                scaler.step(optimizer)
                scaler.update()
                backward(others, step)
                norm = torch.nn.utils.clip_grad_norm_(others.parameters(), 0.7)
                plain.step()
                self.assertAlmostEqual(optimizer.grad_norm / float(norm), 1, places=5)
            for one, other in zip(ours.parameters(), others.parameters()):
                torch.testing.assert_close(one.detach(), other.detach(), rtol=2e-5, atol=1e-6)

    def test_weights_that_others_write(self):
        for dtype in (torch.float32, torch.bfloat16):
            for way in (lambda each: each.data.fill_(0.75), lambda each: setattr(each, "data", torch.full_like(each, 0.75))):
                ours, other = net(dtype), net(dtype)
                optimizer = OffloadedAdamW(ours.parameters(), lr=0.02)
                with mock.patch.object(offloaded_adamw, "copies_of", lambda device: None):
                    plain = OffloadedAdamW(other.parameters(), lr=0.02)
                for step in range(4):
                    if step == 2:
                        way(ours[2].weight)
                        with torch.no_grad():
                            other[2].weight.fill_(0.75)
                    self.train(ours, optimizer, other, plain, [step])
                for one, two in zip(ours.parameters(), other.parameters()):
                    self.assertTrue(torch.equal(one, two))

    def test_saved_and_loaded(self):
        states = {"master": {"format": "bfloat16"}, "exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}
        for formats, dtype in ((None, torch.float32), (None, torch.bfloat16), (states, torch.bfloat16)):
            ours, other = net(dtype), net(dtype)
            make = lambda model: OffloadedAdamW(model.parameters(), lr=0.02, states=formats)  # noqa: B023, E731
            optimizer, whole = make(ours), make(other)
            for step in range(6):
                if step == 3:
                    weights, saved = ours.state_dict(), optimizer.state_dict()
                    ours = net(dtype, seed=5)
                    optimizer = make(ours)
                    optimizer.load_state_dict(saved)
                    ours.load_state_dict(weights)
                self.train(ours, optimizer, other, whole, [step])
            for one, two in zip(ours.parameters(), other.parameters()):
                self.assertTrue(torch.equal(one, two))

    def test_frozen_and_thawed(self):
        ours, others = net(), net()
        for model in (ours, others):
            model[0].requires_grad_(False)
        optimizer = OffloadedAdamW(ours.parameters(), lr=0.02, weight_decay=0.1)
        plain = torch.optim.AdamW(others.parameters(), lr=0.02, weight_decay=0.1)
        self.train(ours, optimizer, others, plain, range(2))
        for model in (ours, others):
            model[0].requires_grad_(True)
        self.train(ours, optimizer, others, plain, range(2, 4))
        self.log.clear()
        backward(ours, 9)
        self.assertEqual(len([1 for kind, _ in self.log if kind == "down"]), 6)
        self.alike(ours, others)

    def test_backwards_on_threads(self):
        ours, optimizer, others, plain = self.pair(gradient_buffer=900)
        for step in range(3):
            optimizer.zero_grad()
            plain.zero_grad()
            threads = [threading.Thread(target=backward, args=(ours, 10 * step + index)) for index in range(4)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            for index in range(4):
                backward(others, 10 * step + index)
            optimizer.step()
            plain.step()
        for one, other in zip(ours.parameters(), others.parameters()):
            torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-4, atol=1e-5)

    def test_an_optimizer_that_is_gone(self):
        ours = net()
        OffloadedAdamW(ours.parameters())
        backward(ours, 0)
        self.assertEqual(self.log, [])


class Streams(unittest.TestCase):
    """StreamCopies asks for the order that LateCopies stands for; nothing here has an accelerator."""

    def test_calls(self):
        calls = []

        class Stream:
            def __init__(self, device=None, name=None):
                self.name = name or ("down", "up")[len(made)]
                made.append(self)

            def wait_stream(self, other):
                calls.append(f"{self.name} waits for {other.name}")

        class Event:
            def record(self, stream):
                calls.append(f"record on {stream.name}")

            def synchronize(self):
                calls.append("synchronize")

        class Values:
            def __init__(self, name):
                self.name = name

            def copy_(self, source, non_blocking):
                assert non_blocking
                calls.append(f"{self.name} = {source.name} on {current[-1].name}")

            def record_stream(self, stream):
                calls.append(f"{self.name} is read on {stream.name}")

        @contextlib.contextmanager
        def stream(each):
            current.append(each)
            yield
            current.pop()

        made = []
        module = mock.Mock(Stream=Stream, Event=Event, stream=stream, current_stream=lambda device: current[-1])
        with mock.patch.object(torch, "get_device_module", lambda device: module):
            copies = offload_copies.StreamCopies(torch.device("cpu"))
        current = [Stream(name="main")]
        copies.wait(copies.down(Values("gradient"), Values("host")))
        self.assertEqual(calls, ["down waits for main", "host = gradient on down", "record on down", "gradient is read on down", "synchronize"])
        calls.clear()
        copies.open_up()
        copies.up(Values("host"), Values("weight"))
        copies.close_up()
        self.assertEqual(calls, ["up waits for main", "weight = host on up", "record on up", "main waits for up"])

    def test_the_host_copies_nothing(self):
        self.assertIsNone(offload_copies.copies_of(torch.device("cpu")))


if __name__ == "__main__":
    unittest.main()
