# SPDX-License-Identifier: Apache-2.0
"""An engine on a device, beside the same on the CPU: the same bits. The device is CUDA's mock driver, under tensors of PyTorch that are
the CPU's (mock_device.py); with a GPU tests/gpu/test_torch_engine_cuda.py does it."""
import gc
import itertools
import tempfile
import threading
import unittest
from unittest import mock

import mock_device
import torch
from models import PRECISIONS, config, engine_of, master_of, net, solo
from torch.utils.checkpoint import checkpoint

import outrigger
import outrigger.torch
from outrigger import lowlevel
from outrigger.torch import devices, utils

CLIP = 0.05  # norms are 0.2 to 1


def batch(seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, 6, generator=generator).to(dtype), torch.randn(8, 4, generator=generator)


def train(engine, steps=3, first=0):
    losses = []
    for step in range(first, first + steps):
        for micro in range(engine.gradient_accumulation_steps()):
            x, t = batch(100 * step + micro, engine.compute_dtype)
            losses.append(torch.nn.functional.mse_loss(engine(x).float(), t))
            engine.backward(losses[-1])
            engine.step()
    return [each.item() for each in losses]


def values_of(engine):
    """All that a step has left, as a list of tensors."""
    read = [engine.read(each, value) for each in engine.parameters_of.trainable
            for value in (lowlevel.VALUE_MASTER, lowlevel.VALUE_EXP_AVG, lowlevel.VALUE_EXP_AVG_SQ)]
    with outrigger.torch.zero.GatheredParameters(list(engine.module.parameters())):
        return read + [each.detach().float().clone() for each in engine.module.parameters()]


