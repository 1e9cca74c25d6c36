# SPDX-License-Identifier: Apache-2.0
"""The scenario (tests/bindings/scenario/README.md) in Python, with NumPy as the framework.

    python scenario.py CONFIG.json OUTPUT      writes OUTPUT.<rank>
"""
import struct
import sys

import numpy as np
import outrigger
from outrigger import lowlevel

EMBED, BIAS, EMPTY, FROZEN, HEAD, SCALE, WIDE, UNUSED = range(8)
PARAMETERS = [("embed.weight", (5, 3)), ("linear.bias", (7,)), ("norm.empty", (0, 4)), ("frozen.table", (2, 3)),
              ("head.weight", (5, 3)), ("scale", ()), ("wide.weight", (3, 101)), ("unused.gain", (4,))]
OPTIONS = {BIAS: {"contributions": 2}, FROZEN: {"trainable": 0}, HEAD: {"alias_of": EMBED}}


class Writer:
    """Numbers as their exact bit patterns."""

    def __init__(self, path):
        self.file = open(path, "w", newline="\n")

    def line(self, *words):
        print(*words, file=self.file)

    def tensor(self, *words, array):
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        bits = array.view(np.uint16 if array.itemsize == 2 else np.uint32).ravel()
        self.line(*words, shape(array.shape), *(f"{b:0{2 * array.itemsize}x}" for b in bits))

    def report(self, *words, report):
        for name in ("outcome", "reason", "nonfinite_rank", "nonfinite_param", "nonfinite_count", "micro_steps",
                     "applied_steps", "skipped_steps"):
            words += name, getattr(report, name)
        for name in ("grad_norm", "clip_coefficient", "loss_scale", "lr"):
            words += name, double(getattr(report, name))
        self.line(*words, "updates", report.updates, "vanished", report.vanished)


def double(value):
    return struct.pack(">d", value).hex()


def shape(extents):
    return "[" + ",".join(map(str, extents)) + "]"


def arange(extents):
    return np.arange(np.prod(extents, dtype=int)).reshape(extents)


def collectives(comm, out):
    sums = np.array([comm.rank + 0.5, 2.0])
    comm.all_reduce_sum(sums)
    out.line("all_reduce", *map(double, sums))
    out.line("all_gather", *comm.all_gather(bytes([10 + comm.rank])))
    token = np.array([1.0 if comm.rank == comm.size - 1 else 0.0], np.float32)
    comm.broadcast(token, root=comm.size - 1)
    comm.barrier()
    out.line("broadcast", f"{token.view(np.uint32)[0]:08x}")


def add_parameters(engine, rank, out):
    for d, (name, extents) in enumerate(PARAMETERS):
        initial = (((7 * arange(extents) + 3 * d) % 33 - 16) / 16 + rank).astype(np.float32)
        id = engine.add_parameter(name, None if d == HEAD else initial, **OPTIONS.get(d, {}))
        out.line("parameter", id, name, shape(engine.parameter_shape(id)))


def print_acquired(engine, out, float32=False):
    engine.prefetch([EMBED, WIDE], float32)
    with engine.acquire([EMBED, WIDE], float32) as weights:
        for id, weight in zip([EMBED, WIDE], weights):
            out.tensor("acquired", id, array=weight)


def add_by_slot(p, id, gradient):
    slot = p.slot(id)
    slot[...] = gradient
    p.add_grad(id, slot)


def backward(p, number, rank, world):
    """The toy model's backward: parameter gradients from the scaled gradients of the outputs."""
    dy0, dy1, dl = (p.output_grad(i) for i in range(3))
    row, column = np.indices((4, 5))
    x = (((row + 2 * column) % 5 - 2) / 2).astype(np.float32)
    add_by_slot(p, EMBED, x.T @ dy0 + np.float32(0))  # no -0.0
    p.add_grad(HEAD, dl * dy0[np.arange(5) % 4])
    if rank == 0 or number % 2 == 0:
        add_by_slot(p, BIAS, dy1[0])
        p.add_grad(BIAS, dy1[1])
    if number % 2 == 0:
        p.add_grad(EMPTY, np.zeros((0, 4), np.float32))
    p.add_grad(SCALE, dy0.sum() + dl)
    wide = dl * dy0.T[:, np.arange(101) % 4]
    if number == 3 and rank == world - 1:
        wide[1, 7] = np.inf
    add_by_slot(p, WIDE, wide) if number % 2 == 0 else p.add_grad(WIDE, wide)


def run_pass(engine, number, rank, world, out):
    y0 = (((arange((4, 3)) + rank + number) % 8 - 3) / 4).astype(np.float32)
    y1 = ((3 * arange((2, 7)) + 2 * rank + number) % 8 - 4) / 4
    loss = np.float32(1)
    with engine.begin_pass([y0, y1, loss]) as p:
        out.line("pass", number, "scale", double(p.scale))
        for i in range(3):
            out.tensor("pass", number, "output", i, array=p.output_grad(i))
        backward(p, number, rank, world)
    if number % 2 == 0:
        report = engine.step()
    else:
        engine.step_begin()
        report = engine.report()
    out.report("step", number, report=report)
    if report.reason == lowlevel.SKIP_NONFINITE:
        out.line("skipped for", engine.parameter_name(report.nonfinite_param), "of rank", report.nonfinite_rank)


