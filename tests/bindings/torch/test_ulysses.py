# SPDX-License-Identifier: Apache-2.0
"""Ulysses sequence parallelism by value: attention over sequences that ranks share, beside the same on all of them in one place. Results, gradients
and their gradients in float64; a model that is trained; parts and heads of different numbers.

    outrigger run -n 3 -- python test_ulysses.py
"""
import copy
import sys
import unittest

import torch
import torch.nn.functional as F

import outrigger.torch
from outrigger import Message
from outrigger.process import process_comm
from outrigger.torch import UlyssesAttention
from outrigger.torch.ulysses import heads_to_sequence, sequence_to_heads

COMM = process_comm()
RANK, RANKS = COMM.rank, COMM.size


def attention(q, k, v, causal=True):
    """[batch, sequence, heads, width]"""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]).transpose(1, 2)


def by_hand(q, k, v):
    """The same, differentiable twice, not causal."""
    return torch.einsum("bhqk,bkhw->bqhw", torch.softmax(torch.einsum("bqhw,bkhw->bhqk", q, k), -1), v)


def drawn(seed, *shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def parts(total):
    """Ranks have different ones, the last one none of them if it is short."""
    lengths = [total // RANKS + (3 if rank == 0 else 0) for rank in range(RANKS)]
    lengths[-1] -= sum(lengths) - total
    return lengths


def mine(x, lengths, dim=1):
    return x.split(lengths, dim)[RANK]


class Ulysses(unittest.TestCase):
    def compare(self, heads, key_heads, lengths, causal=True):
        total = sum(lengths)
        whole = [drawn(seed, 2, total, count, 5).requires_grad_() for seed, count in enumerate((heads, key_heads, key_heads))]
        weight = drawn(9, 2, total, heads, 5)
        expected = attention(*whole, causal=causal)
        expected_grads = torch.autograd.grad((expected**2 * weight).sum(), whole)
        local = [mine(x.detach(), lengths).clone().requires_grad_() for x in whole]
        result = UlyssesAttention(attention, COMM)(*local, causal=causal)
        torch.testing.assert_close(result, mine(expected, lengths))
        grads = torch.autograd.grad((result**2 * mine(weight, lengths)).sum(), local)
        for grad, right in zip(grads, expected_grads):
            torch.testing.assert_close(grad, mine(right, lengths))

    def test_results_and_gradients_are_those_of_the_whole(self):
        for heads in (RANKS, 2 * RANKS, 2 * RANKS + 1):
            for lengths in ([4] * RANKS, parts(6 * RANKS + 1)):
                with self.subTest(heads=heads, lengths=lengths):
                    self.compare(heads, heads, lengths)
        self.compare(4 * RANKS, 2 * RANKS, parts(7 * RANKS))  # fewer heads of keys and values
        self.compare(RANKS, RANKS, [5] * RANKS, causal=False)

    def test_other_lengths_of_keys(self):
        queries, keys = parts(5 * RANKS), parts(8 * RANKS)
        q, k, v = drawn(1, 1, sum(queries), RANKS, 4), drawn(2, 1, sum(keys), RANKS, 4), drawn(3, 1, sum(keys), RANKS, 4)
        result = UlyssesAttention(attention, COMM)(mine(q, queries), mine(k, keys), mine(v, keys), causal=False)
        torch.testing.assert_close(result, mine(attention(q, k, v, causal=False), queries))

    def test_a_rank_without_a_part(self):
        lengths = [0] * (RANKS - 1) + [6]
        self.compare(RANKS, RANKS, lengths)

    def test_other_layouts_and_dtypes(self):
        lengths = parts(4 * RANKS)
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            x = drawn(4, sum(lengths), 2 * RANKS, 3, dtype=dtype)
            there = sequence_to_heads(mine(x, lengths, 0), COMM, lengths, 0, 1)
            torch.testing.assert_close(there, x.split(Message.share(2 * RANKS, RANKS), 1)[RANK], rtol=0, atol=0)
            torch.testing.assert_close(heads_to_sequence(there, COMM, lengths, 2 * RANKS, 0, 1), mine(x, lengths, 0), rtol=0, atol=0)

    def test_second_derivatives(self):
        lengths = parts(4 * RANKS)
        whole = drawn(5, 1, sum(lengths), RANKS, 3).requires_grad_()

        def penalty(x, run):
            grad, = torch.autograd.grad((run(x)**3).sum(), x, create_graph=True)
            return (grad**2).sum()
        right, = torch.autograd.grad(penalty(whole, lambda x: by_hand(x, x, x)), whole)
        local = mine(whole.detach(), lengths).clone().requires_grad_()
        module = UlyssesAttention(by_hand, COMM)
        grad, = torch.autograd.grad(penalty(local, lambda x: module(x, x, x)), local)
        torch.testing.assert_close(grad, mine(right, lengths))

    def test_a_model_trains_as_on_the_whole_sequence(self):
        lengths = parts(6 * RANKS)
        total, heads = sum(lengths), 2 * RANKS

        class Model(torch.nn.Module):
            def __init__(self, run):
                super().__init__()
                torch.manual_seed(3)
                self.into, self.out, self.run = torch.nn.Linear(8, 3 * heads * 4), torch.nn.Linear(heads * 4, 8), run

            def forward(self, x):
                q, k, v = self.into(x).view(*x.shape[:2], 3, heads, 4).unbind(2)
                return self.out(self.run(q, k, v).reshape(*x.shape[:2], -1))

        plain = Model(attention)
        rule = torch.optim.SGD(plain.parameters(), lr=0.3)
        ours = Model(UlyssesAttention(attention, COMM))
        config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, "gradient_clipping": 0,
                  "optimizer": {"type": "SGD", "params": {"lr": 0.3}}}
        engine = outrigger.torch.initialize(model=ours, config=config, comm=COMM)[0]
        for step in range(4):
            x, target = drawn(10 + step, 2, total, 8, dtype=torch.float32), drawn(20 + step, 2, total, 8, dtype=torch.float32)
            loss = F.mse_loss(plain(x), target)
            rule.zero_grad()
            loss.backward()
            rule.step()
            error = engine(mine(x, lengths)) - mine(target, lengths)
            # The mean over ranks of these is the mean over the sequence.
            (error.square().sum() * RANKS / target.numel()).backward()
            engine.step()
        for (name, right), value in zip(plain.named_parameters(), ours.parameters()):
            torch.testing.assert_close(value.detach(), right.detach(), rtol=2e-5, atol=2e-6, msg=name)

    def test_compiled_and_copied(self):
        lengths = parts(4 * RANKS)
        x = drawn(6, 1, sum(lengths), RANKS, 4, dtype=torch.float32)
        right = mine(attention(x, x, x), lengths)
        local = mine(x, lengths)
        module = UlyssesAttention(attention, COMM)
        torch.testing.assert_close(torch.compile(module, backend="aot_eager")(local, local, local), right)
        torch.testing.assert_close(copy.deepcopy(module).eval()(local, local, local), right)

    def test_wrong_use_has_an_error(self):
        module = UlyssesAttention(attention, COMM)
        x = torch.zeros(1, 2, RANKS, 4)
        if RANKS > 1:
            other = torch.zeros(1 + RANK, 2, RANKS, 4)
            with self.assertRaisesRegex(ValueError, "ranks 0 and 1 have tensors of different"):
                module(other, other, other)
        with self.assertRaisesRegex(ValueError, "keys and values have different lengths"):
            module(x, x, x[:, :1])
        if RANKS > 1:
            with self.assertRaisesRegex(ValueError, f"1 heads on {RANKS} ranks"):
                module(x, x[:, :, :1], x[:, :, :1])
            more = torch.zeros(1, 2, 2 * RANKS + 1, 4)
            with self.assertRaisesRegex(ValueError, "divisible by the ranks"):
                module(more, x, x)
        with self.assertRaisesRegex(ValueError, "two different ones"):
            sequence_to_heads(x, COMM, [2] * RANKS, 1, 1)
        with self.assertRaisesRegex(ValueError, "lengths = "):
            sequence_to_heads(x, COMM, [3] * RANKS)
        with self.assertRaisesRegex(ValueError, "heads in all make"):
            heads_to_sequence(torch.zeros(1, 2 * RANKS, 3, 4), COMM, [2] * RANKS, RANKS)
        with self.assertRaisesRegex(ValueError, "part_bytes has 0 numbers"):
            COMM.all_to_all(b"", [], bytearray(), [])
        with self.assertRaisesRegex(ValueError, "bytes together, and the buffer has 3"):
            COMM.all_to_all(b"abc", [0] * RANKS, bytearray(), [0] * RANKS)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
