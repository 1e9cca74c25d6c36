# SPDX-License-Identifier: Apache-2.0
"""A module's parameters in an engine of the library: declared, shown as views of its memory, and their gradients."""
import torch

from .. import lowlevel
from .held import show
from .sharded import slice_of

_TRIM_BYTES = 64 << 20


def groups_of(model, model_parameters):
    """Parameter groups as an optimizer of PyTorch has them: dictionaries with "params"."""
    given = list(model.parameters() if model_parameters is None else model_parameters)
    if not given:
        raise ValueError("model_parameters is empty: there is nothing to train")
    if not isinstance(given[0], dict):
        given = [{"params": given}]
    return [{**group, "params": list(group["params"])} for group in given]


class Parameters:
    """ids: of each parameter of the module. Those in no group, and those with requires_grad False, are frozen; frozen ones that
    are not floating (quantized weights) stay PyTorch's, as buffers do. in_slices: a rank has only slices of what it trains.
    offloaded: all are in host memory, and the module's on a device. device: of devices.py. gathered: parameters that are there
    while they are used; shown: the others, views of the library's memory."""

    def __init__(self, engine, module, groups, in_slices, offloaded, device):
        self.ids, self.offloaded, self._device = {}, offloaded, device
        self._engine, self.trainable = engine, []
        group_of = {each: index for index, group in enumerate(groups) for each in group["params"]}
        for name, parameter in module.named_parameters():
            group = group_of.pop(parameter, None)
            if not parameter.is_floating_point() and not parameter.requires_grad:
                continue
            options = lowlevel.ParamOptions()
            options.trainable = int(group is not None and parameter.requires_grad)
            if group is not None:
                options.group = group_name(group)
            own = slice_of(parameter)
            options.held_bytes = own.held_bytes if own is not None else parameter.numel() * parameter.element_size()
            self.ids[parameter] = lowlevel.engine_declare_parameter(engine, name, parameter.shape, options)
            if options.trainable:
                self.trainable.append(parameter)
        if group_of:
            shapes = ", ".join(str(tuple(each.shape)) for each in group_of)
            raise ValueError(f"{len(group_of)} of the parameters to train are not the model's (shapes {shapes}); give parameters of model")
        self._learning = set(self.trainable)
        self.gathered = list(self.ids) if offloaded else self.trainable if in_slices else []
        among = set(self.gathered)
        self.shown = [each for each in self.ids if each not in among]
        self._frozen = [each for each in self.ids if each not in self._learning and not each.requires_grad]
        # Of those into which writes have to be taken; into frozen ones that are shown they go by themselves.
        self._versions = dict.fromkeys((*self.trainable, *self.gathered), 0)

    def learns(self, parameter):
        return parameter in self._learning

    def move(self, module, dtype):
        """Gives the library the values, a module at a time, and the module views of the library's memory in their place, at
        addresses that they keep; nothing of those that are gathered. Collective."""
        views = dict(zip(self.shown, self._acquire()))
        moved, freed = set(), 0
        for each in module.modules():
            own = [one for one in each.parameters(recurse=False) if one in self.ids and one not in moved]
            moved.update(own)
            slices = [slice_of(one) for one in own]
            values = [one.detach() if part is None else part.values() for one, part in zip(own, slices)]
            given = [self._device.give(value) for value in values]
            self._device.wait()
            lowlevel.engine_set_initial(self._engine, [self.ids[one] for one in own], given)
            del values, given
            for parameter, part in zip(own, slices):
                freed += parameter.numel() * parameter.element_size()
                if part is not None:
                    part.end()
                view = views.pop(parameter, None)
                parameter.data = torch.empty((), dtype=dtype, device=self._device.device).expand(parameter.shape) if view is None else self._device.show(view)
            if freed >= _TRIM_BYTES:
                self._device.trim()
                freed = 0
        self._device.trim()
        for each in module.buffers():
            if each.is_floating_point() or each.device != self._device.device:
                each.data = each.data.to(self._device.device, dtype if each.is_floating_point() else each.dtype)
        self._note_versions()

    def _acquire(self):
        return lowlevel.engine_acquire(self._engine, [self.ids[each] for each in self.shown], self._device.info())

    def let_go(self):
        """The views stay, and nobody may look at them until take_again."""
        try:
            lowlevel.engine_release(self._engine, [self.ids[each] for each in self.shown], self._device.info())
        except lowlevel.OutriggerError as error:
            if error.code != lowlevel.E_STATE:  # a step that was skipped has ended them
                raise

    def take_again(self):
        """On a device they may be at other addresses then."""
        for parameter, view in zip(self.shown, self._acquire()):
            if self._device.place is not None:
                show(parameter, self._device.show(view))

    def come_after(self):
        """The next update comes after all that the current stream was given, which may read the parameters."""
        if self._device.place is not None:
            lowlevel.engine_acquire(self._engine, [self.ids[each] for each in self.shown[:1]], self._device.info())

    def _note_versions(self):
        for parameter in self._versions:
            self._versions[parameter] = parameter._version

    def published(self):
        """After an update."""
        self._acquire()
        self.changed()

    def changed(self):
        """What autograd kept of the old values is stale, and it shall know."""
        torch.autograd.graph.increment_version(list(self.ids))
        self._note_versions()

    def name_of(self, parameter):
        return lowlevel.engine_parameter_name(self._engine, self.ids[parameter])

    def written(self):
        """Parameters that the host wrote into since the last update."""
        for parameter in self._frozen:
            if parameter.requires_grad:
                raise RuntimeError(f"{self.name_of(parameter)!r} had requires_grad False when the engine was made, so it has no master and "
                                   "no states; make the engine with it trainable and freeze it afterwards")
        return [parameter for parameter, version in self._versions.items() if parameter._version != version]

    def noted(self, parameter):
        if parameter in self._versions:
            self._versions[parameter] = parameter._version


def hyperparameters(group):
    """(name, value) as the library has them: those of the group's rule."""
    for name in ("lr", "weight_decay", "eps", "momentum", "dampening"):
        if name in group:
            yield name, float(group[name])
    if "betas" in group:
        yield "beta1", float(group["betas"][0])
        yield "beta2", float(group["betas"][1])
    if group.get("use_muon") is False:  # the rate of what is no matrix; its "lr" is what reports say
        yield "adam_lr", float(group["lr"])


def rule_of(kind, group, **more):
    """An "optimizer" of a configuration with the group's hyperparameters."""
    values = dict(hyperparameters(group))
    betas = [values.pop("beta1"), values.pop("beta2")]
    return {"type": kind, "params": {**values, "betas": betas, **more}}


def group_name(index):
    return "default" if index == 0 else f"group {index}"


def give(handle, identity, grad, device):
    """Hands a gradient over: one copy, its conversion fused, in the order of the current stream."""
    if grad.requires_grad:
        grad = grad.detach()
    if grad.layout != torch.strided:
        grad = grad.to_dense()
    lowlevel.pass_add_grad(handle, identity, device.give(grad), device.info())
