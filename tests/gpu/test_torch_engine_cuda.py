# SPDX-License-Identifier: Apache-2.0
"""outrigger.torch's engine on a GPU, by value beside loops of plain PyTorch there. On a machine with a GPU, by scripts/gpu/test.sh;
without one tests/bindings/torch/test_device.py compares the engine with the CPU's, on a mock driver."""
import copy
import gc
import itertools
import os
import tempfile
import unittest

import torch
from torch.utils.checkpoint import checkpoint

import outrigger
import outrigger.torch
from outrigger.torch import utils

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # the same bits in each run; read at the first product
DEVICE, WORDS, WIDTH = "cuda", 60, 64
LR, DECAY, CLIP, GAS, STEPS = 1e-3, 0.1, 0.5, 2, 4  # norms are about 1.2
# Of masters the most and the mean, of losses and of the norm. The CPU's: 2.4e-7 and 3.8e-9 in float32, 2.5e-4 and 3.8e-6 in bfloat16.
BOUNDS = {torch.float32: (1e-5, 1e-7, 1e-5, 1e-5), torch.bfloat16: (1e-3, 2e-5, 1e-3, 5e-3), torch.float16: (1e-3, 1e-5, 1e-3, 5e-3)}


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)  # a key's bias has no gradient but noise
        self.out, self.up, self.down = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (each.view(batch, length, 4, -1).transpose(1, 2) for each in self.qkv(self.first(x)).split(WIDTH, 2))
        scores = (q @ k.transpose(2, 3)) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1), -torch.inf)
        x = x + self.out((scores.softmax(3) @ v).transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


class Gpt(torch.nn.Module):
    """reentrant: None computes nothing again."""

    def __init__(self, reentrant=None):
        super().__init__()
        torch.manual_seed(7)
        self.words, self.places = torch.nn.Embedding(WORDS, WIDTH), torch.nn.Parameter(0.02 * torch.randn(32, WIDTH))
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, WORDS, bias=False)
        torch.nn.init.normal_(self.words.weight, std=0.1)
        self.head.weight = self.words.weight
        self.reentrant = reentrant

    def forward(self, ids):
        x = self.words(ids) + self.places[: ids.shape[1]]
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(self.norm(x))


def tokens(number):
    return torch.randint(WORDS, (8, 33), generator=torch.Generator().manual_seed(number)).to(DEVICE)


def loss_of(module, number):
    ids = tokens(number)
    return torch.nn.functional.cross_entropy(module(ids[:, :-1]).float().flatten(0, 1), ids[:, 1:].flatten())


def reference(dtype=torch.float32, scale=1, steps=STEPS, autocast=None):
    """Masters, losses and the last norm of a loop by hand: float32 masters and sums, the model computes in dtype."""
    master = Gpt().to(DEVICE)
    model = copy.deepcopy(master).to(dtype)
    optimizer, losses = torch.optim.AdamW(master.parameters(), lr=LR, weight_decay=DECAY), []
    for step in range(steps):
        for micro in range(GAS):
            with torch.autocast(DEVICE, autocast, enabled=autocast is not None):
                losses.append(loss_of(model, GAS * step + micro))
            (losses[-1] * (scale / GAS)).backward()
            for own, each in zip(master.parameters(), model.parameters(), strict=True):
                grad, each.grad = each.grad.float() / scale, None
                own.grad = grad if own.grad is None else own.grad + grad
        norm = torch.nn.utils.clip_grad_norm_(master.parameters(), CLIP)
        assert norm > 1.5 * CLIP, f"norm {norm}, so clipping does nothing"
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for own, each in zip(master.parameters(), model.parameters(), strict=True):
                each.copy_(own)
    return list(master.parameters()), [each.item() for each in losses], norm.item()


def engine_of(model, stage=2, offload=False, comm=None, **more):
    zero = {"stage": stage, **({"offload_optimizer": {"device": "cpu"}} if offload else {})}
    config = {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": GAS, "gradient_clipping": CLIP, "zero_optimization": zero,
              "optimizer": {"type": "AdamW", "params": {"lr": LR, "weight_decay": DECAY}}, **more}
    engine, *_ = outrigger.torch.initialize(model=model, config=config, comm=comm or outrigger.Comm.self_group(outrigger.Context()))
    return engine


def train(engine, steps=STEPS, first=0, late=False):
    """late: what the GPU computes comes long after the host has asked for it."""
    losses = []
    for number in range(GAS * first, GAS * (first + steps)):
        if late:
            torch.cuda._sleep(50_000_000)
        losses.append(loss_of(engine, number))
        engine.backward(losses[-1])
        engine.step()
    return [each.item() for each in losses]


def masters(engine):
    return [utils.safe_get_full_fp32_param(each) for each in engine.module.parameters()]


