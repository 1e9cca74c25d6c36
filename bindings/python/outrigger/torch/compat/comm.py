# SPDX-License-Identifier: Apache-2.0
"""deepspeed.comm and the data-parallel part of deepspeed.utils.groups, over torch.distributed."""
import os

import torch.distributed as dist

from ..distributed import init_distributed

_AS_THEY_ARE = ("P2POp", "ProcessGroup", "ReduceOp", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
                "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "destroy_process_group",
                "gather", "get_global_rank", "get_rank", "get_world_size", "irecv", "is_available", "is_initialized", "isend",
                "monitored_barrier", "new_group", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "send")


def get_local_rank():
    return int(os.environ.get("LOCAL_RANK", "0"))


def get_world_group():
    return dist.group.WORLD


def get_all_ranks_from_group(group=None):
    return dist.get_process_group_ranks(group or dist.group.WORLD)


def inference_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    return dist.all_reduce(tensor, op, group)


def all_reduce_coalesced(tensors, op=dist.ReduceOp.SUM, group=None, async_op=False):
    works = [dist.all_reduce(tensor, op, group, async_op=True) for tensor in tensors]
    return _all(works, async_op)


def all_gather_coalesced(output_tensors, input_tensors, group=None, async_op=False):
    works = [dist.all_gather_into_tensor(out, tensor, group, async_op=True) for out, tensor in zip(output_tensors, input_tensors)]
    return _all(works, async_op)


class _Works:
    def __init__(self, works):
        self._works = works

    def wait(self):
        for work in self._works:
            work.wait()

    def is_completed(self):
        return all(work.is_completed() for work in self._works)


def _all(works, async_op):
    together = _Works(works)
    if async_op:
        return together
    together.wait()
    return None


def reduce_scatter_fn(output_tensor, tensor, op=dist.ReduceOp.SUM, group=None, async_op=False, prof=False, debug=None):
    return dist.reduce_scatter_tensor(output_tensor, tensor, op, group, async_op)


def allgather_fn(output_tensor, input_tensor, group=None, async_op=False, debug=None):
    return dist.all_gather_into_tensor(output_tensor, input_tensor, group, async_op)


def yes():
    return True


def no():
    return False


def configure(*arguments, **options):
    """Communication is not logged here: nothing to configure."""


def log_summary(show_straggler=False, return_dict=False):
    return {} if return_dict else None


def get_world_rank_from_launcher():
    return int(os.environ.get("RANK", "0"))


def get_world_size_from_launcher():
    return int(os.environ.get("WORLD_SIZE", "1"))


def _one(mpu=None):
    return 1


def _zero():
    return 0


COMM = {
    **{name: getattr(dist, name) for name in _AS_THEY_ARE}, "init_distributed": init_distributed, "get_local_rank": get_local_rank,
    "get_world_group": get_world_group, "get_all_ranks_from_group": get_all_ranks_from_group, "configure": configure,
    "inference_all_reduce": inference_all_reduce, "all_reduce_coalesced": all_reduce_coalesced, "all_gather_coalesced": all_gather_coalesced,
    "reduce_scatter_fn": reduce_scatter_fn, "allgather_fn": allgather_fn, "has_all_gather_into_tensor": yes,
    "has_reduce_scatter_tensor": yes, "has_all_reduce_coalesced": yes, "has_coalescing_manager": no, "has_comm_data": no,
    "log_summary": log_summary, "reset_log": configure, "get_world_rank_from_launcher": get_world_rank_from_launcher,
    "get_local_rank_from_launcher": get_local_rank, "get_world_size_from_launcher": get_world_size_from_launcher,
}


# ---- Groups: data parallelism is the only one ----

def _world_size():
    return dist.get_world_size() if dist.is_initialized() else 1


def _rank():
    return dist.get_rank() if dist.is_initialized() else 0


GROUPS = {
    "get_data_parallel_group": get_world_group, "get_data_parallel_rank": _rank, "get_data_parallel_world_size": _world_size,
    "get_model_parallel_rank": _zero, "get_model_parallel_world_size": _one,
    "get_tensor_model_parallel_rank": _zero, "get_tensor_model_parallel_world_size": _one,
    "bwc_tensor_model_parallel_world_size": _one, "bwc_pipeline_parallel_world_size": _one,
    "get_tensor_model_parallel_src_rank": _rank,
}
_UNDERSCORED = {"_get_data_parallel_group": get_world_group, "_get_data_parallel_rank": _rank, "_get_data_parallel_world_size": _world_size,
                "_get_sequence_parallel_world_size": _one, "_get_sequence_parallel_rank": _zero,
                "_get_model_parallel_world_size": _one}
ALL_GROUPS = {**GROUPS, **_UNDERSCORED}
