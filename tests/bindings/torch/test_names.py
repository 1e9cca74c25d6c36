# SPDX-License-Identifier: Apache-2.0
"""Names of DeepSpeed that training scripts use beside backward and step."""
import copy
import os
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from models import engine_of, furthest, master_of, net, solo

import outrigger.torch
from outrigger.torch import utils
from outrigger.torch.moved import OffloadStateTypeEnum


class Names(unittest.TestCase):
    def test_questions(self):
        engine = engine_of(net(), stage=2, bf16={"enabled": True})
        self.assertEqual((engine.dp_world_size, engine.local_rank), (1, 0))
        self.assertTrue(engine.zero_optimization_partition_gradients())
        self.assertFalse(engine.zero_optimization_partition_weights())
        engine.allreduce_gradients()
        engine.empty_partition_cache()

    def test_questions_about_the_configuration(self):
        given = {"gradient_accumulation_steps": 3, "optimizer": {"type": "AdamW", "params": {"lr": 0.25}}, "bf16": {"enabled": True},
                 "zero_optimization": {"stage": 3, "reduce_bucket_size": 1024, "stage3_param_persistence_threshold": 7,
                                       "offload_optimizer": {"device": "cpu", "ratio": 0.25}},
                 "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 4}}, "steps_per_print": float("inf")}
        before = copy.deepcopy(given)
        engine, *_ = outrigger.torch.initialize(model=net(), config=given, comm=solo())
        self.assertEqual(given, before)
        self.assertEqual(engine.config, before)
        self.assertEqual((engine.zero_reduce_bucket_size(), engine.zero_param_persistence_threshold()), (1024, 7))
        self.assertEqual((engine.optimizer_params(), engine.scheduler_params()), ({"lr": 0.25}, {"warmup_num_steps": 4}))
        self.assertEqual((engine.managed_gradient_accumulation(), engine.gradient_accumulation_steps()), (True, 3))
        self.assertEqual((engine.zero_offload_optimizer()["device"], engine.zero_partial_offload()), ("cpu", 0.25))
        self.assertIsNone(engine.zero_offload_param())
        self.assertEqual(engine.get_data_types()[0], torch.bfloat16)
        self.assertEqual(engine.communication_data_type, torch.bfloat16)
        self.assertEqual((engine.torch_autocast_enabled(), engine.torch_autocast_dtype(), engine.fp16_enabled()), (False, None, False))
        self.assertEqual((engine.get_data_parallel_rank(), engine.get_model_parallel_rank(), engine.mp_world_size), (0, 0, 1))
        self.assertTrue(engine.is_map_style_dataset([1]))
        with engine.coalesce_grad_reduction():
            engine(torch.ones(8, 6).bfloat16()).sum().backward()
        engine.step()
        state = engine._zero3_consolidated_16bit_state_dict()
        self.assertEqual((set(state), {each.dtype for each in state.values()}), (set(engine.module.state_dict()), {torch.bfloat16}))
        self.assertTrue(torch.equal(state["a.weight"], engine.module.a.weight))
        self.assertNotEqual(state["a.weight"].data_ptr(), engine.module.a.weight.data_ptr())

    def test_states_leave_and_come_back(self):
        for stage in (1, 3):
            for include in (None, ["hp_params", "optim_states"], [OffloadStateTypeEnum.lp_params], ()):
                with self.subTest(stage=stage, include=include):
                    engines = [engine_of(net(), stage=stage), engine_of(net(), stage=stage)]
                    for step in range(4):
                        for engine in engines:
                            engine(torch.ones(8, 6) * (step + 1)).sum().backward()
                            engine.step()
                        moved = engines[1]
                        moved.offload_states(include)
                        if include is None:
                            for call, given in ((moved, torch.ones(8, 6)), (moved.step, None), (moved.offload_states, None), (master_of, moved)):
                                self.assertRaisesRegex(RuntimeError, "reload_states", call, *([] if given is None else [given]))
                        if include == ["hp_params", "optim_states"]:
                            moved(torch.ones(8, 6))
                        if include != ():
                            moved.reload_states(non_blocking=True)
                    for own, other in zip(*map(master_of, engines), strict=True):
                        self.assertTrue(torch.equal(own, other))
        self.assertRaisesRegex(ValueError, "device = 'nvme'", engines[0].offload_states, None, "nvme")
        self.assertRaisesRegex(ValueError, "include has 'adam'; legal are optim_states", engines[0].offload_states, ["adam"])
        self.assertRaisesRegex(RuntimeError, "otr_engine_offload_states comes first", engines[0].reload_states)

    def test_learning_rate(self):
        engine = engine_of(net())
        engine.set_lr(0.0)
        before = master_of(engine)
        engine(torch.ones(8, 6)).sum().backward()
        engine.step()
        self.assertEqual(engine.get_lr(), [0.0])
        for one, other in zip(before, master_of(engine)):
            self.assertTrue(torch.equal(one, other))

    def test_weights(self):
        engine, other = engine_of(net(), stage=3, bf16={"enabled": True}), net(3)
        engine.load_module_state_dict(other.bfloat16().state_dict())
        self.assertEqual(furthest(other, engine), 0)
        with tempfile.TemporaryDirectory() as folder:
            self.assertTrue(engine.save_16bit_model(Path(folder) / "new", "model.bin"))
            saved = torch.load(Path(folder) / "new/model.bin")
        for name, value in engine.module_state_dict().items():
            self.assertEqual(saved[name].dtype, torch.bfloat16)
            self.assertTrue(torch.equal(saved[name], value))
        with self.assertRaisesRegex(NotImplementedError, "exclude_frozen_parameters"):
            engine.save_16bit_model("unused", exclude_frozen_parameters=True)

    def test_what_neither_has(self):
        engine = engine_of(net())
        self.assertFalse(hasattr(engine, "get_pld_theta"))
        with self.assertRaisesRegex(AttributeError, "nor its module, a Net, has the name 'get_pld_theta'"):
            engine.get_pld_theta()
        with self.assertRaisesRegex(AttributeError, "'set_train_batch_size'; refused: the accumulation of an engine is fixed"):
            engine.set_train_batch_size(64)
        self.assertIs(engine.a, engine.module.a)

    def test_leaf_modules(self):
        model = net()
        self.assertEqual(utils.set_z3_leaf_modules(model, [torch.nn.Linear]), [model.a, model.b, model.c])
        self.assertEqual(utils.unset_z3_leaf_modules(model, ["Linear"]), [model.a, model.b, model.c])
        utils.set_z3_leaf_module(model.b, True)
        self.assertEqual(utils.get_z3_leaf_modules(model), [model.b])
        self.assertTrue(utils.z3_leaf_module(model.b))
        with self.assertRaisesRegex(ValueError, "no module of the model has one of the classes Conv2d"):
            utils.set_z3_leaf_modules(model, [torch.nn.Conv2d])
        engine = engine_of(model, stage=3)
        engine(torch.ones(8, 6)).sum().backward()
        engine.step()
        self.assertEqual(engine.global_steps, 1)

    def test_adam_is_tested(self):
        for allowed in (True, False):
            config = {"zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": allowed}
            model = net()
            engine, *_ = outrigger.torch.initialize(model=model, config=config, comm=solo(),
                                                    optimizer=torch.optim.AdamW(model.parameters(), 0.1))
            self.assertEqual(engine.get_lr(), [0.1])

    def test_adam_with_either_decay(self):
        for make, name in ((torch.optim.Adam, "Adam"), (torch.optim.AdamW, "AdamW"),
                           (lambda p: torch.optim.Adam(p, decoupled_weight_decay=True), "AdamW")):
            model = net()
            engine, *_ = outrigger.torch.initialize(model=model, config={}, comm=solo(), optimizer=make(model.parameters()))
            self.assertEqual(engine.optimizer_name(), name)

    def test_a_loader_that_repeats(self):
        loader = utils.RepeatingLoader([1, 2, 3])
        self.assertEqual([next(loader) for _ in range(7)], [1, 2, 3, 1, 2, 3, 1])


GROUP_AT_EXIT = """
import atexit, torch.distributed
atexit.register(lambda: print("group at exit:", torch.distributed.is_initialized()))  # after what is registered later
import outrigger.torch
outrigger.torch.init_distributed()
assert torch.distributed.is_initialized()
"""


class EndOfAScript(unittest.TestCase):
    def run_script(self, text):
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False)

    def test_group_that_was_made_here_ends_before_the_interpreter(self):
        done = self.run_script(GROUP_AT_EXIT)
        self.assertEqual((done.returncode, done.stdout), (0, "group at exit: False\n"), done.stderr)

    def test_group_of_the_script_or_of_a_failed_one_stays(self):
        done = self.run_script(GROUP_AT_EXIT + "raise KeyError('lost')")
        self.assertEqual((done.returncode, done.stdout), (1, "group at exit: True\n"), done.stderr)
        done = self.run_script(GROUP_AT_EXIT.replace("outrigger.torch.init", """torch.distributed.init_process_group(
            "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)\noutrigger.torch.init"""))
        self.assertEqual(done.stdout, "group at exit: True\n", done.stderr)


