# SPDX-License-Identifier: Apache-2.0
"""Two engines of different ranks under one loss: the gradient between them comes with its tag, one step is that of both, and the parameters are those of
plain PyTorch in one process. On one rank that rank has both engines; else the last one has the head, and the others have the encoder.

    outrigger run -n 3 -- python test_joint.py
"""
import copy
import math
import sys
import unittest

import torch
from models import PRECISIONS, SGD, engine_of, moved_otherwise, net, sgd

import outrigger.torch
from outrigger import Message, lowlevel
from outrigger.process import process_comm

COMM = process_comm()
TOGETHER = COMM.size == 1
ENCODERS = max(1, COMM.size - 1)
IS_HEAD, IS_ENCODER = COMM.rank == COMM.size - 1, COMM.rank < ENCODERS
ROWS, STEPS, MICROS, CLIP = 12, 2, 2, 0.15
GROUP = None if TOGETHER else COMM.split(int(IS_HEAD), COMM.rank)


def start():
    return net(1), net(2, inputs=4)


def batch(step, micro):
    generator = torch.Generator().manual_seed(10 * step + micro)
    return torch.randn(ROWS, 6, generator=generator), torch.randn(ROWS, 4, generator=generator)


def reference():
    """Plain PyTorch, in one place."""
    models = start()
    both = torch.nn.ModuleList(models)
    optimizer = sgd(both)
    for step in range(STEPS):
        for micro in range(MICROS):
            x, target = batch(step, micro)
            (torch.nn.functional.mse_loss(models[1](models[0](x)), target) / MICROS).backward()
        norm = torch.nn.utils.clip_grad_norm_(both.parameters(), CLIP)
        assert norm > 1.3 * CLIP, norm
        optimizer.step()
        optimizer.zero_grad()
    return models, norm.item()


def told(root, tensors, tag=None):
    """A message of rank root's to all."""
    packed = Message.pack(tensors, tag=tag) if COMM.rank == root else b""
    size = bytearray(len(packed).to_bytes(8, "little"))
    COMM.broadcast(size, root)
    buffer = bytearray(packed) if COMM.rank == root else bytearray(int.from_bytes(size, "little"))
    COMM.broadcast(buffer, root)
    return Message(buffer)


