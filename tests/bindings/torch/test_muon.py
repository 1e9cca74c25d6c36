# SPDX-License-Identifier: Apache-2.0
"""On the ranks of a launcher: Muon, named in the configuration, against its formulas in float64 and against torch.optim.Muon;
its groups, their rates, its states. Each rank has data of its own. The directions of Muon and Adam are those of a gradient
half as large too, so the first moments are compared as well, and faults are put in that this must see.

    outrigger run -n 2 -- python test_muon.py
"""
import copy
import itertools
import types
import unittest

import torch
from faults import FAULTS
from models import DTYPES, PRECISIONS, Rounded, master_of

import outrigger
import outrigger.torch
from outrigger import lowlevel
from outrigger.process import process_comm
from outrigger.torch import utils

# Of weights up to 3 after 4 steps: Newton-Schulz multiplies what is small by up to 3.4^5, and its roundings with it. Of a first
# moment: the part of its norm that it differs by, some roundings of float32 (1e-7); half a factor makes 0.5 of it.
BOUND = MOMENTS = 1e-5
# 16 bits, by the format of the accumulator: None is that of the gradients, to which the mean over ranks is rounded then
# (moments 2.5 times its epsilon, weights move by 0.15). float16 gradients of outputs are rounded before they are scaled.
LOW = {("bf16", None): (0.04, 2.5 * 2**-7), ("bf16", "fp32"): (BOUND, MOMENTS),
       ("fp16", None): (0.005, 2.5 * 2**-10), ("fp16", "fp32"): (0.005, 2.5 * 2**-10)}
STAGES = ((0, {}), (1, {}), (2, {}), (3, {}), (3, {"share_parameters": False}))
RULE = {"lr": 0.05, "adam_lr": 0.01, "momentum": 0.9, "weight_decay": 0.1, "betas": [0.8, 0.9]}