IN_A_LAUNCHER = """
import os, torch, outrigger.torch
outrigger.torch.init_distributed(dist_backend="nccl")
dist = torch.distributed
assert dist.get_backend() == "gloo"
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(model.weight)
engine, *_ = outrigger.torch.initialize(model=model, config={"gradient_clipping": 0, "optimizer": {"type": "SGD", "params": {"lr": 1.0}}})
engine(torch.full((1, 1), 1.0 + dist.get_rank())).sum().backward()
engine.step()
print(dist.get_rank(), dist.get_world_size(), os.environ["LOCAL_RANK"], engine.global_rank, model.weight.item())
"""


class Launchers(unittest.TestCase):
    def run_ranks(self, variables):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        clean = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
        ranks = [subprocess.Popen([sys.executable, "-c", IN_A_LAUNCHER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**clean, "MASTER_PORT": port, **{name: str(values[rank]) for name, values in variables.items()}})
                 for rank in range(2)]
        done = [each.communicate(timeout=120) for each in ranks]
        self.assertEqual([each.returncode for each in ranks], [0, 0], done)
        return [out for out, _ in done]

    def test_mpirun_is_understood(self):
        expected = ["0 2 0 0 -1.5\n", "1 2 1 1 -1.5\n"]  # minus the mean of 1 and 2
        self.assertEqual(self.run_ranks({"OMPI_COMM_WORLD_RANK": (0, 1), "OMPI_COMM_WORLD_SIZE": (2, 2), "OMPI_COMM_WORLD_LOCAL_RANK": (0, 1),
                                         "OMPI_COMM_WORLD_LOCAL_SIZE": (2, 2)}), expected)
        self.assertEqual(self.run_ranks({"PMI_RANK": (0, 1), "PMI_SIZE": (2, 2), "MPI_LOCALRANKID": (0, 1), "MPI_LOCALNRANKS": (2, 2)}),
                         expected)


if __name__ == "__main__":
    unittest.main()
