# SPDX-License-Identifier: Apache-2.0
"""outrigger.torch.compat in the import system: specs, metadata, what is missing; and that of DeepSpeed's public names, in
surface.json, each is there or in the list of missing.py, which the documentation shows.

    test_compat.py Installed       needs torch
    test_compat.py Libraries       needs accelerate and transformers, too
    test_compat.py --record        writes surface.json: with a Python whose DeepSpeed is the real one, 0.19.8
"""
import importlib
import importlib.metadata
import importlib.util
import json
import subprocess
import sys
import types
import unittest
import warnings
from pathlib import Path

import torch

SURFACE = Path(__file__).with_name("surface.json")
PAGE = Path(__file__).parents[3] / "docs/pytorch.md"
PLACES = ("deepspeed", "deepspeed.checkpointing", "deepspeed.comm", "deepspeed.ops.adam", "deepspeed.runtime.lr_schedules", "deepspeed.utils",
          "deepspeed.utils.groups", "deepspeed.utils.logging", "deepspeed.zero", "deepspeed.accelerator")


class Installed(unittest.TestCase):
    def setUp(self):
        from outrigger.torch import compat
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # another test imported accelerate before
            compat.install()
        self.addCleanup(compat.uninstall)

    def test_specs(self):
        from outrigger.torch.compat.names import MODULES
        for name in MODULES:
            spec = importlib.util.find_spec(name)
            self.assertEqual((spec.name, spec.origin), (name, "outrigger.torch.compat"))
            self.assertEqual(spec.submodule_search_locations, [])
            self.assertIs(importlib.import_module(name), sys.modules[name])
        import deepspeed
        self.assertIs(importlib.reload(deepspeed), deepspeed)
        self.assertTrue(callable(deepspeed.initialize))

    def test_metadata(self):
        version = importlib.metadata.version("deepspeed")
        self.assertTrue(version.startswith("0.19.8+outrigger"))
        self.assertEqual(importlib.metadata.metadata("DeepSpeed")["Name"], "deepspeed")
        self.assertEqual(list(importlib.metadata.distribution("deepspeed").files or []), [])
        self.assertIn("deepspeed", importlib.metadata.packages_distributions())
        self.assertIn("deepspeed", {each.name for each in importlib.metadata.distributions()})
        import deepspeed
        self.assertEqual(deepspeed.__version__, version)
        self.assertEqual((deepspeed.__version_major__, deepspeed.__version_minor__), (0, 19))

    def test_what_is_not_there(self):
        self.assertIsNone(importlib.util.find_spec("deepspeed.pipe"))
        self.assertIsNone(importlib.util.find_spec("deepspeed.ops.unheard_of"))
        with self.assertRaisesRegex(ModuleNotFoundError, "deepspeed.pipe: .*refused: only data parallelism is built"):
            importlib.import_module("deepspeed.pipe")
        with self.assertRaisesRegex(ModuleNotFoundError, "deepspeed.ops.op_builder: .*refused: kernels"):
            importlib.import_module("deepspeed.ops.op_builder.cpu")
        with self.assertRaisesRegex(ModuleNotFoundError, "deepspeed.unheard_of: .*does not have it; it has the modules .*deepspeed.zero"):
            importlib.import_module("deepspeed.unheard_of")
        import deepspeed
        with self.assertRaisesRegex(AttributeError, "deepspeed.init_inference: .*refused: Outrigger trains"):
            deepspeed.init_inference(None)
        with self.assertRaisesRegex(AttributeError, "deepspeed.zero.unheard_of: .*it has GatheredParameters"):
            deepspeed.zero.unheard_of()
        with self.assertRaisesRegex(ModuleNotFoundError, "deepspeed.ops.adam.ZenFlowCPUAdam: .*refused: its states are split"):
            from deepspeed.ops.adam import ZenFlowCPUAdam  # noqa: F401
        with self.assertRaisesRegex(ImportError, "deepspeed.PipelineModule: .*refused: only data parallelism"):
            from deepspeed import PipelineModule  # noqa: F401
        self.assertFalse(hasattr(deepspeed, "InferenceEngine"))

    def test_uninstalled(self):
        from outrigger.torch import compat
        import deepspeed
        compat.uninstall()
        self.assertFalse([name for name in sys.modules if name.split(".")[0] == "deepspeed"])
        if importlib.util.find_spec("deepspeed") is None:
            with self.assertRaises(importlib.metadata.PackageNotFoundError):
                importlib.metadata.version("deepspeed")
        compat.install()
        compat.install()
        self.assertIsNot(sys.modules["deepspeed"], deepspeed)
        compat.uninstall()
        compat.uninstall()

    def test_accelerator(self):
        from deepspeed.accelerator import DeepSpeedAccelerator, get_accelerator
        accelerator = get_accelerator()
        self.assertIsInstance(accelerator, DeepSpeedAccelerator)
        state = accelerator.get_rng_state()
        first = torch.randn(5)
        accelerator.set_rng_state(state)
        self.assertTrue(torch.equal(torch.randn(5), first))
        accelerator.manual_seed(3)
        self.assertEqual(accelerator.initial_seed(), 3)
        self.assertIs(accelerator.default_generator(0), torch.default_generator)
        self.assertEqual(accelerator.FloatTensor([1, 2]).tolist(), [1.0, 2.0])
        self.assertEqual(accelerator.LongTensor(3, 2).shape, (3, 2))
        self.assertEqual(accelerator.BFloat16Tensor(4).dtype, torch.bfloat16)
        block = torch.ones(8 << 20)
        self.assertGreater(accelerator.max_memory_allocated(), block.nbytes)
        self.assertGreaterEqual(accelerator.max_memory_allocated(), accelerator.memory_allocated())
        self.assertGreater(accelerator.total_memory(), accelerator.available_memory())
        with accelerator.stream(accelerator.current_stream()):
            self.assertEqual(accelerator.lazy_call(lambda: 5), 5)
        self.assertEqual(accelerator.pin_empty(2, 3, dtype=torch.float16).shape, (2, 3))
        environment = {}
        accelerator.set_visible_devices_envs(environment, [0, 2])
        self.assertEqual(list(environment.values()), ["0,2"])

    def test_comm_and_groups(self):
        import deepspeed
        from deepspeed import comm as dist
        from deepspeed.utils import groups
        deepspeed.init_distributed()
        self.assertEqual((dist.get_rank(), dist.get_world_size(), dist.get_local_rank()), (0, 1, 0))
        self.assertEqual(dist.get_all_ranks_from_group(dist.get_world_group()), [0])
        values = [torch.ones(3), torch.full((2,), 2.0)]
        dist.all_reduce_coalesced(values)
        work = dist.all_reduce_coalesced(values, async_op=True)
        work.wait()
        self.assertTrue(work.is_completed())
        gathered = [torch.zeros(3), torch.zeros(2)]
        dist.all_gather_coalesced(gathered, values)
        self.assertEqual([each.tolist() for each in gathered], [[1.0] * 3, [2.0] * 2])
        self.assertEqual((groups._get_data_parallel_rank(), groups.get_data_parallel_world_size(), groups.get_model_parallel_world_size()),
                         (0, 1, 1))

    def test_checkpointing(self):
        from deepspeed import checkpointing
        checkpointing.configure(None, partition_activations=False)
        for checkpoint, named in ((checkpointing.checkpoint, True), (checkpointing.checkpoint, False),
                                  (checkpointing.non_reentrant_checkpoint, False)):
            calls, x, y = [], torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)

            def product(a, b, calls=calls):
                calls.append(1)
                return (a * b * b).sum()

            result = checkpoint(product, x, b=y) if named else checkpoint(product, x, y)
            result.backward()
            self.assertEqual((len(calls), x.grad.tolist(), y.grad.tolist()), (2, [4.0] * 3, [4.0] * 3))

    def test_tools(self):
        from deepspeed.checkpoint.utils import clone_tensors_for_torch_save
        from deepspeed.runtime.utils import ensure_directory_exists, set_random_seed
        from deepspeed.utils import OnDevice, recursive_getattr, recursive_setattr, set_z3_leaf_modules_by_name, z3_leaf_module
        from deepspeed.utils.logging import get_log_level_from_string
        with OnDevice(dtype=torch.bfloat16, device="meta"):
            made = torch.nn.Linear(2, 2)
        self.assertEqual((made.weight.device.type, made.weight.dtype, torch.get_default_dtype()), ("meta", torch.bfloat16, torch.float32))
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        recursive_setattr(model, "1.bias", None)
        self.assertIsNone(recursive_getattr(model, "1.bias"))
        self.assertEqual(set_z3_leaf_modules_by_name(model, ["1"]), [model[1]])
        self.assertTrue(z3_leaf_module(model[1]))
        with self.assertRaisesRegex(ValueError, "no module of the model is named 7"):
            set_z3_leaf_modules_by_name(model, ["7"])
        whole = torch.arange(6.0)
        copied = clone_tensors_for_torch_save({"a": [whole[:2]], "b": (whole[4:], 3)})
        self.assertEqual(copied["a"][0].untyped_storage().nbytes(), 8)
        self.assertEqual((copied["b"][0].tolist(), copied["b"][1]), ([4.0, 5.0], 3))
        set_random_seed(4)
        first = torch.randn(2)
        set_random_seed(4)
        self.assertTrue(torch.equal(first, torch.randn(2)))
        ensure_directory_exists(__file__)
        with self.assertRaisesRegex(ValueError, "log level 'loud' is not legal; legal: debug"):
            get_log_level_from_string("loud")

    # ---- The list ----

    def test_every_name_of_deepspeed_is_here_or_in_the_list(self):
        from outrigger.torch import Engine
        from outrigger.torch import missing
        for place, names in json.loads(SURFACE.read_text())["names"].items():
            for name in names:
                with self.subTest(f"{place}.{name}"):
                    row = missing.row_of(place, name)
                    if not self.has(place, name, Engine):
                        self.assertIsNotNone(row, "is neither here nor in missing.py")
                        self.assertNotEqual(row.kind, missing.NOTHING, "does nothing, because it is not here")
                    elif row is not None:
                        self.assertNotEqual(row.kind, missing.REFUSED, "is here, and refused in missing.py")

    def has(self, place, name, engine):
        if place == "engine":
            return hasattr(engine, name)
        if place == "accelerator":
            from deepspeed.accelerator import get_accelerator
            return hasattr(get_accelerator(), name)
        return name in vars(sys.modules[place])

    def test_the_list_names_nothing_that_deepspeed_has_not(self):
        from outrigger.torch import missing
        names = json.loads(SURFACE.read_text())["names"]
        for row in missing.TABLE:
            for pattern in row.names.split() if row.place in names else ():
                self.assertTrue(any(missing._matches(pattern, each) for each in (*names[row.place], *INSIDE)), f"{row.place}.{pattern}")

    def test_the_documentation_shows_it(self):
        from outrigger.torch import missing
        text = PAGE.read_text(encoding="utf-8")
        self.assertEqual(missing.shown_in(text), text, f"run: python -m outrigger.torch.missing {PAGE}")


