# SPDX-License-Identifier: Apache-2.0
"""What a parameter of an engine has beside a tensor: its engine, its classes, and DeepSpeed's names where it is in slices."""
import enum
import itertools
import weakref
from typing import Any

_NAME = "_outrigger_engine"


def register(engine, parameters):
    for parameter in parameters:
        setattr(parameter, _NAME, weakref.ref(engine))


def unregister(parameters):
    for parameter in parameters:
        delattr(parameter, _NAME)


def engine_of(parameter):
    """The engine, or None."""
    reference = getattr(parameter, _NAME, None)
    return None if reference is None else reference()


def require_engine(parameter, call):
    engine = engine_of(parameter)
    if engine is None:
        raise ValueError(f"{call}: this tensor is no parameter of an engine; give one of engine.module.parameters()")
    return engine


_made: dict[tuple[type, ...], Any] = {}
_origins: dict[type, type] = {}


def mixed(kind: type, *mixins: type) -> Any:
    """A subclass of the parameter's class with the mixins before it; the same one each time."""
    key = kind, *mixins
    if key not in _made:
        _made[key] = type(kind.__name__, (*mixins, kind), {"__module__": kind.__module__})
        _origins[_made[key]] = origin(kind)
    return _made[key]


def origin(kind: type) -> type:
    """The class that the parameter had."""
    return _origins.get(kind, kind)


_numbers = itertools.count()


class ZeroParamStatus(enum.Enum):
    AVAILABLE, NOT_AVAILABLE, INFLIGHT = 1, 2, 3


def next_id():
    """A ds_id: the same on all ranks, which make their parameters alike."""
    return next(_numbers)


class Partitioned:
    """Beside a parameter's own class; `_where` is what gathers it and knows its state."""

    _where: Any
    shape: Any
    numel: Any

    @property
    def ds_id(self):
        return self._where.id_of(self)

    @property
    def ds_status(self):
        """Whether its values can be read now."""
        return ZeroParamStatus.AVAILABLE if self._where.has(self) else ZeroParamStatus.NOT_AVAILABLE

    @property
    def ds_shape(self):
        return self.shape

    @property
    def ds_numel(self):
        return self.numel()
