# SPDX-License-Identifier: Apache-2.0
"""Compares the texts that the C scenario wrote with the NumPy model.

    python3 check_scenario.py WORK_FOLDER

Exact: everything but what AdamW's rounding touches. The bounds on that:
  norm and clip coefficient   1e-14, relative
  float32 values              2^-21 of the larger of the value and 2^-6 (weights), of the value (second moment), of
                              the sizes of its terms (first moment, which may cancel): two steps of a few roundings
  bfloat16 values             one unit in the last place: a float32 difference may fall on either side of a tie
"""
import pathlib
import struct
import sys

import model
import numpy as np
from run_scenario import CONFIGS, WORLDS, prefix

VALUES = ("master", "published", "exp_avg", "exp_avg_sq")
ERRORS = [("OTR_E_NOT_FOUND", "embed.weight"), ("OTR_E_STATE", "commit"), ("OTR_E_ARGUMENT", "lr"),
          ("OTR_E_SHAPE", "wide.weight")]


class Text:
    """The lines of one rank's output, taken in order."""

    def __init__(self, path):
        self.name, self.lines, self.at = path.name, path.read_text().split("\n"), 0
        self.checks, self.worst = 0, {}

    def take(self, *start):
        """The words after `start`, with which the next line must begin."""
        words = self.lines[self.at].split(" ")
        self.at += 1
        start = [str(word) for word in start]
        assert words[: len(start)] == start, self.said(f"expected {' '.join(start)}")
        return words[len(start):]

    def said(self, problem):
        return f"{self.name}:{self.at}: {problem}\n  {self.lines[self.at - 1][:400]}"

    def equal(self, got, expected):
        self.checks += 1
        assert got == expected, self.said(f"expected {expected}, got {got}")

    def close(self, kind, got, expected, bound):
        """Element by element within an absolute bound."""
        got, expected, bound = np.asarray(got), np.asarray(expected), np.asarray(bound)
        self.equal(got.shape, expected.shape)
        self.checks += got.size
        share = np.max(np.abs(got - expected) / bound, initial=0)
        self.worst[kind] = max(self.worst.get(kind, 0.0), float(share))
        assert share <= 1, self.said(f"{kind} is off by {share:.3g} times the bound; expected {expected}")

    def tensor(self, *start):
        extents, *bits = self.take(*start)
        shape = tuple(int(extent) for extent in extents[1:-1].split(",") if extent)
        high_half = 16 if bits and len(bits[0]) == 4 else 0
        values = np.array([int(b, 16) << high_half for b in bits], np.uint32).view(np.float32)
        return values.astype(np.float64).reshape(shape)


def double(bits):
    return struct.unpack(">d", bytes.fromhex(bits))[0]


def fields(words):
    return {name: double(value) if len(value) == 16 else int(value) for name, value in zip(words[::2], words[1::2])}


def spacing(x):
    """One unit in the last place of bfloat16."""
    return np.exp2(np.floor(np.log2(np.maximum(np.abs(x), 2.0**-126))) - 7)


def bound(rounding, name, expected, terms=0.0):
    if rounding is model.bfloat16:
        return spacing(np.maximum(np.abs(expected), terms))
    floor = 2.0**-6 if name in ("master", "published") else 2.0**-60
    return 2.0**-21 * np.maximum(np.maximum(np.abs(expected), floor), terms)


def check_report(text, report, expected):
    for name, value in expected.items():
        if name in ("grad_norm", "clip_coefficient"):
            text.close(name, report[name], value, 1e-14 * value)
        else:
            text.equal((name, report[name]), (name, value))


def check_beginning(text, rank, world):
    text.equal(text.take("rank"), [str(rank), "of", str(world)])
    text.equal([double(b) for b in text.take("all_reduce")], [sum(r + 0.5 for r in range(world)), 2.0 * world])
    text.equal(text.take("all_gather"), [str(10 + r) for r in range(world)])
    text.equal(text.take("broadcast"), ["3f800000"])
    for d, name in enumerate(model.NAMES):
        text.equal(text.take("parameter", d, name), ["[" + ",".join(map(str, model.SHAPES[d])) + "]"])
    for d in (model.EMBED, model.WIDE):
        text.equal(text.tensor("acquired", d).tolist(), model.initial(d).tolist())


def check_passes(text, rank, world, run):
    for p in range(6):
        text.equal(double(text.take("pass", p, "scale")[0]), 0.5)
        for i, expected in enumerate(model.outputs(p, rank)):
            text.equal(text.tensor("pass", p, "output", i).tolist(), expected.tolist())
        check_report(text, fields(text.take("step", p)), run.steps[p])
        if p == model.INF_PASS:
            text.equal(text.take("skipped", "for"), ["wide.weight", "of", "rank", str(world - 1)])