# Modules, not functions or classes; and what is made when an engine is.
INSIDE = ("module_inject", "inference", "pipe", "sequence", "moe", "compression", "autotuning", "profiling", "monitor", "linear", "nvme", "io",
          "elasticity", "model_implementations", "timer", "get_pld_theta", "ProcessGroupWrapper")


def run(text, *options):
    return subprocess.run([sys.executable, *options, "-c", text], capture_output=True, text=True, timeout=300, check=False)


HIDDEN = """
import sys
class Hides:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names}:
            raise ModuleNotFoundError("hidden", name=name)
sys.meta_path.insert(0, Hides())
"""
LIBRARIES = """
import importlib.util
import outrigger.torch.compat
assert importlib.util.find_spec("deepspeed") is None
outrigger.torch.compat.install()
import {first}
import {second}
from transformers.integrations.deepspeed import is_deepspeed_available
import accelerate.utils
assert is_deepspeed_available() and accelerate.utils.is_deepspeed_available()
assert accelerate.utils.DeepSpeedEngineWrapper
outrigger.torch.compat.uninstall()
assert not accelerate.utils.is_deepspeed_available() and not is_deepspeed_available()
print("both")
"""


class Libraries(unittest.TestCase):
    def test_they_see_it_in_either_order(self):
        for first, second in (("accelerate", "transformers"), ("transformers", "accelerate")):
            done = run(LIBRARIES.format(first=first, second=second))
            self.assertEqual((done.returncode, done.stdout), (0, "both\n"), done.stderr)

    def test_too_late(self):
        done = run("import accelerate, outrigger.torch.compat as c; c.install()", "-W", "error::RuntimeWarning")
        self.assertIn("accelerate.utils came before outrigger.torch.compat.install()", done.stderr)

    def test_without_accelerate(self):
        done = run(HIDDEN.replace("{names}", "{'accelerate'}").replace("raise ModuleNotFoundError(\"hidden\", name=name)", "return None")
                   + "import outrigger.torch.compat as c\nc.install()\nimport transformers\nfrom transformers import GPT2Config\n"
                   "from transformers.integrations.deepspeed import is_deepspeed_available\nprint(is_deepspeed_available())\n")
        self.assertEqual((done.returncode, done.stdout), (0, "True\n"), done.stderr)

    def test_without_both(self):
        done = run(HIDDEN.format(names="{'accelerate', 'transformers'}") + "import outrigger.torch.compat as c\nc.install()\n"
                   "import deepspeed\nprint(deepspeed.DeepSpeedEngine.__module__)")
        self.assertEqual((done.returncode, done.stdout), (0, "outrigger.torch.engine\n"), done.stderr)


def record():
    import deepspeed
    from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator

    def own(place):
        module = deepspeed
        for part in place.split(".")[1:]:
            module = getattr(module, part)
        return sorted(name for name, value in vars(module).items() if not name.startswith("_") and isinstance(value, (type, types.FunctionType))
                      and (value.__module__ or place).startswith("deepspeed"))

    names = {place: own(place) for place in PLACES}
    names["engine"] = sorted(name for name in vars(deepspeed.DeepSpeedEngine) if not name.startswith("_"))
    names["accelerator"] = sorted(name for name in vars(DeepSpeedAccelerator) if not name.startswith("_"))
    SURFACE.write_text(json.dumps({"deepspeed": deepspeed.__version__, "names": names}) + "\n")


if __name__ == "__main__":
    if "--record" in sys.argv:
        record()
    else:
        unittest.main()