class OnADevice(unittest.TestCase):
    def setUp(self):
        entered = mock_device.in_use("cuda")
        self.device = entered.__enter__()
        self.addCleanup(entered.__exit__, None, None, None)

    def there(self, model, **options):
        """An engine on the device."""
        with mock.patch.dict(devices.KINDS, cpu=devices.KINDS["cuda"]):
            engine = engine_of(model, **options)
        self.addCleanup(engine.destroy)
        return mock_device.under(engine, self.device)

    def here(self, model, **options):
        engine = engine_of(model, **options)
        self.addCleanup(engine.destroy)
        return engine

    def same(self, one, other):
        self.device.synchronize()
        for a, b in zip(values_of(one), values_of(other), strict=True):
            self.assertTrue(torch.equal(a, b))
        self.assertEqual(one.get_global_grad_norm(), other.get_global_grad_norm())

    def test_has_the_bits_of_the_cpu(self):
        every = [each for each in itertools.product(range(4), PRECISIONS.items(), (None, "states", "parameters"), (1, 3), (0, CLIP))
                 if each[0] >= {None: 0, "states": 1, "parameters": 3}[each[2]]]
        # A fifth, in which any two of their values meet: the engine's matrix has all of them on every device.
        for stage, (name, precision), offload, gas, clip in every[::5]:
            with self.subTest(stage=stage, precision=name, offload=offload, gas=gas, clip=clip):
                options = {"stage": stage, "gas": gas, "clip": clip, **precision}
                if offload:
                    options["zero_optimization"] = {"stage": stage, "offload_optimizer": {"device": "cpu"}}
                    del options["stage"]
                if offload == "parameters":
                    options["zero_optimization"] |= {"offload_param": {"device": "cpu"}, "stage3_param_persistence_threshold": 20 * gas}
                model, self.device.calls = net(), {}
                self.device.stream = self.device.new_stream()
                one, other = self.there(model, **options), self.here(model, **options)
                self.assertEqual(train(one), train(other))
                self.same(one, other)
                self.assertEqual(sum(self.device.calls.values()), 6 + 6 * 3 * gas)  # initial values and gradients
                there = [bytes for purpose, bytes, _ in one.memory() if purpose == "total"][1]
                self.assertGreater(there, 0, "nothing is on the device")

    def test_frozen_parameters_in_host_memory_come_and_go(self):
        """A frozen model behind a layer that learns: a backward has one layer's weights on the device at a time, a step changes none of
        them, and what is written into them stays."""
        def model():
            torch.manual_seed(3)
            layers = torch.nn.Sequential(torch.nn.Linear(6, 16), *(torch.nn.Linear(16, 16) for _ in range(6)), torch.nn.Linear(16, 4))
            layers[1:].requires_grad_(False)
            return layers

        zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}, "stage3_param_persistence_threshold": 0}
        one = self.there(model(), zero_optimization=zero, clip=CLIP)
        other = self.here(model(), stage=3, clip=CLIP)
        live = []
        for layer in one.module:
            layer.register_forward_hook(lambda module, inputs, output: output.register_hook(
                lambda grad: live.append(len(one.gathering._live))) and None)
        self.assertEqual(train(one), train(other))
        self.same(one, other)
        self.assertEqual(len(live), 3 * 8)
        self.assertLessEqual(max(live), 3)  # a bias comes and goes with its weight; the next one may be fetched ahead
        for engine in (one, other):
            with outrigger.torch.zero.GatheredParameters([engine.module[2].weight], modifier_rank=0), torch.no_grad():
                engine.module[2].weight.mul_(2)
        self.assertEqual(train(one, first=3), train(other, first=3))
        self.same(one, other)
        values = {name: torch.full_like(value, 0.125) for name, value in other.module.state_dict().items()}
        for engine in (one, other):
            engine.module.load_state_dict(values)
        self.assertEqual(train(one, first=6), train(other, first=6))
        self.same(one, other)

    def test_a_forward_beside_the_step(self):
        """step(wait=False): the forward waits for its parameters alone, whatever else is asked of the engine for the step."""
        zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}, "stage3_param_persistence_threshold": 0}
        schedule = {"type": "WarmupLR", "params": {"warmup_min_lr": 0.001, "warmup_max_lr": 0.01, "warmup_num_steps": 7, "warmup_type": "linear"}}
        for index, (name, precision) in enumerate(PRECISIONS.items()):
            gas = 1 + index % 2
            with self.subTest(precision=name, gas=gas):
                model, options = net(), {**precision, "gas": gas, "clip": CLIP, "scheduler": schedule}
                one, other = self.there(model, **options, zero_optimization=zero), self.here(model, **options, stage=3)
                seen = {}
                for engine in (one, other):
                    seen[engine] = []
                    for step in range(5 * gas):
                        under_way = engine is one and step > 0 and step % gas == 0
                        x, t = batch(step, engine.compute_dtype)
                        loss = torch.nn.functional.mse_loss(engine(x).float(), t)
                        self.assertEqual(engine._unfinished is not None, under_way)
                        engine.backward(loss * (float("inf") if step // gas == 2 else 1))
                        self.assertIsNone(engine._unfinished)
                        seen[engine] += [loss.item(), engine.skipped_steps, engine.get_lr()]
                        engine.step(wait=False)
                    self.assertEqual(engine._unfinished is not None, engine is one)
                    seen[engine] += [engine.global_steps, engine.report.outcome, engine.was_step_applied(), engine.skipped_steps, engine.get_lr()]
                self.assertEqual(seen[one], seen[other])
                self.assertEqual(one.skipped_steps, 1)
                self.same(one, other)
                x, t = batch(9, one.compute_dtype)
                stale = one(x).float().sum()
                one.backward(torch.nn.functional.mse_loss(one(x).float(), t))
                for _ in range(gas):
                    one.step(wait=False)
                library, applied = one.__dict__["_library"], one.__dict__["report"].applied_steps
                with mock.patch.object(library, "report", side_effect=TimeoutError):  # what a signal's handler raises
                    self.assertRaises(TimeoutError, one.wait_step)
                self.assertEqual(one.report.applied_steps, applied + 1)
                self.assertRaisesRegex(RuntimeError, "modified by an inplace operation", one.backward, stale)
                one.close_pass()  # which that backward has begun

    def test_another_stream(self):
        model = net()
        one, other = self.there(model, gas=2, clip=CLIP), self.here(model, gas=2, clip=CLIP)
        self.device.calls = {}
        for step in range(4):
            self.device.stream = self.device.new_stream()
            train(one, 1, step)
            train(other, 1, step)
        self.same(one, other)
        self.assertEqual(sorted(self.device.calls.values()), [12] * 4)

    def test_what_streams_read_is_in_order(self):
        """The new weights by the stream of the step, the old ones by whichever stream the step comes in: without a wait of the host."""
        for offload in ("none", "cpu"):
            zero = {"stage": 2, "offload_optimizer": {"device": offload}}
            one, other = (make(net(), zero_optimization=zero, bf16={"enabled": True}) for make in (self.there, self.here))
            for step in range(4):
                x, t = batch(step, torch.bfloat16)
                for engine in (one, other):
                    loss = torch.nn.functional.mse_loss(engine(x).float(), t)
                    engine.backward(loss)
                    weights, before = list(engine.module.parameters()), self.device.stream
                    if step > 1:
                        self.assertEqual(weights[0].grad.shape, weights[0].shape)  # which sums them
                    if engine is one:
                        if step % 2:
                            self.device.stream = self.device.new_stream()
                        old = [self.device.read(each) for each in weights]
                        engine.step()
                        new = [self.device.read(each) for each in weights]
                        self.device.synchronize()
                        self.device.stream = before
                    else:
                        expected_old = [each.detach().clone() for each in weights]
                        engine.step()
                        expected = [each.detach() for each in weights]
                for a, b in zip((*old, *new), (*expected_old, *expected), strict=True):
                    self.assertTrue(torch.equal(a, b))
            self.same(one, other)

    def test_values_are_written_after_what_the_stream_reads(self):
        engine = self.there(net(), bf16={"enabled": True})
        weight = engine.module.b.weight
        with tempfile.TemporaryDirectory() as folder:
            engine.save_checkpoint(folder)
            calls = {"write": lambda: engine.write(weight, torch.ones(16, 16), lowlevel.VALUE_MASTER),
                     "write_local": lambda: engine.write_local(weight, torch.ones(256), lowlevel.VALUE_MASTER),
                     "load": lambda: engine.load_checkpoint(folder), "offload": engine.offload_states, "reload": engine.reload_states}
            for name, call in calls.items():
                with self.subTest(name):
                    self.device.stream = self.device.new_stream()
                    before = weight.detach().clone()
                    seen = [self.device.read(weight) for _ in range(50)] if name != "reload" else []
                    call()
                    self.device.synchronize()
                    self.assertTrue(all(torch.equal(each, before) for each in seen))
            train(engine, 1)

    def test_a_backward_of_another_thread(self):
        """As autograd runs that of a GPU."""
        model = net()
        for precision in PRECISIONS.values():
            one, other = self.there(model, gas=2, **precision), self.here(model, gas=2, **precision)
            for step in range(4):
                for engine in (one, other):
                    x, t = batch(step, engine.compute_dtype)
                    loss = torch.nn.functional.mse_loss(engine(x).float(), t)
                    if engine is one:
                        thread = threading.Thread(target=loss.backward)
                        thread.start()
                        thread.join()
                    else:
                        loss.backward()
                    engine.step()
            self.same(one, other)

    def test_checkpointed_blocks(self):
        class Blocks(torch.nn.Module):
            def __init__(self, reentrant):
                super().__init__()
                self.net, self.reentrant = net(), reentrant

            def forward(self, x):
                hidden = torch.tanh(self.net.a(x))
                return checkpoint(lambda y: self.net.c(torch.tanh(self.net.b(y))), hidden, use_reentrant=self.reentrant)

        for reentrant in (False, True):
            one, other = self.there(Blocks(reentrant), stage=3), self.here(net(), stage=3)
            self.assertEqual(train(one), train(other))
            self.same(one, other)

    def test_gradients_are_seen_and_changed(self):
        model, engines = net(), []
        for make in (self.there, self.here):
            engine = make(model, gas=2)
            seen = []
            engine.module.b.weight.register_post_accumulate_grad_hook(lambda p, seen=seen: (seen.append(p.grad.clone()), p.grad.mul_(0.5)))
            for micro in range(2):
                x, t = batch(micro)
                torch.nn.functional.mse_loss(engine(x), t).backward()
                if micro == 0:
                    engine.step()
            norm = torch.nn.utils.clip_grad_norm_(engine.module.parameters(), 0.1)
            engine.module.c.bias.grad = torch.full((4,), 0.25)
            engine.module.a.bias.grad = None
            engine.step()
            engines.append((engine, seen, norm))
        (one, seen, norm), (other, other_seen, other_norm) = engines
        self.same(one, other)
        self.assertEqual(norm, other_norm)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(seen, other_seen, strict=True)))

    def test_weights_are_written(self):
        model, engines = net(), []
        for make in (self.there, self.here):
            engine = make(model, bf16={"enabled": True})
            train(engine, 1)
            self.device.synchronize()
            with torch.no_grad():
                engine.module.a.weight.mul_(1.5)
            train(engine, 1, 1)
            engine.module.load_state_dict({name: each * 0.75 for name, each in model.state_dict().items()})
            with outrigger.torch.zero.GatheredParameters([engine.module.c.weight], modifier_rank=0):
                engine.module.c.weight.data.add_(0.125)
            utils.safe_set_full_optimizer_state(engine.module.b.weight, torch.full((16, 16), 0.01), "exp_avg")
            train(engine, 1, 2)
            engines.append(engine)
        self.same(*engines)

    def test_checkpoints_go_from_one_to_the_other(self):
        model = net()
        model.register_buffer("mean", torch.arange(3.0))
        for make, again in ((self.there, self.here), (self.here, self.there)):
            with tempfile.TemporaryDirectory() as folder:
                whole, saved = self.here(model, gas=2, bf16={"enabled": True}), make(model, gas=2, bf16={"enabled": True})
                for engine in (whole, saved):
                    train(engine, 2)
                saved.module.mean.add_(1)
                with mock.patch("torch.serialization.location_tag", return_value="cuda:0"):  # a tensor that was on a GPU
                    saved.save_checkpoint(folder, client_state={"seen": torch.tensor([3])})
                drawn = torch.rand(4, generator=self.device.generator)
                gone_on = again(model, stage=3, gas=2, bf16={"enabled": True})
                path, state = gone_on.load_checkpoint(folder)
                self.assertEqual((state["seen"].item(), gone_on.module.mean.tolist()), (3, [1, 2, 3]))
                third = self.there(model, stage=1, gas=2, bf16={"enabled": True})
                third.load_checkpoint(folder)
                self.assertEqual(torch.equal(torch.rand(4, generator=self.device.generator), drawn), make == self.there)
                self.assertEqual(train(gone_on, 2, 2), train(whole, 2, 2))
                self.same(gone_on, whole)

    def test_states_leave_and_come_back(self):
        model = net()
        one, other = self.there(model), self.here(model)
        train(one, 2)
        before = [each.data_ptr() for each in one.module.parameters()]
        one.offload_states()
        self.assertRaisesRegex(RuntimeError, "reload_states first", one, batch(0)[0])
        others = [self.device.allocate(256) for _ in range(200)]
        one.reload_states()
        self.assertNotEqual(before, [each.data_ptr() for each in one.module.parameters()], "the test does not see that addresses change")
        train(one, 2, 2)
        train(other, 4)
        self.same(one, other)
        for each in others:
            self.device.free(each)

    def test_frozen_tied_unused(self):
        class Mixed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(1)
                self.first, self.second, self.frozen = (torch.nn.Linear(6, 6) for _ in range(3))
                self.second.weight = self.first.weight
                self.unused, self.empty = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(0, 2))
                self.frozen.requires_grad_(False)
                self.register_buffer("mask", torch.tensor([1, 0, 1, 1, 0, 1]))

            def forward(self, x):
                return (self.frozen(self.second(torch.tanh(self.first(x)))) * self.mask)[:, :4] + self.empty.sum()

        for stage in (0, 3):
            one, other = self.there(Mixed(), stage=stage), self.here(Mixed(), stage=stage)
            self.assertEqual(train(one), train(other))
            self.same(one, other)

    def test_optimizers_of_pytorch(self):
        for stage in (0, 2):
            engines = []
            for place in ("there", "here"):
                model = net()
                optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
                made = config(stage=stage, gas=2, clip=CLIP, zero_allow_untested_optimizer=True)
                kinds = {"cpu": devices.KINDS["cuda"]} if place == "there" else {}
                with mock.patch.dict(devices.KINDS, kinds), self.assertLogs("outrigger.torch", "WARNING"):
                    engine, *_ = outrigger.torch.initialize(model=model, optimizer=optimizer, config=made, comm=solo())
                engine.module.register_forward_pre_hook(self.device.forward)
                self.addCleanup(engine.destroy)
                train(engine)
                engines.append(engine)
            for a, b in zip(master_of(engines[0]), master_of(engines[1]), strict=True):
                self.assertTrue(torch.equal(a, b))
            state = [utils.safe_get_full_optimizer_state(each.module.b.weight, "momentum_buffer") for each in engines]
            self.assertTrue(torch.equal(*state))

    def test_init_with_a_device(self):
        with outrigger.torch.zero.Init(device="cuda"):
            model = net()
            model.register_buffer("count", torch.zeros(3, dtype=torch.int64))
        self.assertEqual(model.a.weight.device.type, "cpu")  # until then
        (one, *_), other = engine_of_as_is(model), self.here(net())
        self.addCleanup(one.destroy)
        mock_device.under(one, self.device)
        self.assertEqual(train(one), train(other))
        self.same(one, other)
        self.assertGreater(sum(self.device.calls.values()), 0)

    def test_destroy_leaves_a_plain_module(self):
        live = self.device.live()
        with mock.patch.dict(devices.KINDS, cpu=devices.KINDS["cuda"]):
            engine = mock_device.under(engine_of(net()), self.device)
        train(engine)
        module, masters = engine.module, master_of(engine)
        self.assertGreater(self.device.live(), live)
        engine.destroy()
        del engine
        for a, b in zip(module.parameters(), masters, strict=True):
            self.assertTrue(torch.equal(a.detach(), b))
        self.device.synchronize()
        self.assertEqual(self.device.live(), live)

    def test_memory_of_pytorchs_cache(self):
        cache, context = Cache(self.device), outrigger.Context(workers=1)
        options = {"stage": 3, "gas": 2, **PRECISIONS["fp16"]}
        with cache.in_use():
            outrigger.torch.share_caching_allocator(context, "cuda:0")
            with mock.patch.dict(devices.KINDS, cpu=devices.KINDS["cuda"]):
                one, other = engine_of(net(), outrigger.Comm.self_group(context), **options), self.here(net(), **options)
            mock_device.under(one, self.device)
            self.assertGreaterEqual(cache.taken, [bytes for purpose, bytes, _ in one.memory() if purpose == "total"][1])
            self.assertRaisesRegex(lowlevel.OutriggerError, "in use: set the allocator before", outrigger.torch.share_caching_allocator, context, 0)
            for step in range(4):
                self.device.stream = self.device.new_stream()
                train(one, 1, step)
                train(other, 1, step)
            self.same(one, other)
            self.assertGreater(cache.again, 0, "the test reuses nothing")
            ids = list(one.parameters_of.ids.values())
            one.parameters_of.let_go()
            for _ in range(3):  # float32 copies, which are taken in one stream and read and given back in another
                self.device.stream = self.device.new_stream()
                info = self.device.info()
                info.flags = lowlevel.ACQUIRE_FLOAT32
                copies = [self.device.show(view) for view in lowlevel.engine_acquire(one.handle, ids, info)]
                seen = [self.device.read(each) for each in copies]
                lowlevel.engine_release(one.handle, ids, info)
            self.device.synchronize()
            self.assertTrue(all(torch.equal(a, b.detach().float()) for a, b in zip(seen, one.module.parameters(), strict=True)))
            self.assertGreater(cache.ordered, 0, "the test gives nothing back in another stream")
            del copies
            one.parameters_of.take_again()
            one.destroy()
            del one
            gc.collect()
            self.assertEqual(cache.taken, 0)

    def test_devices_that_do_not_fit(self):
        model = net()
        model.b.to("meta")
        self.assertRaisesRegex(ValueError, r"parameters are on cpu and meta, and an engine is on one device.*model.to\('meta'\)", engine_of_as_is, model)
        self.assertRaisesRegex(NotImplementedError, r"parameters are on meta, for which there is no engine: legal are cpu and cuda", engine_of_as_is, model.to("meta"))