def used():
    """Bytes of the GPU that are taken, as its driver counts them."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free


@unittest.skipUnless(torch.cuda.is_available(), "needs a GPU")
class OnAGpu(unittest.TestCase):
    def setUp(self):
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True, warn_only=True)
        self.addCleanup(torch.use_deterministic_algorithms, before, warn_only=True)

    def make(self, *arguments, **options):
        engine = engine_of(*arguments, **options)
        self.addCleanup(engine.destroy)
        return engine

    def close(self, engine, expected, dtype):
        apart = torch.cat([(a - b.detach()).abs().flatten() for a, b in zip(masters(engine), expected, strict=True)])
        most, mean, *_ = BOUNDS[dtype]
        self.assertLessEqual(apart.max().item(), most)
        self.assertLessEqual(apart.mean().item(), mean)

    def same(self, one, other):
        for a, b in zip(masters(one), masters(other), strict=True):
            self.assertTrue(torch.equal(a.cpu(), b.cpu()))

    def test_follows_plain_pytorch(self):
        for dtype, scale, precision in ((torch.float32, 1, {}), (torch.bfloat16, 1, {"bf16": {"enabled": True}}),
                                        (torch.float16, 2**10, {"fp16": {"enabled": True, "initial_scale_power": 10}})):
            expected, expected_losses, norm = reference(dtype, scale)
            for stage, offload in itertools.product(range(4), (False, True)):
                if offload and stage == 0:
                    continue
                with self.subTest(dtype=dtype, stage=stage, offload=offload):
                    engine = engine_of(Gpt().to(DEVICE), stage, offload, **precision)
                    losses = train(engine)
                    self.close(engine, expected, dtype)
                    for a, b in zip(losses, expected_losses, strict=True):
                        self.assertAlmostEqual(a, b, delta=BOUNDS[dtype][2])
                    self.assertAlmostEqual(engine.get_global_grad_norm(), norm, delta=BOUNDS[dtype][3])
                    self.assertEqual((engine.device.type, engine.global_steps, engine.skipped_steps), (DEVICE, STEPS, 0))
                    self.assertTrue(all(each.device == engine.device and each.dtype == dtype for each in engine.module.parameters()))
                    engine.destroy()

    def test_another_stream_and_a_late_gpu(self):
        for offload in (False, True):
            one, other = self.make(Gpt().to(DEVICE), offload=offload), self.make(Gpt().to(DEVICE), offload=offload)
            stream, losses = torch.cuda.Stream(), []
            for step in range(STEPS):
                stream.wait_stream(torch.cuda.current_stream())
                if step % 2 == 0:
                    with torch.cuda.stream(stream):
                        losses += train(one, 1, step, late=True)
                else:
                    losses += train(one, 1, step, late=True)
                torch.cuda.current_stream().wait_stream(stream)
            self.assertEqual(losses, train(other))
            self.same(one, other)

    def test_an_update_comes_after_what_reads_the_old_weights(self):
        engine = self.make(Gpt().to(DEVICE))
        for step in range(2):
            losses = [loss_of(engine, GAS * step + micro) for micro in range(GAS)]
            for micro, loss in enumerate(losses):
                engine.backward(loss)
                if micro < GAS - 1:
                    engine.step()
            expected = [each.detach().clone() for each in engine.module.parameters()]
            stream = torch.cuda.Stream() if step else torch.cuda.current_stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(200_000_000)
                seen = [each.detach().clone() for each in engine.module.parameters()]
                engine.step()
            torch.cuda.synchronize()
            for a, b, c in zip(seen, expected, engine.module.parameters(), strict=True):
                self.assertTrue(torch.equal(a, b))
                self.assertFalse(torch.equal(a, c.detach()))

    def test_checkpointed_blocks(self):
        for precision in ({}, {"fp16": {"enabled": True, "initial_scale_power": 10}}):
            other = self.make(Gpt().to(DEVICE), **precision)
            expected = train(other)
            for reentrant in (False, True):
                one = self.make(Gpt(reentrant).to(DEVICE), 3, **precision)
                self.assertEqual(train(one), expected)
                self.same(one, other)

    def test_compiled(self):
        one, other = self.make(Gpt().to(DEVICE)), self.make(Gpt().to(DEVICE))
        one.compile(backend="aot_eager")
        for a, b in zip(train(one), train(other), strict=True):
            self.assertAlmostEqual(a, b, delta=1e-5)
        self.close(one, masters(other), torch.float32)

    def test_autocast(self):
        expected, losses, _ = reference(autocast=torch.bfloat16)
        engine = self.make(Gpt().to(DEVICE), torch_autocast={"enabled": True, "dtype": "bfloat16"})
        for a, b in zip(train(engine), losses, strict=True):
            self.assertAlmostEqual(a, b, delta=1e-3)
        self.close(engine, expected, torch.bfloat16)

    def test_gradients_are_seen_and_changed(self):
        engine, plain = self.make(Gpt().to(DEVICE)), Gpt().to(DEVICE)
        optimizer = torch.optim.AdamW(plain.parameters(), lr=LR, weight_decay=DECAY)
        for module in (engine, plain):
            for micro in range(GAS):
                if module is engine:
                    loss_of(engine, micro).backward()
                    if micro == 0:
                        engine.step()
                else:
                    (loss_of(plain, micro) / GAS).backward()
        for a, b in zip(engine.module.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)
        engine.module.places.grad = plain.places.grad = None
        for each in (*engine.module.parameters(), *plain.parameters()):
            if each.grad is not None:
                each.grad.mul_(0.25)
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), CLIP)
        optimizer.step()
        engine.step()
        self.assertAlmostEqual(engine.get_global_grad_norm(), norm.item(), delta=1e-5)
        self.close(engine, list(plain.parameters()), torch.float32)

    def test_checkpoints(self):
        with tempfile.TemporaryDirectory() as folder:
            whole, saved = self.make(Gpt().to(DEVICE)), self.make(Gpt().to(DEVICE))
            train(whole, 3)
            train(saved, 2)
            torch.cuda.manual_seed(5)
            saved.save_checkpoint(folder)
            drawn = torch.rand(4, device=DEVICE)
            again, here = self.make(Gpt().to(DEVICE), 3, offload=True), self.make(Gpt())
            for engine in (again, here):
                engine.load_checkpoint(folder)
                self.same(engine, saved)
                if engine is again:
                    self.assertTrue(torch.equal(torch.rand(4, device=DEVICE), drawn))
            self.assertEqual(here.device.type, "cpu")
            train(again, 1, 2)
            self.close(again, masters(whole), torch.float32)
            here.save_checkpoint(folder, tag="of_the_CPU")
            again.load_checkpoint(folder, tag="of_the_CPU")
            self.same(again, saved)

    def test_init_with_a_device(self):
        with outrigger.torch.zero.Init(device=DEVICE):
            model = Gpt()
        self.assertEqual(model.places.device.type, "cpu")
        one, other = self.make(model), self.make(Gpt().to(DEVICE))
        self.assertEqual(train(one), train(other))
        self.same(one, other)

    def test_memory(self):
        """What the driver has given, beside the ledger's sum of the device."""
        large = lambda: torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(4)))  # noqa: E731
        elements, taken = 4 * 2048 * 2048, {}
        warm = engine_of(torch.nn.Linear(64, 64).to(DEVICE))  # contexts, modules, BLAS's workspace
        for _ in range(GAS):
            warm.backward(warm(torch.randn(8, 64, device=DEVICE)).square().mean())
            warm.step()
        warm.destroy()
        del warm
        before = used()
        for offload in (False, True):
            engine = engine_of(large().to(DEVICE), offload=offload)
            for _ in range(GAS):
                engine.backward(engine(torch.randn(8, 2048, device=DEVICE)).square().mean())
                engine.step()
            taken[offload] = used() - before
            ledger = [resident for purpose, resident, _ in engine.memory() if purpose == "total"][1]
            print(f"offload {offload}: {taken[offload] / elements:.2f} bytes an element of the GPU, {ledger / elements:.2f} in the ledger")
            self.assertGreater(taken[offload], 0.95 * ledger)
            self.assertLess(taken[offload], ledger + (64 << 20))
            engine.destroy()
            del engine
            self.assertLess(used() - before, 64 << 20, "destroy leaves memory of the GPU behind")
        self.assertGreater(taken[False] - taken[True], 8 * elements, "the moments are on the GPU")

    def test_memory_of_pytorchs_cache(self):
        context, expected = outrigger.Context(), self.make(Gpt().to(DEVICE))
        outrigger.torch.share_caching_allocator(context)
        used()
        before = torch.cuda.memory_allocated()
        engine = engine_of(Gpt().to(DEVICE), comm=outrigger.Comm.self_group(context))
        ledger = [resident for purpose, resident, _ in engine.memory() if purpose == "total"][1]
        used()
        self.assertGreaterEqual(torch.cuda.memory_allocated() - before, ledger)
        self.assertEqual(train(engine, late=True), train(expected))
        self.same(engine, expected)
        engine.destroy()
        del engine
        used()
        self.assertLess(torch.cuda.memory_allocated() - before, 1 << 20)

    def test_states_leave_and_come_back(self):
        one, other = self.make(Gpt().to(DEVICE)), self.make(Gpt().to(DEVICE))
        train(one, 2)
        one.offload_states()
        self.assertRaisesRegex(RuntimeError, "reload_states first", loss_of, one, 0)
        taken = torch.full((1 << 20,), 7.0, device=DEVICE)
        one.reload_states()
        train(one, 2, 2)
        train(other)
        self.same(one, other)
        self.assertTrue((taken == 7).all())

    def test_a_graph_of_the_step_is_refused(self):
        engine = self.make(Gpt().to(DEVICE))
        train(engine, 1)
        graph = torch.cuda.CUDAGraph()
        with self.assertRaisesRegex(RuntimeError, "captured into a CUDA graph"), torch.cuda.graph(graph):
            engine.step()


if __name__ == "__main__":
    unittest.main()
