# SPDX-License-Identifier: Apache-2.0
"""What a DeepSpeed script asks its engine: the configuration in effect, counts, rates, weights."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data

from .missing import ENGINE, reason
from .questions import Questions

if TYPE_CHECKING:
    from .. import Engine as LibraryEngine
    from .. import lowlevel
    from .. import Comm
    from .devices import Device
    from .gathering import Gathering
    from .optimizer import ZeroOptimizer
    from .parameters import Parameters


class Names(Questions):
    """Answers of an engine that only look something up."""

    optimizer: ZeroOptimizer
    report: lowlevel.StepReport | None
    _grad_norm: float | None
    micro_steps: Any  # a property of the engine
    world_size: int
    global_rank: int
    _library: LibraryEngine
    _step_applied: bool
    _comm: Comm
    module: torch.nn.Module
    parameters_of: Parameters
    gathering: Gathering | None
    _device: Device

    if TYPE_CHECKING:  # of the engine
        def whole(self, parameters: Iterable[torch.Tensor]) -> contextlib.AbstractContextManager[Any]: ...

    @property
    def device(self) -> torch.device:
        return self._device.device

    @property
    def dp_world_size(self) -> int:
        return self.world_size

    mp_world_size = sequence_parallel_size = seq_dp_world_size = 1
    has_moe_layers = pipeline_parallelism = is_compiled = False
    use_ds_comm = enable_backward_allreduce = True
    monitor = mpu = None
    dist_backend = "gloo"

    @property
    def data_parallel_group(self) -> torch.distributed.ProcessGroup | None:
        return torch.distributed.group.WORLD if torch.distributed.is_initialized() else None

    seq_data_parallel_group = data_parallel_group

    @property
    def basic_optimizer(self) -> torch.optim.Optimizer:
        return self.optimizer.optimizer

    def get_data_parallel_rank(self) -> int:
        return self.global_rank

    def get_model_parallel_rank(self) -> int:
        return 0

    get_tensor_parallel_rank = get_model_parallel_rank

    @property
    def local_rank(self) -> int:
        """On this host, as the launcher says it."""
        return int(os.environ.get("LOCAL_RANK", "0"))

    @property
    def global_samples(self) -> int | None:
        """Over all ranks; None where the configuration has no batch size."""
        size = self.train_micro_batch_size_per_gpu()
        return None if size is None else self.micro_steps * size * self.world_size

    def get_lr(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def set_lr(self, lr: float) -> None:
        """For all groups, from the next step on."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def get_mom(self) -> list[Any]:
        """Of each group: betas, or the momentum where the optimizer has no betas; None without either."""
        return [group.get("betas", group.get("momentum")) for group in self.optimizer.param_groups]

    def get_type(self) -> list[Any]:
        return [group.get("type", 0.0) for group in self.optimizer.param_groups]

    def get_global_grad_norm(self) -> float | None:
        """L2 norm of the last window's mean gradient, before clipping; None before the first window's end."""
        return self._grad_norm

    def was_step_applied(self) -> bool:
        return self._step_applied

    @property
    def loss_scale(self) -> float:
        return self.optimizer.cur_scale

    def get_loss_scale(self) -> float:
        return self.optimizer.cur_scale

    def memory(self) -> list[tuple[str, int, int]]:
        """The ledger: (purpose, resident bytes, peak bytes) of this rank, "total" last."""
        return self._library.memory

    def get_batch_info(self) -> tuple[int | None, int | None, int]:
        return self.train_batch_size(), self.train_micro_batch_size_per_gpu(), self.gradient_accumulation_steps()

    def deepspeed_io(self, dataset: torch.utils.data.Dataset[Any], batch_size: int | None = None, route: object = None,
                     pin_memory: bool = True, data_sampler: torch.utils.data.Sampler[Any] | None = None,
                     collate_fn: Callable[[list[Any]], Any] | None = None,
                     num_local_io_workers: int | None = None) -> torch.utils.data.DataLoader[Any]:
        """A torch DataLoader over this rank's part of the dataset."""
        return loader_of(dataset, batch_size or self.train_micro_batch_size_per_gpu(), self.world_size, self.global_rank,
                         collate_fn, num_local_io_workers or 0, self.dataloader_drop_last(), data_sampler)

    def allreduce_gradients(self, bucket_size: int | None = None) -> None:
        """Nothing: the library sums gradients while they come, and at step()."""

    def empty_partition_cache(self) -> None:
        """Nothing: no copies of parameters are kept."""

    def collect_python_gc(self) -> None:
        """Nothing: Python collects for itself."""

    def clip_fp32_gradients(self) -> None:
        """Nothing: step() clips."""

    def set_data_post_process_func(self, post_process_func: object) -> None:
        """Nothing: no data passes through the engine."""

    def is_map_style_dataset(self, obj: object) -> bool:
        return hasattr(obj, "__getitem__") and hasattr(obj, "__len__")

    def is_iterable_style_dataset(self, obj: object) -> bool:
        return isinstance(obj, torch.utils.data.IterableDataset)

    def module_state_dict(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """The module's state_dict; at stage 3 in slices one of whole copies. Collective there."""
        with self.whole(self.parameters_of.ids):
            state = self.module.state_dict(*arguments, **options)
            if self.gathering is not None:
                for name in state:
                    state[name] = state[name].clone()
            return state

    def load_module_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> Any:
        """All ranks alike; the weights become the masters, too."""
        return self.module.load_state_dict(state_dict, strict=strict)

    def _zero3_consolidated_16bit_state_dict(self, exclude_frozen_parameters: bool = False) -> dict[str, Any] | None:
        """What Accelerate and transformers save at stage 3: the module's state_dict in the compute dtype on rank 0, None on the
        others. Collective."""
        if exclude_frozen_parameters and any(not each.requires_grad for each in self.module.parameters()):
            raise NotImplementedError("exclude_frozen_parameters=True is not supported where parameters are frozen; leave them out of the "
                                      "saved dictionary yourself")
        with self.whole(self.parameters_of.ids):
            if self.global_rank != 0:
                return None
            return {name: value.detach().clone() for name, value in self.module.state_dict().items()}

    _consolidated_16bit_state_dict = _zero3_consolidated_16bit_state_dict

    def save_16bit_model(self, save_dir: str | os.PathLike[str], save_filename: str = "pytorch_model.bin",
                         exclude_frozen_parameters: bool = False) -> bool:
        """The module's state_dict in the compute dtype, written by rank 0 with torch.save. Collective. True: it was written."""
        if exclude_frozen_parameters:
            raise NotImplementedError("save_16bit_model: exclude_frozen_parameters=True is not supported; leave it out")
        with self.whole(self.parameters_of.ids):
            if self.global_rank == 0:
                os.makedirs(save_dir, exist_ok=True)
                # Whole tensors: views of shared memory are copied first.
                torch.save({name: value.detach().clone() for name, value in self.module.state_dict().items()},
                           os.path.join(save_dir, save_filename))
        self._comm.barrier()
        return True

    @staticmethod
    def lacks(name: str) -> str:
        """What the list of what DeepSpeed has says of a name that is not here."""
        return reason(f"{ENGINE}.{name}") or "docs/pytorch.md says which of DeepSpeed's names it has"

    save_fp16_model = save_16bit_model


def loader_of(dataset: Any, batch_size: int | None, world_size: int, rank: int, collate_fn: Any = None, num_workers: int = 0,
              drop_last: bool = False, sampler: Any = None, shuffle: bool = True) -> torch.utils.data.DataLoader[Any]:
    """Each rank sees its own part of a map-style dataset."""
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return torch.utils.data.DataLoader(dataset, batch_size=batch_size, collate_fn=collate_fn, num_workers=num_workers,
                                           drop_last=drop_last)
    if sampler is None:
        sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=shuffle)
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size, sampler=sampler, collate_fn=collate_fn,
                                       num_workers=num_workers, drop_last=drop_last)
