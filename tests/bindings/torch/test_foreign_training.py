# SPDX-License-Identifier: Apache-2.0
"""Trainings that DeepSpeed 0.19.8 began on two ranks go on here, on any number: the values are its, and so are the losses of the next steps.

    outrigger run -n 2 -- python test_foreign_training.py"""
import json
import os
import shutil
import tempfile
import unittest
import warnings
from pathlib import Path

import foreign_cases as cases
import numpy
import torch

import outrigger.torch
from outrigger import foreign, lowlevel
from outrigger.process import process_comm

DATA = Path(__file__).parent / "data"
LOSSES = json.loads((DATA / "losses.json").read_text())
VALUES = {"master": lowlevel.VALUE_MASTER, "published": lowlevel.VALUE_PUBLISHED, "exp_avg": lowlevel.VALUE_EXP_AVG,
          "exp_avg_sq": lowlevel.VALUE_EXP_AVG_SQ, "momentum_buffer": lowlevel.VALUE_EXP_AVG}
# Relative, of the five losses; on two ranks most are equal. In float16 DeepSpeed divides gradients by another scale than they have (Float16).
BOUNDS = {torch.float32: 1e-6, torch.bfloat16: 1e-3}
FLOAT16 = 2e-5  # of those in plain PyTorch


def start(name, comm, stage=None, seed=1, **more):
    made = cases.CASES[name]
    model = cases.net(seed)
    engine, *_ = outrigger.torch.initialize(
        model=model, model_parameters=cases.groups(model), comm=comm,
        config=cases.config(made[0] if stage is None else stage, {**{key: value for key, value in made[1].items() if key != "zero_optimization"}, **more}, comm.size))
    return engine


def train(model, optimizer, begin, end):
    """The losses of these steps in plain PyTorch."""
    losses = []
    for step in range(begin, end):
        x, t = cases.batch(step, 0, 1, torch.float32)
        loss = torch.nn.functional.mse_loss(model(x), t)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def save_alone(state, folder):
    """By one process, whatever group there is."""
    import torch.distributed.checkpoint as distributed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        distributed.save(state, storage_writer=distributed.FileSystemWriter(folder), no_dist=True)


class Float16:
    """The next steps in plain PyTorch: float16 weights, float32 masters and sums, a dynamic loss scale by DeepSpeed's rule, on so many ranks.

    as_deepspeed: with two faults of DeepSpeed 0.19.8. A step after which the scale grows divides its gradients by the scale that has grown, so they are half as
    large; and engine.backward() scales no loss at stage 0, whose optimizer divides by the scale nevertheless. Adam hides a factor, but for its moments and eps,
    and for clipping."""

    def __init__(self, folder, ranks, as_deepspeed, are_sums_float16=False):
        self.model, self.ranks, self.as_deepspeed, self.are_sums_float16 = cases.net(2), ranks, as_deepspeed, are_sums_float16
        self.names = {each: name for name, each in self.model.named_parameters()}
        source = foreign.open(DATA / folder, order=[[self.names[each] for each in group["params"]] for group in cases.groups(self.model)])
        self.is_scaled = not (as_deepspeed and source.kind == "deepspeed stage 0")
        with torch.no_grad():
            for each, name in self.names.items():
                each.copy_(torch.from_numpy(source.read(name, source.values(name)[0])))
            self.model.drift.copy_(torch.from_numpy(source.buffers["drift"]))
        self.optimizer = torch.optim.AdamW(cases.groups(self.model), lr=source.progress.groups[0]["lr"], betas=(0.8, 0.95), eps=1e-7)
        for each, name in self.names.items():
            if each.requires_grad:
                self.optimizer.state[each] = {"step": torch.tensor(float(source.progress.updates[name])), "exp_avg": torch.from_numpy(source.read(name, "exp_avg")),
                                              "exp_avg_sq": torch.from_numpy(source.read(name, "exp_avg_sq"))}
        scaler = source.progress.loss_scale
        self.scale, self.windows, self.last_overflow, self.left = scaler["scale"], scaler["windows"], scaler["last_overflow"], scaler.get("hysteresis_left", 2)
        self.scheduled, self.skipped = source.scheduler["last_batch_iteration"], source.progress.skipped_steps

    def backward(self, step):
        """The loss; the gradients' mean, scaled; whether a rank's overflow, or, where sums of the ranks are float16 as here, their sum."""
        losses, total, drift = [], {}, self.model.drift.clone()
        for rank in range(self.ranks):
            self.model.drift.copy_(drift)  # each rank's own
            x, t = cases.batch(step, rank, self.ranks, torch.float16)
            weights = {name: each.half() for each, name in self.names.items()}
            losses.append(torch.nn.functional.mse_loss(torch.func.functional_call(self.model, weights, (x,)).float(), t))
            self.model.zero_grad()
            (losses[-1] * (self.scale if self.is_scaled else 1.0)).backward()
            for each in self.names:
                if each.grad is not None:
                    total[each] = total.get(each, 0.0) + each.grad
        if self.are_sums_float16:
            total = {each: value.half().float() for each, value in total.items()}
        overflows = not all(each.isfinite().all() for each in total.values())
        return sum(each.item() for each in losses) / self.ranks, {each: value / self.ranks for each, value in total.items()}, overflows

    def step(self, number):
        loss, total, overflows = self.backward(number)
        before, clean = self.scale, self.windows - self.last_overflow - 1
        if overflows:
            self.scale, self.left = (self.scale / 2, 1) if self.left == 1 else (self.scale, self.left - 1)
            self.last_overflow = self.windows
            self.skipped += 1
        elif clean > 0 and clean % cases.FP16["fp16"]["loss_scale_window"] == 0:
            self.scale, self.left = self.scale * 2, 2
        self.windows += 1
        if overflows:
            return loss
        for each in self.names:
            each.grad = total[each] / (self.scale if self.as_deepspeed else before) if each in total else None
        torch.nn.utils.clip_grad_norm_(list(total), 0.5)
        self.optimizer.step()
        self.scheduled += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 1e-2 * (40 - self.scheduled) / 36  # behind the warm-up
        return loss

    def losses(self):
        return [self.step(number) for number in range(cases.SAVED, cases.END)]


