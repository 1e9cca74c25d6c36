# SPDX-License-Identifier: Apache-2.0
"""Random chains of engines on one or two ranks, driven through an adapter, against gradients by hand in float64.

Engines differ in loss scale, accumulation, divisor, stage and precision; between two of them gradients go with a tag or
without their factors. The rule is SGD, which no wrong factor leaves alone. A host is what an adapter's test gives:

    stages                    legal stages
    make(weights, config, comm)                    an engine over {"w", "b"}
    backward(engine, form, x, cotangents, tag)     one pass; cotangents: of y and, with a second output, of y.sum().
                                                   Returns (gradient of x as the pass left it, its tag, the same unscaled);
                                                   the first two None where the form does not give them
"""
import logging
import random
import threading

import numpy as np

import outrigger
from outrigger import lowlevel

LR, WIDTH, WINDOWS = 0.5, 3, 2
logging.getLogger("outrigger").setLevel(logging.ERROR)  # each engine says that autocast is the host's


def forward(weights, x):
    return np.tanh(x @ weights["w"] + weights["b"])


def pulled_back(weights, x, dy):
    """(gradients of the weights, gradient of x)."""
    y = forward(weights, x)
    dz = dy * (1 - y * y)
    return {"w": x.T @ dz, "b": dz.sum(0)}, dz @ weights["w"].T


class Member:
    """One engine of the chain."""

    def __init__(self, host, chance, comm):
        self.accumulation, self.counted = chance.randint(1, 3), chance.random() < 0.3
        self.by_caller = chance.random() < 0.3
        kind, scale = chance.choice(["float32", "autocast", "fp16"]), chance.choice([2**8, 2**16, 24])
        config = {"optimizer": {"type": "SGD", "params": {"lr": LR}}, "gradient_clipping": 0,
                  "gradient_accumulation_steps": self.accumulation,
                  "zero_optimization": {"stage": chance.choice(host.stages)},
                  "outrigger": {"accumulation_divisor": "counted" if self.counted else "configured",
                                "reduction_order": chance.choice(["micro_step", "boundary"])}}
        if kind == "autocast":
            config |= {"torch_autocast": {"enabled": True, "dtype": "fp16"}, "fp16": {"loss_scale": scale}}
        if kind == "fp16":
            config |= {"fp16": {"enabled": True, "loss_scale": scale}, "data_types": {"grad_accum_dtype": "fp32"}}
        self.rounding = 0.02 if kind == "fp16" else 3e-6
        numbers = np.random.default_rng(chance.randrange(2**32))
        weights = {"w": numbers.uniform(-0.5, 0.5, (WIDTH, WIDTH)), "b": numbers.uniform(-0.5, 0.5, WIDTH)}
        self.engine = host.make({name: value.astype(np.float32) for name, value in weights.items()}, config, comm)
        self.ids = {"b": 0, "w": 1}  # in the order of names
        self.refresh()

    def refresh(self):
        self.weights = {name: self.engine.library.read(id).astype(np.float64) for name, id in self.ids.items()}

    def begin_window(self, chance):
        self.steps = chance.randint(1, 3) if self.by_caller else self.accumulation
        self.sums = {name: np.zeros_like(value) for name, value in self.weights.items()}
        self.sizes = dict.fromkeys(self.weights, 0.0)

    def set_boundary(self, last):
        if self.by_caller:
            self.engine.library.set_boundary(lowlevel.BOUNDARY_YES if last else lowlevel.BOUNDARY_NO)


