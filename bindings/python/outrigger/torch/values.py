# SPDX-License-Identifier: Apache-2.0
"""An engine's values, read and written by parameter."""
import contextlib

import torch

from .. import lowlevel


class Values:
    """Values are named as outrigger.lowlevel.VALUE_…; the functions of outrigger.torch.utils are these by DeepSpeed's names."""

    def id_of(self, parameter):
        identity = self.parameters_of.ids.get(parameter)
        if identity is None:
            raise ValueError("this tensor is no parameter of this engine; give one of engine.module.parameters()")
        return identity

    def _kind(self, parameter, value):
        """A frozen parameter's weight is what is published."""
        if value == lowlevel.VALUE_MASTER and not self.parameters_of.learns(parameter):
            return lowlevel.VALUE_PUBLISHED
        return value

    def read(self, parameter, value):
        """A float32 tensor of the parameter's shape. Collective."""
        out = torch.empty(parameter.shape)
        lowlevel.engine_parameter_read(self.handle, self.id_of(parameter), self._kind(parameter, value), out)
        return out

    def write(self, parameter, source, value, rank=0):
        """Sets the value from that rank's tensor, of the parameter's shape. Collective."""
        identity = self.id_of(parameter)
        source = torch.as_tensor(source).detach()
        if rank != 0:
            if not 0 <= rank < self.world_size:
                raise ValueError(f"rank {rank} is outside 0..{self.world_size - 1}")
            source = source.float().contiguous().clone()
            self._comm.broadcast(source.view(-1).numpy(), rank)
        lowlevel.engine_parameter_write(self.handle, identity, value, source)
        if value != lowlevel.VALUE_GRAD:
            torch.autograd.graph.increment_version(parameter)
            self.parameters_of.noted(parameter)

    def whole(self, parameters):
        """A block in which the parameters' values can be read. Collective at stage 3 over ranks that do not share them."""
        return contextlib.nullcontext() if self.gathering is None else self.gathering.whole(parameters)

    def take_weights(self, parameters=None):
        """Makes what the parameters hold now (None: all) their weights, masters included: after the host wrote into their
        memory in a way that autograd does not see, such as through `.data`. Not between a backward and its step. Rank 0's
        values win. At stage 3 the ranks of a host share that memory: only one of them writes, or all the same. Collective."""
        for parameter in self.parameters_of.ids if parameters is None else parameters:
            self.write(parameter, parameter.detach().clone(), lowlevel.VALUE_MASTER)

    def local_count(self, parameter):
        return self._library.local_range(self.id_of(parameter))[1]

    def read_local(self, parameter, value):
        """The elements that this rank updates, float32, 1-D. Local."""
        out = torch.empty(self.local_count(parameter))
        lowlevel.engine_local_read(self.handle, self.id_of(parameter), value, out)
        return out

    def write_local(self, parameter, source, value):
        lowlevel.engine_local_write(self.handle, self.id_of(parameter), value, torch.as_tensor(source).detach())

    def reduce(self):
        """Makes the window's gradients readable and replaceable until step(): sums them over the ranks. False: they are not
        complete. Collective."""
        if self._reduced:
            return True
        if not self._gave or not self.is_gradient_accumulation_boundary():
            return False
        self.close_pass()
        self._end_acquires()
        self._library.reduce()
        self._reduced = True
        return True

    def require_reduced(self, call):
        if not self.reduce():
            raise RuntimeError(f"{call}: there is no complete gradient yet; call it after the backward of the window's last "
                               "micro-batch and before step()")
