# SPDX-License-Identifier: Apache-2.0
"""Which engine has a parameter."""
import weakref

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
