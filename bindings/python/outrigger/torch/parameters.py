# SPDX-License-Identifier: Apache-2.0
"""A module's parameters in an engine of the library: declared, shown as views of its memory, and their gradients."""
import torch
from torch.utils.dlpack import to_dlpack

from .. import lowlevel
from .gradients import take

def groups_of(model, model_parameters):
    """Parameter groups as an optimizer of PyTorch has them: dictionaries with "params"."""
    given = list(model.parameters() if model_parameters is None else model_parameters)
    if not given:
        raise ValueError("model_parameters is empty: there is nothing to train")
    if not isinstance(given[0], dict):
        given = [{"params": given}]
    return [{**group, "params": list(group["params"])} for group in given]


class Parameters:
    """ids: of each parameter of the module. Those in no group, and those with requires_grad False, are frozen."""

    def __init__(self, engine, module, groups):
        self.ids, self.names = {}, {}
        self._engine = engine
        group_of = {id(each): index for index, group in enumerate(groups) for each in group["params"]}
        for name, parameter in module.named_parameters():
            group = group_of.get(id(parameter))
            options = lowlevel.ParamOptions()
            options.trainable = int(group is not None and parameter.requires_grad)
            if group is not None:
                options.group = group_name(group)
            self.ids[parameter] = lowlevel.engine_add_parameter(engine, name, to_dlpack(parameter.detach()), options)
            self.names[parameter] = name
        self.trainable = [each for each in self.ids if each.requires_grad and id(each) in group_of]
        self.learns = set(self.trainable)

    def show(self):
        """Makes each parameter a view of the library's memory, at the address that it keeps."""
        for parameter, view in zip(self.ids, self._acquire()):
            parameter.data = torch.from_dlpack(view)

    def _acquire(self):
        return lowlevel.engine_acquire(self._engine, list(self.ids.values()), None)

    def published(self):
        """After an update: what autograd kept of the old values is stale, and it shall know."""
        self._acquire()
        torch.autograd.graph.increment_version(list(self.ids))


def group_name(index):
    return "default" if index == 0 else f"group {index}"


def give(handle, identity, parameter):
    """Hands a parameter's gradient over: one copy, its conversion fused."""
    grad = take(parameter)
    if grad.requires_grad:
        grad = grad.detach()
    if grad.layout != torch.strided:
        grad = grad.to_dense()
    lowlevel.pass_add_grad(handle, identity, to_dlpack(grad), None)
