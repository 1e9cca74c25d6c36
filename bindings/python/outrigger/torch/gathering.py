# SPDX-License-Identifier: Apache-2.0
"""Stage 3 where ranks do not share their parameters, or where a device's are in host memory: a parameter is gathered when PyTorch
first computes with it, and given back after its use.

On the CPU each parameter keeps its address, so that what autograd saved of it (a transposed view) is right whenever the parameter is
there. On a device it has another one each time; what autograd saves is then made anew when it is asked for. Uses are seen by public means: `__torch_function__` of the parameter, `saved_tensors_hooks` around the engine's forward
(a node of the backward asks for what it saved just before it runs), module hooks, and the hook on accumulated gradients.

Given back: after the outermost module call that used it, while no pass is open; in a backward when its gradient has come, or, of
one that gets none, the gradient of its module's input; the rest when the pass closes. Ranks gather in the same order if they compute the same; where they differ the communicator says so.
What the last pass used next is fetched ahead (ahead.py)."""
import contextlib
import functools
import weakref
from typing import Any

import torch

from .. import lowlevel
from .ahead import Ahead
from .held import Hook, show
from .owned import Partitioned, engine_of, mixed, next_id
from .pytorch import ALIASES, METADATA
from .trees import among, map_tensors
from .utils import z3_leaf_module

_Tensor: Any = torch.Tensor
_data: Any = _Tensor.data  # a property


class _Partitioned(Partitioned):
    @property
    def _where(self):
        return _gathering_of(self)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        used = list(among(_Partitioned, (args, kwargs or {}))) if function not in METADATA else ()
        if used:
            for parameter in used:
                if function is _Tensor.__repr__ and not is_whole(parameter):
                    return f"<{tuple(parameter.shape)} of {parameter.dtype}, {_gathering_of(parameter).place}>"
                _gathering_of(parameter).use(parameter, function in ALIASES)
        result = super().__torch_function__(function, (), args, kwargs or {})  # type: ignore[misc]
        if used and isinstance(result, torch.Tensor) and result.grad_fn is not None:
            for parameter in used:
                _gathering_of(parameter).saved(parameter)
        return result


def _gathering_of(parameter):
    engine = engine_of(parameter)
    if engine is None:
        raise RuntimeError("a parameter's engine is gone, and with it the slices of the other ranks; call engine.destroy() first, which "
                           "leaves whole parameters in the module")
    return engine.gathering


def is_whole(parameter):
    """Whether its values can be read now: always, but for stage 3 where a parameter is gathered while it is used."""
    return not isinstance(parameter, _Partitioned) or _gathering_of(parameter).has(parameter)