def wrong_calls(engine, out):
    def attempt(call, *arguments):
        try:
            call(*arguments)
            out.line("no error")
        except outrigger.OutriggerError as error:
            out.line("error", error.name, error.text)

    value = np.zeros((5, 3), np.float32)
    attempt(engine.parameter_id, "embed.wieght")
    attempt(engine.add_parameter, "late", value)
    attempt(engine.set_group_value, "lr", -1.0)
    p = engine.begin_pass()
    attempt(p.add_grad, WIDE, value)
    p.close()  # nothing was added: no trace


def print_values(engine, out):
    for d in range(len(PARAMETERS)):
        for value, name in enumerate(("master", "published", "exp_avg", "exp_avg_sq")):
            try:
                out.tensor("value", d, name, array=engine.read(d, value))
            except outrigger.OutriggerError as error:
                if error.code != lowlevel.E_NOT_FOUND:
                    raise
                out.line("value", d, name, "none")


AUTOCAST = {"torch_autocast": {"enabled": True, "dtype": "fp16"}, "gradient_clipping": 1}
CHAIN = {"front": {**AUTOCAST, "fp16": {"loss_scale": 4}, "optimizer": {"type": "AdamW", "params": {"lr": 0.25}}},
         "back": {**AUTOCAST, "fp16": {"loss_scale": 64}, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}},
                  "zero_optimization": {"stage": 2}}}


def make_engine(comm, config, name):
    engine = outrigger.Engine(comm, config)
    engine.add_parameter(name, shape=(2, 2))
    engine.commit()
    engine.set_initial([0], [np.array([[0.5, -1], [1, 0.25]], np.float32)])
    return engine


def end(engine, out, *words):
    for value in range(4):
        out.tensor(*words, "value", value, array=engine.read(0, value))
    engine.finalize()
    engine.close()


def chain(comm, out):
    """Two engines: h = front(x), y = back(h)."""
    engines = {}
    for name, config in CHAIN.items():
        engines[name] = make_engine(comm, config, name)
    for window in range(2):
        dy = np.array([[1, -0.5], [0.25, 2]], np.float32)
        if window == 1 and comm.rank == comm.size - 1:
            dy[1, 0] = np.inf
        with engines["back"].begin_pass([dy]) as back:
            at_back = back.output_grad()
            out.tensor("chain back scaled", array=at_back)
            dh = 2 * at_back[::-1]  # the gradient of the input
            out.tensor("chain input gradient", array=back.unscale(dh))
            tag = back.tag
            out.line("chain tag", double(tag.loss_scale), tag.accumulation, tag.ranks)
            with engines["front"].begin_pass([dh], tag) as front:
                at_front = front.output_grad()
                out.tensor("chain front scaled", array=at_front)
                front.add_grad(0, at_front)
            back.add_grad(0, at_back)
        for name, report in zip(engines, outrigger.step_many(engines.values())):
            out.report("chain", name, "step", report=report)
    for name, engine in engines.items():
        end(engine, out, "chain", name)


def step_alone(engine, window, rank, out, name):
    """With a gradient that differs between windows and ranks."""
    with engine.begin_pass() as alone:
        alone.add_grad(0, np.array([[1, -0.5], [0.25, 2]], np.float32) * (window + 1) * (2 * rank + 1))
    out.report(name, "step", window, report=engine.step())


def save_and_load(comm, directory, out):
    """A training that is saved, and goes on at another stage and without offload."""
    kept = {"gradient_clipping": 0, "optimizer": {"type": "AdamW", "params": {"lr": 0.125}}}
    engine = make_engine(comm, {**kept, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}, "w")
    for window in range(2):
        step_alone(engine, window, comm.rank, out, "saved")
    engine.save(directory, "two")
    step_alone(engine, 2, comm.rank, out, "saved")
    end(engine, out, "saved")
    engine = make_engine(comm, {**kept, "zero_optimization": {"stage": 3}}, "w")
    engine.load(directory, "two")
    step_alone(engine, 2, comm.rank, out, "loaded")
    end(engine, out, "loaded")


def shard_alone(context, out):
    weights = np.arange(-2, 3, dtype=np.float32) / 4
    grads = np.arange(3, -2, -1, dtype=np.float32) / 8
    published = np.empty(5, np.uint16)  # bfloat16
    shard = outrigger.Shard(context, weights, grads, published=published)
    optimizer = outrigger.Optimizer(context, {"type": "AdamW", "params": {"lr": 0.5}})
    optimizer.set_value("lr", 0.25)
    out.report("shard step", report=optimizer.step([shard]))
    out.tensor("shard weights", array=weights)
    out.tensor("shard published", array=published)
    for value in (lowlevel.VALUE_EXP_AVG, lowlevel.VALUE_EXP_AVG_SQ):
        out.tensor("shard state", value, array=shard.state(value))
    out.line("shard state_bytes", shard.state_bytes)


def main(config, path):
    context = outrigger.Context()
    comm = outrigger.Comm.from_env(context)
    out = Writer(f"{path}.{comm.rank}")
    out.line("rank", comm.rank, "of", comm.size)
    collectives(comm, out)
    with open(config) as file, outrigger.Engine(comm, file.read()) as engine:
        add_parameters(engine, comm.rank, out)
        engine.commit()
        print_acquired(engine, out)
        for number in range(6):  # three windows of two passes
            if number == 4:
                engine.set_group_value("lr", 0.03125)
            run_pass(engine, number, comm.rank, comm.size, out)
        wrong_calls(engine, out)
        print_values(engine, out)
        print_acquired(engine, out)
        print_acquired(engine, out, float32=True)
        for purpose, resident, _ in engine.memory:
            out.line("memory", resident, purpose)
        out.line("live_children", engine.live_children)
    chain(comm, out)
    save_and_load(comm, f"{path}.saved", out)
    shard_alone(context, out)
    out.line("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