def furthest(ours, its):
    assert len(ours) == len(its) == cases.END - cases.SAVED
    return max(abs(one - other) / other for one, other in zip(ours, its))


class Training(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        outrigger.torch.init_distributed()
        self.comm = process_comm()
        self.addCleanup(self.comm.barrier)

    def require_values(self, engine, name):
        expected = numpy.load(DATA / f"{name}.npz")
        parameters = dict(engine.module.named_parameters())
        buffers = dict(engine.module.named_buffers())
        for key in expected.files:
            of, value = key.rsplit("/", 1)
            if value == "buffer":
                got = buffers[of].float().numpy()
            else:
                got = engine.read(parameters[of], VALUES[value]).numpy()
            if value == "published" or (value == "buffer" and engine.compute_dtype != torch.float32):
                self.assertTrue(numpy.allclose(got, expected[key], rtol=2**-8), key)
            else:
                self.assertTrue(numpy.array_equal(got, expected[key]), key)

    def shared_folder(self):
        own = tempfile.mkdtemp() if self.comm.rank == 0 else ""
        return self.comm.all_gather(own.encode().ljust(256, b"\0"))[:256].rstrip(b"\0").decode()

    def mean(self, losses):
        every = numpy.frombuffer(self.comm.all_gather(numpy.array(losses)))
        return every.reshape(self.comm.size, -1).mean(0)

    def goes_on(self, folder, name, stage, **more):
        engine, known = start(name, self.comm, stage, **more), LOSSES[name]
        path, client = engine.load_checkpoint(DATA / folder)
        self.assertTrue(os.path.isdir(path))
        self.assertEqual((client["epoch"], client["note"], client["nested"]), (3, "first", {"seen": [1, 2.5, None, True]}))
        self.assertTrue(torch.equal(client["order"], torch.arange(5)))
        self.require_values(engine, name)
        self.assertEqual((engine.global_steps, engine.skipped_steps), (known["global_steps"], known["skipped_steps"]))
        self.assertEqual(engine.get_lr(), known["lr"])
        if engine.compute_dtype == torch.float16:
            self.assertEqual(engine.optimizer.cur_scale, known["loss_scale"])
        losses = self.mean(cases.train(engine, cases.SAVED, cases.END, self.comm.rank, self.comm.size, engine.compute_dtype))
        if engine.compute_dtype == torch.float16:
            expected = Float16(folder, self.comm.size, False, "data_types" not in more)
            self.assertLess(furthest(losses, expected.losses()), FLOAT16)
            self.assertEqual((engine.skipped_steps, engine.optimizer.cur_scale), (expected.skipped, expected.scale))
        else:
            self.assertLess(furthest(losses, known["after"]), BOUNDS[engine.compute_dtype])
            self.assertEqual(engine.skipped_steps, known["skipped_after"])
        engine.destroy()

    def test_every_kind(self):
        """At a stage that is another one than it was saved at, too."""
        for name, (stage, _) in cases.CASES.items():
            for here in {stage, 3 - stage}:
                with self.subTest(name=name, stage=here):
                    self.goes_on(name, name, here)

    def test_float16_with_sums_in_float32(self):
        """Which do not overflow where DeepSpeed's means do not."""
        self.goes_on("zero2_fp16", "zero2_fp16", 2, data_types={"grad_accum_dtype": "fp32"})

    def test_deepspeed_divides_by_another_scale_in_float16(self):
        """With its two faults plain PyTorch has its losses, and without them others."""
        for name in ("zero0_fp16", "zero2_fp16", "zero3_fp16"):
            its = Float16(name, 2, True)
            self.assertLess(furthest(its.losses(), LOSSES[name]["after"]), FLOAT16)
            self.assertEqual(its.skipped, LOSSES[name]["skipped_after"])
            self.assertGreater(furthest(Float16(name, 2, False).losses(), LOSSES[name]["after"]), 1e-3)

    def test_universal(self):
        for name, folder in cases.UNIVERSAL.items():
            with self.subTest(name=folder):
                self.goes_on(folder, name, 2)

    def test_states_in_fewer_bits(self):
        """Values are rounded to nearest."""
        engine = start("zero2_bf16", self.comm, outrigger={"states": {"exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}}})
        engine.load_checkpoint(DATA / "zero2_bf16")
        expected = numpy.load(DATA / "zero2_bf16.npz")
        for of, parameter in engine.module.named_parameters():
            if parameter.requires_grad:
                for value in ("exp_avg", "exp_avg_sq"):
                    rounded = torch.from_numpy(expected[f"{of}/{value}"]).bfloat16().float()
                    self.assertTrue(torch.equal(engine.read(parameter, VALUES[value]), rounded), (of, value))
        engine.destroy()

    def test_parts_of_it(self):
        engine = start("zero2", self.comm)
        engine.load_checkpoint(DATA / "zero2", load_module_only=True)
        self.assertEqual((engine.global_steps, engine.module.calls.item()), (0, cases.SAVED))
        self.assertEqual(engine._library.get_progress()["parameters"]["updates"], 0)
        first = next(engine.module.parameters())
        self.assertEqual(engine.read(first, lowlevel.VALUE_EXP_AVG).abs().max(), 0)
        self.assertTrue(numpy.array_equal(engine.read(first, lowlevel.VALUE_MASTER), numpy.load(DATA / "zero2.npz")["a.weight/master"]))
        engine.destroy()

    def test_distributed(self):
        """A training of plain PyTorch, saved by torch.distributed.checkpoint, on one process; by names and by the optimizer's numbers."""
        from torch.distributed.checkpoint.state_dict import get_state_dict
        for by_names in (True, False):
            model = cases.net(3)
            optimizer = torch.optim.AdamW(cases.groups(model), lr=5e-3, betas=(0.8, 0.95), eps=1e-7)
            train(model, optimizer, 0, 3)
            folder = self.shared_folder()
            if self.comm.rank == 0:
                states = get_state_dict(model, optimizer) if by_names else (model.state_dict(), optimizer.state_dict())
                save_alone({"model": states[0], "optimizer": states[1], "epoch": 2}, folder)
            self.comm.barrier()
            expected = [each.detach().clone() for each in model.parameters()]
            engine = start("zero2", self.comm, gradient_clipping=0.0, scheduler=None)
            _, client = engine.load_checkpoint(folder)
            self.assertEqual((client, engine.global_steps, engine.module.calls.item(), engine.get_lr()), ({"epoch": 2}, 3, 3, [5e-3, 5e-3]))
            for ours, its in zip(engine.module.parameters(), expected):
                self.assertTrue(torch.equal(engine.read(ours, lowlevel.VALUE_MASTER if ours.requires_grad else lowlevel.VALUE_PUBLISHED), its))
            losses = self.mean(cases.train(engine, 3, 8, self.comm.rank, self.comm.size, torch.float32))
            for ours, its in zip(losses, train(model, optimizer, 3, 8)):
                self.assertLess(abs(ours - its), 2e-6 * its)
            engine.destroy()
            self.comm.barrier()
            if self.comm.rank == 0:
                data = Path(folder) / "__0_0.distcp"
                data.write_bytes(data.read_bytes()[:-2000])
            self.comm.barrier()
            engine = start("zero2", self.comm)
            self.refused(engine, "__0_0.distcp", folder)
            engine.destroy()
            self.comm.barrier()
            if self.comm.rank == 0:
                shutil.rmtree(folder)

    def late(self, options):
        """A training of plain PyTorch one of whose layers has no gradient in its first three steps, and a function that goes on with it."""
        torch.manual_seed(3)
        model = cases.Late()
        make = torch.optim.AdamW if "betas" in options else torch.optim.SGD
        optimizer = make(model.inner(), **options)

        def go(begin, end):
            model.used = begin >= 3
            return train(model, optimizer, begin, end)

        go(0, 3)
        return model, optimizer, go

    def test_states_that_pytorch_has_not_made_yet(self):
        """Those of a parameter without a gradient so far: zeros, and no updates. One that is frozen may be in the optimizer, too."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
        adamw = {"lr": 5e-3, "betas": (0.8, 0.95), "eps": 1e-7, "weight_decay": 0.1}
        sgd = {"lr": 0.05, "momentum": 0.9}
        for options, form in ((adamw, "names"), (adamw, "flat"), (adamw, "numbers"), (sgd, "names")):
            with self.subTest(form=form, **options):
                model, optimizer, go = self.late(options)
                folder, own = self.shared_folder(), self.shared_folder()
                if self.comm.rank == 0:
                    states = (model.state_dict(), optimizer.state_dict()) if form == "numbers" else get_state_dict(
                        model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=form == "flat"))
                    save_alone({"model": states[0], "optimizer": states[1]}, folder)
                    if form != "numbers" and options is adamw:
                        foreign.convert(foreign.open(folder), own, "converted")
                self.comm.barrier()
                weight = model.late.weight.detach().clone()
                expected = go(3, 8)
                for each in (folder, own) if form != "numbers" and options is adamw else (folder,):
                    more = {"gradient_clipping": 0.0, "scheduler": None, "optimizer": {"type": type(optimizer).__name__, "params": options}}
                    ours = cases.Late()
                    engine, *_ = outrigger.torch.initialize(model=ours, model_parameters=ours.inner(), comm=self.comm,
                                                            config=cases.config(2, more, self.comm.size))
                    engine.load_checkpoint(each)
                    late = engine.module.late.weight
                    self.assertTrue(torch.equal(engine.read(late, lowlevel.VALUE_MASTER), weight))
                    moments = [engine.read(late, value) for value in (lowlevel.VALUE_EXP_AVG, lowlevel.VALUE_EXP_AVG_SQ)[:1 if options is sgd else 2]]
                    self.assertEqual([moment.abs().max() for moment in moments], [0] * len(moments))
                    if options is adamw:
                        counts = engine._library.get_progress()["parameters"]
                        self.assertEqual((counts["updates"], sorted(counts["other_updates"])), (3, [["late.bias", 0], ["late.weight", 0]]))
                    engine.module.used = True
                    losses = self.mean(cases.train(engine, 3, 8, self.comm.rank, self.comm.size, torch.float32))
                    for loss, its in zip(losses, expected):
                        self.assertLess(abs(loss - its), 2e-6 * its)
                    engine.destroy()
                self.comm.barrier()
                if self.comm.rank == 0:
                    shutil.rmtree(folder)
                    shutil.rmtree(own)

    def test_nor_deepspeed_at_stage_0(self):
        folder = self.shared_folder()
        if self.comm.rank == 0:
            shutil.copytree(DATA / "zero0", folder, dirs_exist_ok=True)
            file = Path(folder) / "global_step8/mp_rank_00_model_states.pt"
            state = torch.load(file, weights_only=False)
            del state["optimizer"]["state"][6]  # of c.bias
            torch.save(state, file)
        self.comm.barrier()
        engine = start("zero0", self.comm)
        engine.load_checkpoint(folder)
        for value in (lowlevel.VALUE_EXP_AVG, lowlevel.VALUE_EXP_AVG_SQ):
            self.assertEqual([bool(engine.read(each, value).any()) for each in (engine.module.c.weight, engine.module.c.bias)], [True, False])
        self.assertEqual(engine._library.get_progress()["parameters"]["other_updates"], [["c.bias", 0]])
        engine.destroy()
        self.comm.barrier()
        if self.comm.rank == 0:
            shutil.rmtree(folder)

    def test_rows_of_several_ranks(self):
        """As FSDP saves them; what is cut into columns is refused."""
        import torch.distributed.checkpoint as distributed
        from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
        mesh = init_device_mesh("cpu", (self.comm.size,))
        whole = torch.arange(35.0).reshape(7, 5)
        for dimension in (0, 1):
            folder = self.shared_folder()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                state = {"model": {"w": distribute_tensor(whole, mesh, [Shard(dimension)])}}
                distributed.save(state, storage_writer=distributed.FileSystemWriter(folder))
            self.comm.barrier()
            if dimension == 0 or self.comm.size == 1:
                self.assertTrue(numpy.array_equal(foreign.open(folder).read("w"), whole.numpy()))
            else:
                with self.assertRaisesRegex(foreign.ForeignError, "only tensors that are cut into rows"):
                    foreign.open(folder)
            self.comm.barrier()
            if self.comm.rank == 0:
                shutil.rmtree(folder)

    # ---- What is refused leaves the engine as it was ----

    def refused(self, engine, expected, folder, **options):
        parameters = [each for each in engine.module.parameters() if each.requires_grad]
        before = [engine.read(each, lowlevel.VALUE_MASTER) for each in parameters], engine._library.get_progress()
        with self.assertRaisesRegex((ValueError, RuntimeError), expected):
            engine.load_checkpoint(folder, **options)
        after = [engine.read(each, lowlevel.VALUE_MASTER) for each in parameters], engine._library.get_progress()
        self.assertTrue(all(map(torch.equal, before[0], after[0])))
        self.assertEqual(before[1], after[1])
        self.assertEqual((engine.global_steps, engine.module.calls.item()), (0, 0))

    def test_what_does_not_fit(self):
        engine = start("zero2_sgd", self.comm)
        engine.load_checkpoint(DATA / "zero2_sgd", load_module_only=True)
        engine.destroy()
        engine = start("zero2", self.comm)
        self.refused(engine, "has no exp_avg_sq of", DATA / "zero2_sgd")
        engine.destroy()
        model = torch.nn.Sequential(torch.nn.Linear(7, 3))
        engine, *_ = outrigger.torch.initialize(model=model, config=cases.config(2, {}, self.comm.size), comm=self.comm)
        with self.assertRaisesRegex(ValueError, "the parameters are not the checkpoint's: it has no .*0.weight"):
            engine.load_checkpoint(DATA / "zero2")
        engine.destroy()

    def test_a_missing_file(self):
        folder = self.shared_folder()
        if self.comm.rank == 0:
            shutil.copytree(DATA / "zero3", folder, dirs_exist_ok=True)
            os.unlink(Path(folder) / "global_step8/zero_pp_rank_1_mp_rank_00_optim_states.pt")
        self.comm.barrier()
        engine = start("zero3", self.comm)
        self.refused(engine, "no file of rank 1", folder)
        engine.destroy()
        self.comm.barrier()
        if self.comm.rank == 0:
            shutil.rmtree(folder)

    def test_it_is_saved_as_ours(self):
        """And goes on from that."""
        folder = self.shared_folder()
        engine = start("zero2", self.comm)
        engine.load_checkpoint(DATA / "zero2")
        engine.save_checkpoint(folder)
        engine.destroy()
        engine = start("zero2", self.comm, 3)
        engine.load_checkpoint(folder)
        self.require_values(engine, "zero2")
        self.assertIsNone(foreign.find(folder))
        engine.destroy()
        self.comm.barrier()
        if self.comm.rank == 0:
            shutil.rmtree(folder)


if __name__ == "__main__":
    unittest.main()
