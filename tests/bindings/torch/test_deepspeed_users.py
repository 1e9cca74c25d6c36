# SPDX-License-Identifier: Apache-2.0
"""What users of DeepSpeed expect of names that they know; behaviour of DeepSpeed 0.19.8, tried beside.

    outrigger run -n 2 -- python test_deepspeed_users.py     also where ranks differ
"""
import copy
import os
import unittest

import torch
import torch.distributed as dist
from models import config, net, solo
from test_gradients import engine_of

import outrigger.torch
from outrigger.torch import utils, zero
from outrigger.torch.owned import ZeroParamStatus


def ranks():
    return dist.get_world_size() if dist.is_initialized() else 1


def loss_of(engine, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x, t = torch.randn(8, 6, generator=generator), torch.randn(8, 4, generator=generator)
    return torch.nn.functional.mse_loss(engine(x), t)


class Counts(unittest.TestCase):
    def test_backwards_where_the_caller_counts(self):
        engine = engine_of(net(), 2, 3, {"managed_gradient_accumulation": False, "train_micro_batch_size_per_gpu": 2})
        samples = []
        for step, backwards in enumerate((2, 5, 3)):
            for each in range(backwards):
                loss = loss_of(engine, each)
                if each % 2:
                    loss.backward()
                else:
                    engine.backward(loss)
            torch.autograd.grad(loss_of(engine), engine.module.a.weight)  # is none
            engine.step()
            self.assertEqual(engine.global_steps, step + 1)
            samples.append(engine.global_samples)
        self.assertEqual((samples, engine.micro_steps), ([4 * ranks(), 14 * ranks(), 20 * ranks()], 10))

    def test_steps_where_the_engine_counts(self):
        engine = engine_of(net(), 2, 2, {"train_micro_batch_size_per_gpu": 2})
        for each in range(4):
            loss_of(engine, each).backward(retain_graph=True)
            loss_of(engine, each).backward()
            engine.step()
        self.assertEqual((engine.micro_steps, engine.global_steps, engine.global_samples), (4, 2, 8 * ranks()))

    def test_norm_of_the_last_window(self):
        engine, norms = engine_of(net(), 2, 2, {}), []
        for each in range(5):
            loss_of(engine, each).backward()
            engine.step()
            norms.append(engine.get_global_grad_norm())
        self.assertIsNone(norms[0])
        self.assertGreater(norms[1], 0)
        self.assertEqual((norms[2], norms[4]), (norms[1], norms[3]))
        self.assertNotEqual(norms[1], norms[3])

    def test_reductions_are_coalesced(self):
        """As they are anyway: the sum is the same, and what would be lost is refused."""
        engine, reference = engine_of(net(), 2, 1, {}), engine_of(net(), 2, 1, {})
        with engine.coalesce_grad_reduction():
            engine.backward(loss_of(engine, 1))
            engine.backward(loss_of(engine, 2))
            with self.assertRaisesRegex(RuntimeError, "end the block first"):
                engine.step()
            with self.assertRaisesRegex(RuntimeError, "inside another"), engine.coalesce_grad_reduction():
                pass
        (loss_of(reference, 1) + loss_of(reference, 2)).backward()
        for each in (engine, reference):
            each.step()
        for one, other in zip(engine.module.parameters(), reference.module.parameters()):
            self.assertLess((one - other).abs().max(), 1e-6)


class Frozen(unittest.TestCase):
    def test_has_no_gradient_master_or_states(self):
        model = net()
        model.b.requires_grad_(False)
        engine = engine_of(model, 2, 1, {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})
        loss_of(engine).backward()
        for get, *key in ((utils.safe_get_full_grad,), (utils.safe_get_full_fp32_param,), (utils.safe_get_full_optimizer_state, "exp_avg"),
                          (utils.safe_get_local_grad,), (utils.safe_get_local_fp32_param,), (utils.safe_get_local_optimizer_state, "exp_avg")):
            self.assertIsNone(get(engine.module.b.weight, *key), get.__name__)
            self.assertIsNotNone(get(engine.module.a.weight, *key), get.__name__)

    def test_gradient_that_no_rank_gave(self):
        engine = engine_of(net(), 2, 1, {})
        engine.module.a(torch.ones(2, 6)).sum().backward()
        self.assertIsNotNone(utils.safe_get_full_grad(engine.module.a.weight))
        self.assertIsNone(utils.safe_get_full_grad(engine.module.b.weight))

    def test_gradient_edited_in_two_places(self):
        engine = engine_of(net(), 2, 1, {})
        loss_of(engine).backward()
        weight = engine.module.a.weight
        shown = weight.grad
        shown.fill_(2)
        self.assertEqual(utils.safe_get_full_grad(weight).mean(), 2)
        shown.fill_(3)
        self.assertEqual(utils.safe_get_full_grad(weight).mean(), 3)
        utils.safe_set_full_grad(weight, torch.full_like(weight, 4))
        self.assertEqual(weight.grad.mean(), 4)


class Gathered(unittest.TestCase):
    def test_written_before_initialize(self):
        for writer in {0, ranks() - 1}:
            torch.manual_seed(0)
            model = torch.nn.Linear(6, 4)
            with zero.GatheredParameters([model.weight, model.weight], modifier_rank=writer), torch.no_grad():
                model.weight.fill_(7 + (dist.get_rank() if dist.is_initialized() else 0))
            engine = engine_of(model, 3, 1, {})
            with zero.GatheredParameters(engine.module.weight):
                self.assertEqual(engine.module.weight.mean(), 7 + writer)
            engine.destroy()
        with self.assertRaisesRegex(ValueError, "outside 0.."), zero.GatheredParameters(model.weight, modifier_rank=9):
            pass

    def test_written_without_a_rank(self):
        for write in (lambda each: each.data.add_(1), lambda each: torch.nn.init.ones_(each), lambda each: setattr(each, "data", each * 2)):
            # Ranks would write into one memory.
            makes = (copy.deepcopy, lambda model: engine_of(model, 3, 1, {}).module)[:1 if ranks() > 1 else 2]
            for make in makes:
                model = make(net())
                with self.assertRaisesRegex(RuntimeError, "without modifier_rank"), zero.GatheredParameters(model.a.weight), torch.no_grad():
                    write(model.a.weight)
        with zero.GatheredParameters(net().parameters()):
            pass


class Slices(unittest.TestCase):
    """What libraries ask of a parameter of stage 3."""

    def asked(self, parameter, status):
        self.assertEqual((parameter.ds_shape, parameter.ds_numel, parameter.ds_status), (torch.Size([16, 6]), 96, status))

    def test_say_so_in_an_engine(self):
        engine = engine_of(net(), 3, 1, {"outrigger": {"share_parameters": False},
                                         "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}})
        weight, status = engine.module.a.weight, ZeroParamStatus
        self.asked(weight, status.NOT_AVAILABLE)
        with zero.GatheredParameters(weight):
            self.asked(weight, status.AVAILABLE)
        self.asked(weight, status.NOT_AVAILABLE)
        numbers = [each.ds_id for each in engine.module.parameters()]
        self.assertEqual(sorted(set(numbers)), numbers)
        engine.destroy()
        self.assertFalse(hasattr(weight, "ds_id"))

    def test_say_so_before_initialize(self):
        with zero.Init():
            model = torch.nn.Linear(256, 256)
        if ranks() == 1:
            self.assertFalse(hasattr(model.weight, "ds_id"))
            return
        self.assertEqual((model.weight.ds_status, model.weight.ds_numel), (ZeroParamStatus.NOT_AVAILABLE, 65536))
        with zero.GatheredParameters(model.weight):
            self.assertEqual(model.weight.ds_status, ZeroParamStatus.AVAILABLE)
        numbers = [None] * ranks()
        dist.all_gather_object(numbers, model.weight.ds_id)
        self.assertEqual(len(set(numbers)), 1)


class Weights(unittest.TestCase):
    def test_set_between_a_backward_and_its_step(self):
        engine = engine_of(net(), 2, 2, {})
        loss_of(engine).backward()
        weight = engine.module.a.weight
        with self.assertRaisesRegex(RuntimeError, "before the window's first backward or after step"):
            utils.safe_set_full_fp32_param(weight, torch.zeros_like(weight))


class States(unittest.TestCase):
    def test_are_not_saved_as_nothing(self):
        engine = engine_of(net(), 2, 1, {})
        for call, *given in (("state_dict",), ("load_state_dict", {})):
            with self.assertRaisesRegex(NotImplementedError, f"optimizer.{call}: .*full_state"):
                getattr(engine.optimizer, call)(*given)


class Arguments(unittest.TestCase):
    def test_both_optimizers(self):
        """The argument wins, with a warning."""
        model = net()
        with self.assertLogs("outrigger.torch", "WARNING") as logs:
            engine, *_ = outrigger.torch.initialize(model=model, config=config(), optimizer=torch.optim.AdamW(model.parameters(), 0.125),
                                                    **({} if dist.is_initialized() else {"comm": solo()}))
        self.assertEqual(engine.get_lr(), [0.125])
        self.assertIn("optimizer= is used", logs.output[0])


class Configurations(unittest.TestCase):
    def test_errors_are_what_scripts_catch(self):
        for kind in (ValueError, AssertionError, outrigger.OutriggerError, outrigger.torch.ConfigError):
            with self.assertRaisesRegex(kind, "^OTR_E_CONFIG: .*stage = 7 is not legal; legal: an integer from 0 to 3") as caught:
                engine_of(net(), 7, 1, {})
            self.assertEqual(caught.exception.name, "OTR_E_CONFIG")

    def test_nothing_that_is_done_is_warned_of(self):
        done = {"steps_per_print": 2, "dataloader_drop_last": True, "torch_autocast": {"enabled": True, "dtype": "bfloat16"},
                "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}}
        with self.assertNoLogs("outrigger", "WARNING"):
            engine_of(net(), 3, 1, done)
        with self.assertLogs("outrigger", "WARNING") as logs:
            engine_of(net(), 3, 1, {**done, "dump_state": True, "outrigger": {"host_keys": ["wall_clock_breakdown"]}, "wall_clock_breakdown": True})
        self.assertRegex(logs.output[0], "not act on them: dump_state$")

    def test_progress_is_told_every_so_many_steps(self):
        engine = engine_of(net(), 2, 2, {"steps_per_print": 2})
        is_first = engine.global_rank == 0
        with self.assertLogs("outrigger.torch", "INFO") if is_first else self.assertNoLogs("outrigger.torch", "INFO") as logs:
            for _ in range(10):
                loss_of(engine).backward()
                engine.step()
        if is_first:
            self.assertEqual([each.split(":")[2].split(",")[0] for each in logs.output], ["step=2", "step=4"])

    def test_the_last_short_batch_is_dropped_where_asked(self):
        for drops in (False, True):
            engine = engine_of(net(), 2, 1, {"dataloader_drop_last": drops})
            loader = engine.deepspeed_io(torch.utils.data.TensorDataset(torch.ones(11 * ranks(), 6)), batch_size=8)
            self.assertEqual([len(batch) for batch, in loader], [8] if drops else [8, 3])


if __name__ == "__main__":
    if "WORLD_SIZE" in os.environ:
        outrigger.torch.init_distributed()
    unittest.main()