def engine_of_as_is(model):
    return outrigger.torch.initialize(model=model, config=config(), comm=solo())


class Cache:
    """PyTorch's caching allocator over the mock's memory: what is given back is the next of its size in the stream that it was taken in,
    and nobody waits. A use that is not over by then is a race, which the mock's device sees."""

    def __init__(self, device):
        self._device, self._free, self._of, self.taken, self.again, self.ordered = device, {}, {}, 0, 0, 0

    def alloc(self, size, index, stream):
        found = self._free.get((size, stream))
        self.again += bool(found)
        address = found.pop() if found else self._device.allocate(size)
        self._of[address] = size, stream
        self.taken += size
        return address

    def delete(self, address):
        size, stream = self._of[address]
        self.taken -= size
        self._free.setdefault((size, stream), []).append(address)

    def stream(self, number, index):
        def wait_stream(other):
            self.ordered += 1
            self._device.order(other.number, number)

        return mock.Mock(number=number, wait_stream=wait_stream)

    def in_use(self):
        return mock.patch.multiple(torch.cuda, caching_allocator_alloc=self.alloc, caching_allocator_delete=self.delete, ExternalStream=self.stream)


class Cuda(unittest.TestCase):
    """What it asks PyTorch for, without a GPU."""

    def setUp(self):
        self.stream = mock.Mock(cuda_stream=77)
        patched = {"current_device": 1, "is_current_stream_capturing": False, "current_stream": self.stream}
        for name, value in patched.items():
            entered = mock.patch.object(torch.cuda, name, return_value=value)
            setattr(self, name, entered.start())
            self.addCleanup(entered.stop)

    def test_names_the_device(self):
        self.assertEqual([(str(each.device), each.place) for each in (devices.Cuda(torch.device("cuda")), devices.Cuda(torch.device("cuda:3")))],
                         [("cuda:1", (lowlevel.DEVICE_CUDA, 1)), ("cuda:3", (lowlevel.DEVICE_CUDA, 3))])

    def test_names_the_stream(self):
        device = devices.Cuda(torch.device("cuda:3"))
        first = device.info()
        self.assertEqual((first.stream, device.info()), (77, first))
        self.current_stream.assert_called_with(torch.device("cuda:3"))
        self.stream.cuda_stream = 0
        self.assertEqual((device.info().stream, first.stream), (0, 77))
        device.wait()
        self.stream.synchronize.assert_called_once_with()

    def test_is_in_no_graph(self):
        self.is_current_stream_capturing.return_value = True
        self.assertRaisesRegex(RuntimeError, "captured into a CUDA graph.*capture only what is inside of the module", devices.Cuda(torch.device("cuda:0")).info)


if __name__ == "__main__":
    unittest.main()
