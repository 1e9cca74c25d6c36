# SPDX-License-Identifier: Apache-2.0
"""The data loader of a configuration's micro-batch size."""
import torch.utils.data


def loader_of(dataset, batch_size, world_size, rank, collate_fn=None, num_workers=0, drop_last=False, sampler=None, shuffle=True):
    """Each rank sees its own part of a map-style dataset."""
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return torch.utils.data.DataLoader(dataset, batch_size=batch_size, collate_fn=collate_fn, num_workers=num_workers,
                                           drop_last=drop_last)
    if sampler is None:
        sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=shuffle)
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size, sampler=sampler, collate_fn=collate_fn,
                                       num_workers=num_workers, drop_last=drop_last)
