# SPDX-License-Identifier: Apache-2.0
"""An engine's parameters and hooks as objects of Python: what replaces, copies and pickles them.

A copy of a module has nothing to do with the engine: its parameters are plain ones, its hooks do nothing."""
import functools
import weakref
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from .owned import engine_of, origin

_Tensor: Any = torch.Tensor
_Parameter: Any = torch.nn.Parameter
_data: Any = _Tensor.data  # a property
LOOSE = "_outrigger_loose"  # at a parameter whose memory is the script's for a while


def show(parameter, tensor):
    """Puts the parameter's memory there."""
    _data.__set__(parameter, tensor)


class Copied:
    """What a parameter of ours is pickled as: one of its own class, with its values. In slices on the ranks it has to be whole."""

    detach: Any
    requires_grad: bool

    def __reduce_ex__(self, protocol):
        plain = self._plain(self.detach())
        vars(plain).update({name: value for name, value in vars(self).items() if not name.startswith("_outrigger_")})
        return plain.__reduce_ex__(protocol)

    def _plain(self, values):
        return _Tensor._make_subclass(origin(type(self)), values, self.requires_grad)


class Held(Copied):
    """A parameter's class has this beside the rest."""

    @property
    def data(self):
        return _data.__get__(self)

    @data.setter
    def data(self, value):
        engine = engine_of(self)
        if engine is None:
            show(self, value)
        else:
            _write(engine, self, value)

    def share_memory_(self):
        if engine_of(self) is None:
            return super().share_memory_()  # type: ignore[misc]
        raise RuntimeError("share_memory_: a parameter stays in its engine's memory; give other processes engine.module_state_dict(), or a copy of "
                           "the module")

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = self._copy(memo)
        return memo[id(self)]

    def _copy(self, memo):
        kind: Any = origin(type(self))
        if kind.__deepcopy__ is _Parameter.__deepcopy__:
            return self._plain(self.detach().clone())
        copy = kind.__deepcopy__(self, memo)  # a class's own way
        copy.__class__ = origin(type(copy))
        return copy


def _write(engine, parameter, value):
    """`parameter.data = value`: refused, but for the copy that zero.GatheredParameters lets a script write into."""
    if getattr(parameter, LOOSE, False):
        show(parameter, value)
        return
    own = _data.__get__(parameter)
    if (value.data_ptr(), value.shape, value.stride(), value.dtype) == (own.data_ptr(), own.shape, own.stride(), own.dtype):
        return
    raise RuntimeError(f"{engine.parameters_of.name_of(parameter)!r}.data was set to another tensor (shape {tuple(value.shape)}, {value.dtype}); outside of "
                       "zero.GatheredParameters, or in it without modifier_rank, a parameter stays in the engine's memory, in its shape and dtype: "
                       "write parameter.copy_(tensor) under torch.no_grad(); engine.destroy() leaves a plain module")


def _keep(module, name, parameter):
    """A parameter of PyTorch takes the place of an engine's."""
    engine = engine_of(module._parameters.get(name))
    if engine is None or parameter is module._parameters[name]:
        return
    if any(each._parameters is module._parameters for each in engine.module.modules()):  # not in a copy of one
        raise RuntimeError(f"{name!r} of a {type(module).__name__} is a parameter of an engine, which would go on with the old one: write into it "
                           "(parameter.copy_ under torch.no_grad(), load_state_dict without assign=True, zero.GatheredParameters), or replace "
                           "it before initialize")


@functools.cache
def guard_registrations():
    register_module_parameter_registration_hook(_keep)


class Hook:
    """A method of an engine's part as a hook on its module."""

    def __init__(self, owner=None, name=""):
        self._owner, self._name = None if owner is None else weakref.ref(owner), name

    def __call__(self, *arguments):
        owner = None if self._owner is None else self._owner()
        return None if owner is None else getattr(owner, self._name)(*arguments)

    def __reduce__(self):
        return Hook, ()