def check_values(text, run):
    for code, word in ERRORS:
        explanation = " ".join(text.take("error", code))
        assert word in explanation, text.said(f"the text does not say {word!r}")
    rounding = {"master": run.master, "published": run.published, "exp_avg": run.moment, "exp_avg_sq": run.moment}
    for d in range(8):
        for name in VALUES:
            expected = run.value(d, name)
            if expected is None:
                text.equal(text.take("value", d, name), ["none"])
            else:
                terms = run.m_terms[model.EMBED if d == model.HEAD else d] if name == "exp_avg" else 0.0
                text.close(name, text.tensor("value", d, name), expected, bound(rounding[name], name, expected, terms))
    for _ in ("published", "float32"):
        for d in (model.EMBED, model.WIDE):
            expected = run.value(d, "published")
            text.close("acquired", text.tensor("acquired", d), expected, bound(run.published, "published", expected))


def check_memory(text):
    entries = {}
    while text.lines[text.at].startswith("memory "):
        size, *purpose = text.take("memory")
        entries[" ".join(purpose)] = int(size)
    total = entries.pop("total")
    text.equal(total, sum(entries.values()))
    assert total > 0 and len(entries) > 1, text.said("an empty ledger")


def check_shard(text):
    w, g = np.arange(-2, 3) / 4, np.arange(3, -2, -1) / 8
    w, m, v = model.Adam(lr=0.25).update(w, np.zeros(5), np.zeros(5), g, 1)
    report = {"outcome": 2, "reason": 0, "nonfinite_rank": -1, "nonfinite_param": -1, "applied_steps": 1, "lr": 0.25,
              "grad_norm": float(np.sqrt((g * g).sum())), "clip_coefficient": 1.0, "updates": 4, "vanished": 0}
    check_report(text, fields(text.take("shard", "step")), report)
    text.close("shard", text.tensor("shard", "weights"), w, bound(model.float32, "master", w))
    text.close("shard", text.tensor("shard", "published"), w, spacing(w))
    text.close("shard", text.tensor("shard", "state", 2), m, bound(model.float32, "exp_avg", m))
    text.close("shard", text.tensor("shard", "state", 3), v, bound(model.float32, "exp_avg_sq", v))
    text.equal(text.take("shard", "state_bytes"), ["40"])


def check_chain(text, rank, world):
    chain = model.Chain()
    for index in range(2):
        dy = chain.window(index, rank == world - 1)
        text.equal(text.tensor("chain", "back", "scaled").tolist(), (64 * dy).tolist())
        text.equal(text.tensor("chain", "input", "gradient").tolist(), (2 * dy[::-1]).tolist())
        scale, *rest = text.take("chain", "tag")
        text.equal([double(scale), *map(int, rest)], [64.0, 1, world])
        text.equal(text.tensor("chain", "front", "scaled").tolist(), (4 * 2 * dy[::-1]).tolist())
        for name in ("front", "back"):
            report = fields(text.take("chain", name, "step"))
            text.equal((report["outcome"], report["reason"]), (2, 0) if index == 0 else (3, 1))
            text.equal(report["loss_scale"], float(chain.SCALES[name]))
            if index == 0:
                text.close("chain", report["grad_norm"], chain.norm, 1e-13)
                text.close("chain", report["clip_coefficient"], chain.clip, 1e-13)
            else:
                text.equal(report["nonfinite_rank"], world - 1)
    for name in ("front", "back"):
        for value, expected in enumerate(chain.values[name]):
            text.close("chain", text.tensor("chain", name, "value", value), expected,
                       bound(model.float32, VALUES[value], expected))


def check_saved(text, world):
    """The third step of the training that went on, and of the one that was loaded."""
    dy, values, third = np.array([[1, -0.5], [0.25, 2]]), [np.array([[0.5, -1], [1, 0.25]]), np.zeros((2, 2)), np.zeros((2, 2))], {}
    adam = model.Adam(lr=0.125)
    for name, windows in (("saved", range(3)), ("loaded", range(2, 3))):
        for window in windows:
            if name == "saved":
                mean = dy * (window + 1) * sum(2 * r + 1 for r in range(world)) / world
                values = adam.update(*values, mean, window + 1)
            words = text.take(name, "step", window)
            norm = float(np.sqrt((mean * mean).sum()))
            check_report(text, fields(words), {"outcome": 2, "reason": 0, "applied_steps": window + 1, "lr": 0.125, "grad_norm": norm, "clip_coefficient": 1.0})
        third[name] = [words]
        for value, expected in enumerate((values[0], *values)):
            third[name].append(text.lines[text.at].removeprefix(name))
            text.close("saved", text.tensor(name, "value", value), expected, bound(model.float32, VALUES[value], expected))
    text.equal(third["loaded"], third["saved"])


def main(work):
    for config in CONFIGS:
        for world in WORLDS:
            run = model.Run(config.read_text(), world)
            for rank in range(world):
                text = Text(pathlib.Path(f"{prefix(pathlib.Path(work), config, world, 'c')}.{rank}"))
                check_beginning(text, rank, world)
                check_passes(text, rank, world, run)
                check_values(text, run)
                check_memory(text)
                text.equal(text.take("live_children"), ["0"])
                check_chain(text, rank, world)
                check_saved(text, world)
                check_shard(text)
                text.take("done")
                worst = ", ".join(f"{kind} {share:.2f}" for kind, share in text.worst.items())
                print(f"{text.name}: {text.checks} numbers; largest share of its bound: {worst}")


if __name__ == "__main__":
    main(*sys.argv[1:])