class Gathering:
    """engine: stage 3, its parameters declared, the library's engine committed. Parameters of at most
    stage3_param_persistence_threshold elements stay, once gathered, until the step."""

    def __init__(self, engine, module):
        self._engine: Any = weakref.ref(engine)  # which outlives this object
        self._handle, self._ids, self._device = engine.handle, engine.parameters_of.ids, engine._device
        self._moves = self._device.place is not None
        self.place = "in host memory" if engine.parameters_of.offloaded else "in slices on the ranks"
        persistent = engine.effective("zero_optimization", "stage3_param_persistence_threshold")
        self._small = {each for each in engine.parameters_of.gathered if each.numel() <= persistent}
        self._ahead = Ahead(self._handle, self._ids, engine.effective("zero_optimization", "stage3_prefetch_bucket_size"), self.has, self._device,
                            engine.gathers_alone)
        self._live, self._kept = set(), set()  # gathered; of these, not given back before the step
        self._users = {}  # module calls and blocks that use it now
        self._calls, self._inside = [], 0
        self._at, self._views = {}, {}
        self._classes: dict[Any, type] = {}
        self._numbers: dict[Any, int] = {}
        for parameter in engine.parameters_of.gathered:
            self._show(parameter)
        self._hooks = [hook for each in module.modules() if each is module or z3_leaf_module(each) or has_own(each)
                       for hook in (each.register_forward_pre_hook(Hook(self, "enter"), with_kwargs=True),
                                    each.register_forward_hook(Hook(self, "leave"), always_call=True))]
        self._hooks.append(module.register_load_state_dict_pre_hook(Hook(self, "loading")))

    def _show(self, parameter):
        self._fetch(parameter)
        if not self._moves:
            self._place(parameter)
            self._views.pop(parameter)
        self._classes[parameter] = kind = type(parameter)
        self._numbers[parameter] = next_id()
        parameter.__class__ = mixed(kind, _Partitioned)
        self._free((parameter,))

    def has(self, parameter):
        return parameter in self._live

    def id_of(self, parameter):
        """Its ds_id."""
        return self._numbers[parameter]

    # ---- Gathering and giving back ----

    def _fetch(self, parameter):
        self._views[parameter], = lowlevel.engine_acquire(self._handle, [self._ids[parameter]], self._device.info())
        self._live.add(parameter)
        if self._moves:
            self._place(parameter)

    def _place(self, parameter):
        """At the address that it was gathered to."""
        view = self._device.show(self._views[parameter])
        show(parameter, view)
        if view.numel():
            self._at[view.untyped_storage().data_ptr()] = parameter

    def _leave(self, parameters):
        """They are not there any more."""
        for parameter in parameters:
            self._views.pop(parameter, None)
            if self._moves:
                own = _raw(parameter)
                self._at.pop(own.untyped_storage().data_ptr(), None)
                show(parameter, own.new_empty(()).expand(own.shape))

    def use(self, parameter, is_alias=False):
        """Makes the parameter whole for the module call or the backward that runs now. Collective where it is not."""
        if parameter not in self._live:
            if not self._calls and not self._users.get(parameter) and self._engine()._pass is None:
                raise RuntimeError(f"parameter {self._name(parameter)!r} is {self.place} outside of a module's call; read or write "
                                   "it inside zero.GatheredParameters, on all ranks")
            self._fetch(parameter)
            if parameter not in self._small and (torch.is_grad_enabled() or not self._calls):  # not without gradients
                self._ahead.gathered(parameter)
        if self._calls:
            if parameter not in self._calls[-1][1]:
                self._calls[-1][1].add(parameter)
                self._users[parameter] = self._users.get(parameter, 0) + 1
            if is_alias:  # autograd may keep it as a tensor of its own
                self._kept.add(parameter)

    def saved(self, parameter):
        """Autograd may need it. Outside of calls it was used in a block, which ends before the backward."""
        if not self._calls and self._users.get(parameter):
            self._kept.add(parameter)

    def _name(self, parameter):
        return lowlevel.engine_parameter_name(self._handle, self._ids[parameter])

    def _free(self, parameters):
        gone = [each for each in parameters if each in self._live and not self._users.get(each) and each not in self._kept
                and each not in self._small]
        if gone:
            lowlevel.engine_release(self._handle, [self._ids[each] for each in gone], self._device.info())
            self._live.difference_update(gone)
            self._leave(gone)

    def _free_all(self):
        self._free([each for each in self._ids if each in self._live])

    def gradient_came(self, parameter):
        """All nodes of the backward that read it have run, unless the backward is itself differentiated."""
        self._used_backwards((parameter,))

    def _used_backwards(self, parameters, *_):
        if torch.is_grad_enabled():
            self._kept.update(each for each in parameters if each in self._live)
        else:
            self._free(parameters)

    def pass_closed(self):
        self._free_all()
        self._ahead.pass_closed()

    def acquires_end(self):
        """The library is about to end every acquire."""
        self._leave(self._live)
        self._live.clear()
        self._kept.clear()

    # ---- Forward ----

    @contextlib.contextmanager
    def forward(self):
        """Around the engine's call of its module."""
        depth, self._inside = len(self._calls), self._inside + 1
        hooks: Any = contextlib.nullcontext()
        if torch.is_grad_enabled():
            hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        try:
            with hooks:
                yield
        finally:
            self._inside -= 1
            while len(self._calls) > depth:  # left by what is no Exception
                self._end_call()

    def enter(self, module, inputs, options):
        engine = self._engine()
        if not self._calls and not self._inside and torch.is_grad_enabled() and engine._pass is None:
            raise RuntimeError("a module of a stage 3 engine was called beside its engine, with gradients on: call the engine, or the "
                               "module under torch.no_grad()")
        self._calls.append((module, set()))
        is_leaf = z3_leaf_module(module)
        # Its own ones, too: what is no function of PyTorch (torch.jit.script, an extension) does not say that it uses them.
        for parameter in module.parameters(recurse=is_leaf):
            if isinstance(parameter, _Partitioned):
                self.use(parameter, is_leaf and torch.is_grad_enabled())
        without = [each for each in self._calls[-1][1] if not each.requires_grad]
        for tensor in among(torch.Tensor, (inputs, options)) if without and torch.is_grad_enabled() else ():
            if tensor.grad_fn is not None:  # a leaf would keep its hooks from pass to pass
                tensor.register_hook(functools.partial(self._used_backwards, without))

    def leave(self, module, inputs, output):
        if not self._calls or self._calls[-1][0] is not module:
            return  # a hook before ours raised
        used = self._calls[-1][1]
        if used:
            map_tensors(lambda tensor: self._returned(tensor, used), output)
        self._end_call()

    def _returned(self, tensor, used):
        """A module that returns its parameter, or a view of it: the caller of the module uses it."""
        parameter = self._at.get(tensor.untyped_storage().data_ptr())
        if parameter in used:
            if len(self._calls) == 1:
                self._kept.add(parameter)
            elif parameter not in self._calls[-2][1]:
                self._calls[-2][1].add(parameter)
                self._users[parameter] += 1
        return tensor

    def _end_call(self):
        _, used = self._calls.pop()
        for parameter in used:
            self._users[parameter] -= 1
        if self._engine()._pass is None:
            self._free(sorted(used, key=self._ids.get))

    # ---- What autograd saves ----

    def _pack(self, tensor):
        parameter = self._at.get(tensor.untyped_storage().data_ptr())
        if parameter is not None and self._moves and tensor.dtype == parameter.dtype:
            return _Part(parameter, tensor), tensor._version, parameter
        return tensor, tensor._version, parameter

    def _unpack(self, packed):
        tensor, version, parameter = packed
        if tensor._version != version:
            raise RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of "
                               f"shape {tuple(tensor.shape)} is at version {tensor._version}, expected version {version}")
        if parameter is not None:
            self.use(parameter, torch.is_grad_enabled())
            if torch.is_grad_enabled():
                self._kept.add(parameter)
        return tensor.made() if isinstance(tensor, _Part) else tensor

    # ---- Outside of modules ----

    def _hold(self, parameters):
        for parameter in parameters:
            if parameter in self._classes:
                if parameter not in self._live:
                    self._fetch(parameter)
                self._users[parameter] = self._users.get(parameter, 0) + 1

    def _let_go(self, parameters):
        for parameter in parameters:
            if parameter in self._classes:
                self._users[parameter] -= 1
        self._free(parameters)

    @contextlib.contextmanager
    def whole(self, parameters):
        """Collective."""
        self._hold(parameters)
        try:
            yield
        finally:
            self._let_go(parameters)

    def loading(self, *_):
        """Before load_state_dict, which writes into all parameters."""
        self._hold(self._classes)

    def loaded(self):
        self._let_go(list(self._classes))

    def end(self):
        """Leaves whole parameters, which are PyTorch's. Collective."""
        for parameter, kind in self._classes.items():
            with self.whole([parameter]):
                copy = parameter.data.clone()
            show(parameter, copy)
            parameter.__class__ = kind
        for hook in self._hooks:
            hook.remove()


def _raw(parameter):
    """Its memory; not a use of it."""
    with torch._C.DisableTorchFunctionSubclass():
        return _data.__get__(parameter)


class _Part:
    """A parameter, or a view of it, wherever the parameter is when it is made."""

    def __init__(self, parameter, tensor):
        self._parameter, self.shape = parameter, tensor.shape
        self._as = tensor.size(), tensor.stride(), tensor.storage_offset()

    @property
    def _version(self):
        return self._parameter._version

    def made(self):
        return _raw(self._parameter).as_strided(*self._as)


def has_own(module):
    return any(True for _ in module.parameters(recurse=False))
