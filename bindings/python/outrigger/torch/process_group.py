# SPDX-License-Identifier: Apache-2.0
"""A communicator over a process group of torch.distributed."""
import torch
import torch.distributed as dist

from .. import Comm


class Channel:
    """One group of torch.distributed with an order of its own, as outrigger.Comm.custom wants it."""

    def __init__(self, group=None, owned=False):
        self._group, self._owned = group, owned
        self.rank, self.world_size = dist.get_rank(group), dist.get_world_size(group)

    def all_gather(self, mine, all):
        dist.all_gather_into_tensor(bytes_of(all), bytes_of(mine), group=self._group)

    def broadcast(self, data, root):
        dist.broadcast(bytes_of(data), group_src=root, group=self._group)

    def all_to_all(self, parts, received):
        dist.all_to_all_single(bytes_of(received), bytes_of(parts), group=self._group)

    def duplicate(self):
        ranks = dist.get_process_group_ranks(self._group or dist.group.WORLD)
        return Channel(dist.new_group(ranks, backend="gloo", use_local_synchronization=True), owned=True)

    def split(self, groups, places):
        ranks = dist.get_process_group_ranks(self._group or dist.group.WORLD)
        made = {}
        for group in sorted(set(groups) - {-1}):
            made[group] = [rank for _, rank in sorted((places[r], ranks[r]) for r in range(self.world_size) if groups[r] == group)]
            if made[group] != sorted(made[group]):  # on all ranks alike, so that none waits for another
                raise ValueError(f"torch.distributed orders a group's ranks by their numbers, and the group asked for is {made[group]}: "
                                 "give keys in the order of the ranks")
        if groups[self.rank] < 0:
            return None
        return Channel(dist.new_group(made[groups[self.rank]], backend="gloo", use_local_synchronization=True), owned=True)

    def abort(self, reason):
        """torch.distributed has no public way to end a group's calls from another thread; they end by its timeout."""

    def close(self):
        if self._owned and dist.is_initialized():
            dist.destroy_process_group(self._group)


def bytes_of(view):
    """Its memory as a tensor."""
    return torch.frombuffer(view, dtype=torch.uint8)


def comm_of(context, group=None):
    """An outrigger.Comm over a process group (None: all processes). Its tensors are on the CPU, so its backend is gloo."""
    if not dist.is_initialized():
        raise RuntimeError("torch.distributed is not initialized: call outrigger.torch.init_distributed() first")
    return Comm.custom(context, Channel(group))