class Net(torch.nn.Module):
    """Matrices: tall, wide and one of three dimensions; the others: by their names, or of one dimension."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(12, 6)
        self.tall, self.wide = torch.nn.Linear(6, 16), torch.nn.Linear(16, 8)
        self.cube = torch.nn.Parameter(torch.randn(3, 2, 4))
        self.lm_head = torch.nn.Linear(3, 5, bias=False)

    def forward(self, tokens):
        return self.lm_head(torch.tanh(self.wide(torch.tanh(self.tall(self.embed(tokens)))) @ self.cube.flatten(1).T))


MATRICES = ["tall.weight", "wide.weight", "cube"]


def net():
    torch.manual_seed(0)
    return Net()


def loss_of(model, seed, rank):
    generator = torch.Generator().manual_seed(10 * seed + rank)
    tokens, classes = torch.randint(0, 12, (16,), generator=generator), torch.randint(0, 5, (16,), generator=generator)
    y = model(tokens)
    return torch.nn.functional.cross_entropy(y if y.dtype == torch.float64 else y.float(), classes)


def orthogonal(matrix):
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x


class Reference:
    """A model of its own in float64, which computes in dtype. rule(name) → hyperparameters of a parameter."""

    def __init__(self, model, rule, dtype=torch.float64, scale=1):
        self.model, self.rule, self.steps, self.scale = copy.deepcopy(model).double(), rule, 0, scale
        self.computes = Rounded(self.model, dtype)
        self.states = {name: [torch.zeros_like(p), torch.zeros_like(p)] for name, p in self.model.named_parameters()}

    def train(self, ranks, steps, start=0, gas=1, clip=0.0):
        """On the data of all ranks."""
        for step in range(start, start + steps):
            for micro in range(gas):
                for rank in range(ranks):
                    (loss_of(self.computes, gas * step + micro, rank) * (self.scale / gas / ranks)).backward()
            self.step(clip)

    @torch.no_grad()
    def step(self, clip=0.0):
        for p in self.model.parameters():
            p.grad /= self.scale
        if clip:
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip)
            assert norm > 2 * clip, f"norm {norm}, so clipping does nothing"
        self.steps += 1
        for name, p in self.model.named_parameters():
            rule, (m, v) = self.rule(name), self.states[name]
            p.mul_(1 - rule["lr"] * rule["weight_decay"])
            if name in MATRICES:
                m.lerp_(p.grad, 1 - rule["momentum"])
                matrix = p.grad.lerp(m, rule["momentum"]).flatten(1)
                direction = orthogonal(matrix).view(p.shape) * max(1, matrix.shape[0] / matrix.shape[1]) ** 0.5
            else:
                beta1, beta2 = rule["betas"]
                m.lerp_(p.grad, 1 - beta1)
                v.lerp_(p.grad.square(), 1 - beta2)
                direction = (m / (1 - beta1 ** self.steps)) / ((v / (1 - beta2 ** self.steps)).sqrt() + 1e-10)
            p.sub_(rule["lr"] * direction)
            p.grad = None


def rule_of(name, **changed):
    return {**RULE, "lr": RULE["lr"] if name in MATRICES else RULE["adam_lr"], **changed}


class Muon(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        outrigger.torch.init_distributed()
        self.comm = process_comm()

    def engine(self, model, rule=RULE, stage=2, groups=None, **config):
        """groups(model) → model_parameters."""
        model = copy.deepcopy(model)
        engine, *_ = outrigger.torch.initialize(
            model=model, comm=self.comm, model_parameters=None if groups is None else groups(model),
            config={"train_micro_batch_size_per_gpu": 16, "optimizer": {"type": "Muon", "params": dict(rule)}, "gradient_clipping": 0,
                    "zero_optimization": {"stage": stage}, **config})
        return engine

    def steps(self, engine, steps, start=0, gas=1):
        for micro in range(gas * start, gas * (start + steps)):
            engine.backward(loss_of(engine, micro, self.comm.rank))
            engine.step()

    def distances(self, engine, reference):
        """The furthest of a weight; the most of a parameter's first moment in its norm."""
        weights = max((a.detach() - b).abs().max().item() for a, b in zip(reference.model.parameters(), master_of(engine), strict=True))
        moments = [(utils.safe_get_full_optimizer_state(parameter, "exp_avg") - reference.states[name][0], reference.states[name][0])
                   for name, parameter in engine.module.named_parameters()]
        return weights, max((difference.norm() / first.norm()).item() for difference, first in moments)

    def train(self, engine, reference, steps, start=0, gas=1, clip=0.0):
        self.steps(engine, steps, start, gas)
        reference.train(self.comm.size, steps, start, gas, clip)
        weights, moments = self.distances(engine, reference)
        self.assertLess(weights, BOUND)
        self.assertLess(moments, MOMENTS)
        return weights, moments

    def named(self, engine):
        """Of each half of a group: its name, and those of its parameters."""
        names = {parameter: name for name, parameter in engine.module.named_parameters()}
        return {group["name"]: [names[each] for each in group["params"]] for group in engine.optimizer.param_groups}

    def values(self, engine, index, *names):
        group = "default" if index == 0 else f"group {index}"
        return [lowlevel.engine_get_group_value(engine.handle, group, name) for name in names]

    def test_against_float64(self):
        for stage, own in STAGES:
            with self.subTest(stage=stage, **own):
                reference, engine = Reference(net(), rule_of), self.engine(net(), stage=stage, outrigger=dict(own))
                weights, moments = self.train(engine, reference, 4)
                print(f"stage {stage} {own}: furthest from float64 {weights:.2g}, moments {moments:.2g}")
                engine.destroy()

    def test_accumulated_and_clipped(self):
        """The gradient is clipped before the momentum, its norm that of all parameters."""
        reference, engine = Reference(net(), rule_of), self.engine(net(), gradient_accumulation_steps=2, gradient_clipping=0.05)
        self.train(engine, reference, 4, gas=2, clip=0.05)

    def low(self, precision, accumulator, stage, gas=1, clip=0.0):
        section = {**PRECISIONS[precision], "data_types": {"grad_accum_dtype": accumulator}}
        return self.engine(net(), stage=stage, gradient_accumulation_steps=gas, gradient_clipping=clip, **section)

    def reference_of(self, precision):
        """Its gradients are bfloat16 or float16 too, before they are summed."""
        return Reference(net(), rule_of, DTYPES[precision], 2**10 if precision == "fp16" else 1)

    def test_low_precision(self):
        for (precision, accumulator), bounds in LOW.items():
            reference = self.reference_of(precision)
            reference.train(self.comm.size, 3)
            for stage in range(4):
                with self.subTest(precision, accumulator=accumulator, stage=stage):
                    engine = self.low(precision, accumulator, stage)
                    self.steps(engine, 3)
                    for distance, bound in zip(self.distances(engine, reference), bounds):
                        self.assertLess(distance, bound)
                    self.assertEqual((engine.global_steps, engine.skipped_steps), (3, 0))
                    engine.destroy()

    def test_faults_are_seen(self):
        """Put into engines, by the bounds of this file."""
        rule = types.SimpleNamespace(name="Muon")
        for ((precision, accumulator), bounds), clip in itertools.product({("float32", None): (BOUND, MOMENTS), **LOW}.items(), (0, 0.05)):
            reference = Reference(net(), rule_of) if precision == "float32" else self.reference_of(precision)
            reference.train(self.comm.size, 2, gas=2, clip=clip)
            for index, (name, fault) in enumerate(FAULTS.items()):
                if fault.shows(types.SimpleNamespace(precision=precision, gas=2, clip=clip, rule=rule)):
                    with self.subTest(name, precision=precision, accumulator=accumulator, clip=clip):
                        with fault.put_in():
                            engine = self.low(precision, accumulator, index % 4, 2, clip)
                            self.steps(engine, 2, gas=2)
                        self.assertTrue(any(distance > bound for distance, bound in zip(self.distances(engine, reference), bounds)))
                        engine.destroy()

    def test_against_torch(self):
        """One step of torch.optim.Muon, whose Newton-Schulz is in bfloat16: 8 bits of each product are kept."""
        if not hasattr(torch.optim, "Muon"):
            self.skipTest("this PyTorch has no Muon")
        model = torch.nn.Sequential(torch.nn.Linear(24, 16, bias=False), torch.nn.Tanh(), torch.nn.Linear(16, 40, bias=False))
        for kind in ("original", "match_rms_adamw"):
            plain, before = copy.deepcopy(model), [each.detach().clone() for each in model.parameters()]
            engine = self.engine(model, {"lr": 0.1, "momentum": 0.9, "adjust_lr_fn": kind})
            optimizer = torch.optim.Muon(plain.parameters(), lr=0.1, momentum=0.9, weight_decay=0, adjust_lr_fn=kind)
            inputs = torch.randn(self.comm.size, 32, 24, generator=torch.Generator().manual_seed(1))
            plain(inputs).square().mean().backward()
            engine(inputs[self.comm.rank]).square().mean().backward()
            optimizer.step()
            engine.step()
            for a, b, start in zip(plain.parameters(), master_of(engine), before):
                ours, theirs = (b - start).flatten(), (a.detach() - start).flatten()
                cosine = torch.nn.functional.cosine_similarity(ours, theirs, 0).item()
                size = (ours.norm() / theirs.norm()).item()
                print(f"torch.optim.Muon {kind} {tuple(start.shape)}: cosine {cosine:.5f}, size {size:.4f}")
                self.assertGreater(cosine, 0.99)
                self.assertAlmostEqual(size, 1, delta=0.02)

    def test_halves(self):
        for rule, lr, adam_lr in (({}, 0.02, 3e-4), ({"lr": 0.1}, 0.1, 0.1), ({"lr": 0.1, "adam_lr": 0.2}, 0.1, 0.2),
                                  ({"lr": 0.1, "muon_lr": 0.3}, 0.3, 0.1), ({"muon_lr": 0.3}, 0.3, 3e-4)):
            with self.subTest(rule=rule):
                engine = self.engine(net(), {**rule, "weight_decay": 0.1})
                self.steps(engine, 1)
                matrices, others = engine.optimizer.param_groups
                self.assertEqual({key: value for key, value in matrices.items() if key != "params"},
                                 {"name": "muon-params", "use_muon": True, "lr": lr, "momentum": 0.95, "weight_decay": 0.1})
                self.assertEqual({key: value for key, value in others.items() if key != "params"},
                                 {"name": "adam-params", "use_muon": False, "lr": adam_lr, "betas": (0.9, 0.95), "eps": 1e-10,
                                  "weight_decay": 0.1})
                self.assertEqual(set(self.named(engine)["muon-params"]), set(MATRICES))
                self.assertEqual(self.values(engine, 0, "lr", "momentum", "weight_decay"), [lr, 0.95, 0.1])
                self.assertEqual(self.values(engine, 1, "adam_lr", "beta1", "beta2", "eps", "weight_decay"), [adam_lr, 0.9, 0.95, 1e-10, 0.1])
                self.assertEqual((engine.get_lr(), engine.get_mom()), ([lr, adam_lr], [0.95, (0.9, 0.95)]))
                self.assertEqual(engine.report.lr, lr)

    def test_the_rule_is_the_librarys(self):
        """What is in the half of matrices has no second moment, whatever the names say."""
        for parts in ([], ["TALL", "Cube"], ["embed", "lm_head", "wide"], ["e"]):
            with self.subTest(parts=parts):
                engine = self.engine(net(), outrigger={"muon": {"adam_parameters": parts}})
                for group in engine.optimizer.param_groups:
                    for parameter in group["params"]:
                        if not group["use_muon"]:
                            utils.safe_get_full_optimizer_state(parameter, "exp_avg_sq")
                            continue
                        with self.assertRaisesRegex(outrigger.OutriggerError, "has no exp_avg_sq: it is a matrix"):
                            utils.safe_get_full_optimizer_state(parameter, "exp_avg_sq")

    def test_groups(self):
        """A group's own values are both halves'; without any in a half there is none; what is frozen is in none."""
        def groups(model):
            return [{"params": [model.lm_head.weight], "lr": 0.02, "layer": 7},
                    {"params": [model.embed.weight, model.tall.weight, model.tall.bias], "lr": 0.03, "weight_decay": 0.0, "momentum": 0.5},
                    {"params": [model.wide.weight, model.wide.bias, model.cube], "betas": (0.5, 0.6), "name": "rest"}]

        def rule(name):
            return rule_of(name, **({"lr": 0.02} if name == "lm_head.weight" else
                                    {"betas": (0.5, 0.6)} if "wide" in name or name == "cube" else
                                    {"lr": 0.03, "weight_decay": 0.0, "momentum": 0.5}))

        for stage, own in STAGES:
            with self.subTest(stage=stage, **own):
                reference, engine = Reference(net(), rule), self.engine(net(), stage=stage, groups=groups, outrigger=dict(own))
                self.train(engine, reference, 3)
                self.assertEqual(engine.report.lr, 0.02)
                engine.destroy()
        self.assertEqual(self.named(engine), {
            "group0-adam-params": ["lm_head.weight"], "group1-muon-params": ["tall.weight"], "group1-adam-params": ["embed.weight", "tall.bias"],
            "rest-muon-params": ["wide.weight", "cube"], "rest-adam-params": ["wide.bias"]})
        self.assertEqual([group.get("layer") for group in engine.optimizer.param_groups], [7] + 4 * [None])
        self.assertFalse({"betas", "eps"} & set(engine.optimizer.param_groups[1]))
        model = net()
        for name in MATRICES:
            model.get_parameter(name).requires_grad_(False)
        engine = self.engine(model)
        self.assertEqual(list(self.named(engine)), ["adam-params"])
        self.steps(engine, 1)
        for name, parameter in model.named_parameters():
            self.assertEqual(torch.equal(parameter, engine.module.get_parameter(name)), name in MATRICES)

    def test_rates(self):
        """A schedule and a change reach the half whose group has them."""
        engine = self.engine(net())
        rates = {"muon-params": 0.05, "adam-params": 0.01}
        reference = Reference(net(), lambda name: rule_of(name, lr=rates["muon-params" if name in MATRICES else "adam-params"]))
        engine.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(engine.optimizer, [lambda step: 0.5 ** step, lambda step: 1 + step])
        for step in range(3):
            self.train(engine, reference, 1, step)
            self.assertEqual(self.values(engine, 0, "lr") + self.values(engine, 1, "adam_lr"), list(rates.values()))
            rates = {"muon-params": 0.05 * 0.5 ** (step + 1), "adam-params": 0.01 * (2 + step)}
            self.assertEqual(engine.get_lr(), list(rates.values()))
        engine.lr_scheduler = None
        for group in engine.optimizer.param_groups:
            group["lr"] = rates[group["name"]] = 0.04 if group["use_muon"] else 0.002
        self.train(engine, reference, 1, 3)
        engine.set_lr(0.003)
        rates = dict.fromkeys(rates, 0.003)
        self.train(engine, reference, 1, 4)

    def test_schedules_of_the_configuration(self):
        """One rate for both halves, one for each, a factor of each; a cycle leaves betas alone, since not all groups have them."""
        for name, params, expected in (
                ("WarmupLR", {"warmup_max_lr": 0.1, "warmup_num_steps": 2, "warmup_type": "linear"}, [0.1, 0.1]),
                ("WarmupLR", {"warmup_max_lr": [0.1, 0.3], "warmup_num_steps": 2, "warmup_type": "linear"}, [0.1, 0.3]),
                ("WarmupCosineLR", {"total_num_steps": 6, "warmup_num_steps": 2, "cos_min_ratio": 0.0}, [0.025, 0.005]),
                ("OneCycle", {"cycle_min_lr": [0.01, 0.02], "cycle_max_lr": [0.1, 0.2], "cycle_first_step_size": 4}, [0.1, 0.2])):
            with self.subTest(name, **params):
                engine = self.engine(net(), scheduler={"type": name, "params": params})
                self.steps(engine, 4)
                engine.optimizer.send_hyperparameters()
                for found, rate in zip(self.values(engine, 0, "lr") + self.values(engine, 1, "adam_lr"), expected):
                    self.assertAlmostEqual(found, rate)
                self.assertEqual(engine.get_mom(), [0.9, (0.8, 0.9)])

    def test_states(self):
        for stage in (0, 2):
            with self.subTest(stage=stage):
                reference, engine = Reference(net(), rule_of), self.engine(net(), stage=stage)
                self.train(engine, reference, 2)
                for name, parameter in engine.module.named_parameters():
                    for key, expected in zip(["exp_avg"] if name in MATRICES else ["exp_avg", "exp_avg_sq"], reference.states[name]):
                        self.assertLess((utils.safe_get_full_optimizer_state(parameter, key) - expected).abs().max(), 1e-5)
                matrix, other, key = engine.module.wide.weight, engine.module.wide.bias, "momentum_buffer"
                momentum = utils.safe_get_full_optimizer_state(matrix, key)
                self.assertTrue(torch.equal(momentum, utils.safe_get_full_optimizer_state(matrix, "exp_avg")))
                utils.safe_set_full_optimizer_state(matrix, momentum * 2, key)
                local = utils.safe_get_local_optimizer_state(matrix, key)
                self.assertEqual(local.numel(), engine.local_count(matrix))
                utils.safe_set_local_optimizer_state(matrix, local / 2, key)
                self.assertTrue(torch.equal(utils.safe_get_full_optimizer_state(matrix, key), momentum))
                with self.assertRaisesRegex(ValueError, "'momentum_buffer' is not legal; legal: exp_avg, exp_avg_sq$"):
                    utils.safe_get_full_optimizer_state(other, key)
                with self.assertRaisesRegex(ValueError, "'step' is not legal; legal: exp_avg, exp_avg_sq, momentum_buffer$"):
                    utils.safe_get_full_optimizer_state(matrix, "step")

    def test_wrong_use(self):
        for own, text in (
                (lambda m: {"use_muon": True}, r"group 0 has use_muon = True, but 'embed.weight' of shape \(12, 6\) is none of Muon's matrices: "
                 "parameters of two or more dimensions whose names contain none of 'embed', 'lm_head'.*adam_parameters"),
                (lambda m: {"use_muon": False}, r"use_muon = False, but 'cube' of shape \(3, 2, 4\) is one of Muon's matrices"),
                (lambda m: {"nesterov": False}, "group 0 has nesterov = False, which Muon has once for all groups \\(True\\).*optimizer.params"),
                (lambda m: {"adam_lr": 0.1}, "adam_lr = 0.1.*A group may have lr, momentum")):
            with self.subTest(text=text), self.assertRaisesRegex(ValueError, text):
                self.engine(net(), groups=lambda m, own=own: [{"params": list(m.parameters()), **own(m)}])
        with self.assertRaisesRegex(ValueError, "nothing to train"):
            self.engine(net().requires_grad_(False))
        with self.assertRaisesRegex(ValueError, "1 of the parameters to train are not the model's"):
            self.engine(net(), groups=lambda m: [torch.nn.Parameter(torch.ones(2, 2))])
        with self.assertRaisesRegex(outrigger.OutriggerError, "per_head_muon"):
            self.engine(net(), {"per_head_muon": True})
        # As the rule says, or as the configuration does: nothing to refuse.
        engine = self.engine(net(), groups=lambda m: [{"params": [m.tall.weight], "use_muon": True, "nesterov": True, "ns_method": "standard"},
                                                      {"params": [m.tall.bias], "use_muon": False}])
        self.assertEqual(list(self.named(engine)), ["group0-muon-params", "group1-adam-params"])


if __name__ == "__main__":
    unittest.main()
