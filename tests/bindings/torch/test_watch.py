# SPDX-License-Identifier: Apache-2.0
"""Records of a PyTorch engine's steps: the loss comes along, and a configuration's sections of DeepSpeed's monitors write its curves.

    outrigger run -n 2 -- python test_watch.py
"""
import csv
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from models import net
from test_gradients import engine_of

import outrigger.torch


def losses_of(engine, count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        x, t = torch.randn(8, 6, generator=generator), torch.randn(8, 4, generator=generator)
        yield torch.nn.functional.mse_loss(engine(x), t)


class Watched(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_the_loss_is_the_windows_mean(self):
        records, expected = [], []
        engine = engine_of(net(), 2, 3, {"train_micro_batch_size_per_gpu": 2})
        engine.watch(records.append, records=self.folder / "r", trace=self.folder / "t")
        for window in range(2):
            losses = []
            for number, loss in enumerate(losses_of(engine, 3, window)):
                losses.append(loss.item())
                if number == 1:
                    engine.backward(loss / 3, scale_wrt_gas=False)  # the caller has divided
                else:
                    engine.backward(loss)
                engine.note(accuracy=window + number / 10)
                engine.step()
            expected.append(sum(losses) / 3)
        self.assertEqual(len(records), 2)
        for record, loss, window in zip(records, expected, (0, 1), strict=True):
            self.assertAlmostEqual(record["notes"]["loss"], loss, 6)
            self.assertEqual(record["notes"]["accuracy"], window + 0.2)
            self.assertEqual(record["grad_norm"] > 0, True)
        self.assertTrue(list((self.folder / "r").iterdir()) and list((self.folder / "t").iterdir()))
        engine.destroy()

    def test_a_loss_whose_gradients_were_dropped_does_not_count(self):
        records = []
        engine = engine_of(net(), 1, 1, {})
        engine.watch(records.append)
        dropped, kept = losses_of(engine, 2)
        engine.backward(dropped)
        engine.zero_grad()
        engine.backward(kept)
        engine.step()
        self.assertAlmostEqual(records[0]["notes"]["loss"], kept.item(), 6)
        engine.destroy()

    def test_without_a_watch_no_loss_is_kept(self):
        engine = engine_of(net(), 2, 1, {})
        for loss in losses_of(engine, 2):
            engine.backward(loss)
            self.assertEqual(engine._losses, [])
            engine.step()
        engine.destroy()

    def test_the_last_of_a_callers_own_notes_wins(self):
        records = []
        engine = engine_of(net(), 1, 1, {})
        engine.watch(records.append)
        for loss in losses_of(engine, 1):
            loss.backward()
            engine.note(loss=7)
            engine.step()
        self.assertEqual(records[0]["notes"], {"loss": 7.0})
        engine.destroy()


class Monitors(unittest.TestCase):
    """DeepSpeed's sections: its names, files and numbers of samples, on rank 0 alone."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        names = [folder.name]
        if dist.is_initialized():
            dist.broadcast_object_list(names)  # a configuration is alike on all ranks
        self.folder = Path(names[0])
        self.ranks = dist.get_world_size() if dist.is_initialized() else 1
        self.writes = not dist.is_initialized() or dist.get_rank() == 0

    def train(self, sections, windows=3):
        engine = engine_of(net(), 2, 2, {"train_micro_batch_size_per_gpu": 2, **sections})
        losses = []
        for loss in losses_of(engine, 2 * windows):
            losses.append(loss.item())
            engine.backward(loss)
            engine.step()
        engine.destroy()
        return [(a + b) / 2 for a, b in zip(losses[::2], losses[1::2], strict=True)]

    def test_csv(self):
        losses = self.train({"csv_monitor": {"enabled": True, "output_path": str(self.folder), "job_name": "job"}})
        if not self.writes:
            return
        with open(self.folder / "job/Train_Samples_train_loss.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([int(row["step"]) for row in rows], [4 * self.ranks, 8 * self.ranks, 12 * self.ranks])
        for row, loss in zip(rows, losses, strict=True):
            self.assertAlmostEqual(float(row["train_loss"]), loss, 6)
        self.assertEqual((self.folder / "job/Train_Samples_lr.csv").read_text(encoding="utf-8").splitlines()[0], "step,lr")
        self.assertFalse((self.folder / "job/Train_Samples_loss_scale.csv").exists(), "there is no scaling")

    def test_csv_under_a_loss_scale(self):
        self.train({"csv_monitor": {"enabled": True, "output_path": str(self.folder)}, "fp16": {"enabled": True, "loss_scale": 8, "auto_cast": True}})
        if self.writes:
            lines = (self.folder / "DeepSpeedJobName/Train_Samples_loss_scale.csv").read_text(encoding="utf-8").splitlines()
            self.assertEqual(lines, ["step,loss_scale", *(f"{samples * self.ranks},8.0" for samples in (4, 8, 12))])

    def test_tensorboard(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        losses = self.train({"tensorboard": {"enabled": True, "output_path": str(self.folder), "job_name": "job"}})
        if not self.writes:
            return
        events = EventAccumulator(str(self.folder / "job"))
        events.Reload()
        curve = events.Scalars("Train/Samples/train_loss")
        self.assertEqual([each.step for each in curve], [4 * self.ranks, 8 * self.ranks, 12 * self.ranks])
        for each, loss in zip(curve, losses, strict=True):
            self.assertAlmostEqual(each.value, loss, 5)

    def test_wandb(self):
        run = mock.Mock()
        wandb = mock.Mock(init=mock.Mock(return_value=run))
        with mock.patch.dict(sys.modules, {"wandb": wandb}):
            losses = self.train({"wandb": {"enabled": True, "project": "p", "team": "t", "group": "g"}}, windows=1)
        if not self.writes:
            wandb.init.assert_not_called()
            return
        wandb.init.assert_called_once_with(project="p", group="g", entity="t")
        (events,), options = run.log.call_args
        self.assertEqual(options["step"], 4 * self.ranks)
        self.assertAlmostEqual(events["Train/Samples/train_loss"], losses[0], 6)

    def test_switched_off_and_missing(self):
        self.train({"tensorboard": {"enabled": False}, "csv_monitor": {"output_path": str(self.folder)}}, windows=1)
        if self.writes:
            self.assertEqual(list(self.folder.iterdir()), [])
        if self.ranks == 1:  # another rank would go on alone
            with mock.patch.dict(sys.modules, {"wandb": None}), self.assertRaisesRegex(ImportError, '"wandb" is enabled.*pip install wandb'):
                self.train({"wandb": {"enabled": True}})


if __name__ == "__main__":
    if "WORLD_SIZE" in os.environ:
        outrigger.torch.init_distributed()
    unittest.main()