class Joint(unittest.TestCase):
    def engines(self, head_precision="float32", **options):
        made = [None, None]
        options = {"stage": 1, "gas": MICROS, "clip": CLIP, "optimizer": SGD, **options}
        for index, (model, is_mine) in enumerate(zip(start(), (IS_ENCODER, IS_HEAD))):
            if is_mine:
                made[index] = engine_of(model, comm=GROUP, **options, **(PRECISIONS[head_precision] if index else {}))
        return made

    def micro_batch(self, encoder, head, step, micro, scale=1.0, change=lambda tag: tag):
        """scale: a factor of the gradient between them."""
        rows, (x, target) = ROWS // ENCODERS, batch(step, micro)
        if encoder:
            hidden = encoder(x[rows * encoder.global_rank:][:rows])
        parts = [told(rank, {"hidden": hidden.detach()} if COMM.rank == rank else {})["hidden"] for rank in range(ENCODERS)]
        if head:
            received = torch.cat([torch.tensor(part) for part in parts]).requires_grad_()
            head.backward(torch.nn.functional.mse_loss(head(received.to(head.compute_dtype)).float(), target))
            tag = head.tag
            tag.loss_scale = scale
        message = told(COMM.size - 1, {"grad": received.grad * scale} if head else {}, tag if head else None)
        if encoder:
            part = torch.tensor(message["grad"])[rows * encoder.global_rank:][:rows]
            encoder.backward(hidden, part, tag=change(message.tag))

    def train(self, encoder, head, **options):
        mine = [each for each in (encoder, head) if each]
        for step in range(STEPS):
            for micro in range(MICROS):
                self.micro_batch(encoder, head, step, micro, **options)
                if micro < MICROS - 1:
                    for each in mine:
                        each.step()
            outrigger.torch.step_many(mine, None if TOGETHER else COMM)
        return mine

    def differ(self, engines):
        (encoder, head), _ = reference()
        found = [moved_otherwise(begin, end, engine, "float32") for begin, end, engine in zip(start(), (encoder, head), engines) if engine]
        answers = COMM.all_gather(bytes([any(found)]))
        return found, any(answers)

    def test_is_plain_pytorch(self):
        for scale in (1.0, 1000.0):
            with self.subTest(scale=scale):
                engines = self.engines()
                mine = self.train(*engines, scale=scale)
                found, differ = self.differ(engines)
                self.assertFalse(differ, found)
                self.assertEqual([each.global_steps for each in mine], [STEPS] * len(mine))
                self.assertTrue(math.isclose(mine[0].get_global_grad_norm(), reference()[1], rel_tol=1e-5))

    def test_a_wrong_tag_is_seen(self):
        def other(**values):
            def change(tag):
                for name, value in values.items():
                    setattr(tag, name, value)
                return tag
            return change
        for change in (other(ranks=3 * ENCODERS), other(loss_scale=2.0), other(accumulation=MICROS), lambda tag: None):
            engines = self.engines()
            self.train(*engines, scale=4.0, change=change)
            self.assertTrue(self.differ(engines)[1])

    def test_a_gradient_that_was_divided(self):
        engines = self.engines()

        def divided(tag):
            tag.accumulation, tag.loss_scale = MICROS, tag.loss_scale / MICROS  # the factor of 1 / MICROS that `scale` has
            return tag
        self.train(*engines, scale=1.0, change=divided)
        found, differ = self.differ(engines)
        self.assertTrue(differ)  # the factor is not in the gradient, only in the tag
        engines = self.engines()

        def honest(tag):
            tag.accumulation, tag.loss_scale = MICROS, 1.0
            return tag
        self.train(*engines, scale=1 / MICROS, change=honest)
        found, differ = self.differ(engines)
        self.assertFalse(differ, found)

    def test_all_or_none(self):
        """The head's float16 overflows: the encoder is skipped, too, and both go on."""
        engines = self.engines("fp16", gas=1)
        mine = [each for each in engines if each]
        before = [each.module.a.weight.detach().clone() for each in mine]
        self.micro_batch(*engines, step=0, micro=0)
        if engines[1]:
            engines[1].backward(engines[1](torch.full((1, 4), 1e4).half()).float().sum() * 1e30)
        outrigger.torch.step_many(mine, None if TOGETHER else COMM)
        for weight, each in zip(before, mine):
            self.assertTrue(torch.equal(weight, each.module.a.weight))
            self.assertEqual(each.skipped_steps, 1)
        if engines[0]:
            self.assertEqual(engines[0].report.reason, lowlevel.SKIP_JOINT)
        self.micro_batch(*engines, step=0, micro=1)
        outrigger.torch.step_many(mine, None if TOGETHER else COMM)
        for weight, each in zip(before, mine):
            self.assertFalse(torch.equal(weight, each.module.a.weight))
            self.assertEqual((each.global_steps, each.skipped_steps), (2, 1))

    def test_a_scale_of_zero_is_no_tag(self):
        weights = []
        for changes in ({}, {"loss_scale": 0.0, "ranks": 7, "accumulation": 3}):
            engine = engine_of(net(1), gas=1, optimizer=SGD)
            tag = engine.tag
            for name, value in changes.items():
                setattr(tag, name, value)
            engine.backward(engine(torch.ones(2, 6)), torch.full((2, 4), 0.5), tag=tag if changes else None)
            engine.step()
            weights.append(engine.module.a.weight.detach().clone())
        self.assertTrue(torch.equal(*weights))
        self.assertFalse(torch.equal(weights[0], net(1).a.weight))

    def test_wrong_use(self):
        solo = engine_of(net(), gas=2)
        with self.assertRaisesRegex(RuntimeError, "ends no accumulation window"):
            outrigger.torch.step_many([solo])
        with self.assertRaisesRegex(ValueError, "there is no gradient="):
            solo.backward(solo(torch.ones(1, 6)).sum(), tag=solo.tag)
        model = copy.deepcopy(net())
        hosts, *_ = outrigger.torch.initialize(model=model, optimizer=torch.optim.RMSprop(model.parameters()), comm=solo._comm,
                                               config={"train_micro_batch_size_per_gpu": 8})
        with self.assertRaisesRegex(NotImplementedError, "optimizer of PyTorch"):
            outrigger.torch.step_many([hosts])


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(argv=[sys.argv[0], "-v"] if COMM.rank == 0 else [sys.argv[0]])