class Rank:
    """What one rank does. meet: waits for the others; board: what they tell each other beside the library."""

    def __init__(self, host, seed, comm, board, meet):
        self.host, self.comm, self.board, self.meet = host, comm, board, meet
        self.chance, self.data = random.Random(seed), np.random.default_rng([seed, comm.rank])
        self.members = [Member(host, self.chance, comm) for _ in range(self.chance.randint(1, 3))]

    def windows(self):
        for _ in range(WINDOWS):
            for member in self.members:
                member.begin_window(self.chance)
            batches = max(member.steps for member in self.members) + self.chance.randint(0, 1)
            cuts = [set(self.chance.sample(range(batches - 1), member.steps - 1)) for member in self.members]
            for batch in range(batches):
                self.micro_batch()
                for member, steps_after in zip(self.members, cuts, strict=True):
                    if batch in steps_after:
                        member.set_boundary(last=False)
                        assert member.engine.step().outcome == lowlevel.STEP_ACCUMULATED
            self.step()

    def micro_batch(self):
        x = self.data.uniform(-1, 1, (self.chance.randint(1, 2), WIDTH))
        inputs = []
        for member in self.members:
            inputs.append(x)
            x = forward(member.weights, x)
        # (what the pass gets, what it is without any factor, relative rounding, tag and what its passes took care of)
        above = []
        for index in reversed(range(len(self.members))):
            if index + 1 == len(self.members) or self.chance.random() < 0.25:  # a loss of this engine's output
                above += [self.loss(x.shape) for _ in range(self.chance.randint(1, 2))]
            above = [self.one_pass(self.members[index], inputs[index], *each) for each in above]

    def loss(self, shape):
        dy, total = self.data.uniform(-1, 1, shape) / 32, None
        if self.chance.random() < 0.3:
            total = self.data.uniform(-1, 1) / 32
        return [dy] if total is None else [dy, np.float64(total)], dy + (total or 0), 0.0, None, 0

    def one_pass(self, member, x, cotangents, exact, rounding, tag, divided):
        if tag is not None and divided and member.counted:  # its step would divide again
            try:
                self.host.backward(member.engine, "refused", x, cotangents, tag)
                raise AssertionError("a tag that was divided already was taken")
            except outrigger.OutriggerError as error:
                assert error.code == lowlevel.E_STATE, error
            cotangents, tag, divided = [exact], None, 0
        if tag is None:
            divided = 0 if member.counted else member.accumulation
        elif not divided and not member.counted:
            divided = member.accumulation
        rounding = max(rounding, member.rounding)
        form = self.chance.choice(self.host.forms)
        left, left_tag, unscaled = self.host.backward(member.engine, form, x, cotangents, tag)
        grads, dx = pulled_back(member.weights, x, exact)
        for name, grad in grads.items():
            share = 1 / (divided or member.steps) / self.comm.size
            member.sums[name] += grad * share
            member.sizes[name] += np.abs(grad).max() * share * rounding
        near(unscaled, dx, 2 * rounding * np.abs(dx).max(), "an input's gradient")
        if self.chance.random() < 0.5 and left_tag is not None:
            return [left], dx, rounding, left_tag, divided
        return [unscaled], dx, rounding, None, 0

    def step(self):
        self.board[self.comm.rank] = [(member.sums, member.sizes) for member in self.members]
        self.meet()
        means = [[{name: sum(rank[index][part][name] for rank in self.board.values()) for name in member.weights} for part in (0, 1)]
                 for index, member in enumerate(self.members)]
        self.meet()
        together = self.chance.random() < 0.3
        for member in self.members:
            member.set_boundary(last=True)
        if together:
            self.host.step_many([member.engine for member in self.members])
        for member, (mean, size) in zip(self.members, means, strict=True):
            before = member.weights
            if not together:
                if self.chance.random() < 0.5:
                    member.engine.library.reduce()
                    for name, id in member.ids.items():
                        near(member.engine.library.read(id, lowlevel.VALUE_GRAD), mean[name], 4 * size[name], "a gradient")
                assert member.engine.step().outcome == lowlevel.STEP_APPLIED
            member.refresh()
            for name, value in member.weights.items():
                near(value, before[name] - LR * mean[name], 4 * LR * size[name] + 2e-7, "a weight")


def near(got, expected, bound, what):
    np.testing.assert_allclose(np.asarray(got, np.float64), expected, rtol=0, atol=bound, err_msg=what)


def run(host, seed):
    """One chain. AssertionError: a gradient or a weight is another one."""
    world, board, failures = 1 + seed % 2, {}, []
    barrier = threading.Barrier(world, timeout=60)

    def body(comm):
        try:
            Rank(host, seed, comm, board, barrier.wait).windows()
        except BaseException as failure:  # of any kind: the other rank must not wait
            failures.append(failure)
            barrier.abort()
            comm.abort("this rank failed")

    context = outrigger.Context(workers=1)
    threads = [threading.Thread(target=body, args=(comm,)) for comm in outrigger.Comm.threads(context, world, timeout=60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in sorted(failures, key=lambda each: not isinstance(each, AssertionError)):
        raise AssertionError(f"chain {seed}: {failure}") from failure


def seeds(argv, count):
    """The fixed list, or as many as the command line says; takes the number out of it."""
    return range(int(argv.pop()) if len(argv) > 1 and argv[-1].isdigit() else count)
