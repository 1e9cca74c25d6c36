# SPDX-License-Identifier: Apache-2.0
"""Hand-written gradients: named NumPy arrays in an engine.

    engine = outrigger.numpy.Engine({"w": w, "b": b}, config)
    with engine.parameters() as p:
        y = x @ p["w"] + p["b"]
    with engine.backward(loss_gradient(y)) as grads:
        dy = grads.output                      # scaled: loss scale / accumulation steps
        grads["w"] = x.T @ dy                  # copied in; or grads.slot("w") to write into
        grads["b"] = dy.sum(0)
    report = engine.step()

Ranks come from the launcher (outrigger run, torchrun), or as comm=."""
import contextlib

import numpy

from . import Engine as _Engine
from . import lowlevel
from .process import process_comm

__all__ = ["Engine", "Gradients"]


def flatten(tree, prefix=""):
    """{"layer": {"w": a}, "b": [c, d]} → {"layer.w": a, "b.0": c, "b.1": d}, sorted by name, so that ranks agree."""
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, (list, tuple)):
        items = enumerate(tree)
    else:
        return {prefix: tree}
    flat = {}
    for name, value in items:
        flat.update(flatten(value, f"{prefix}.{name}" if prefix else str(name)))
    return dict(sorted(flat.items()))


class Gradients:
    """One backward pass. output or outputs: the scaled gradients that came in; grads[name] = array adds a parameter's
    gradient, of its shape, computed from them."""

    def __init__(self, engine, a_pass, count):
        self._engine, self._pass = engine, a_pass
        self.outputs = [a_pass.output_grad(index) for index in range(count)]

    @property
    def output(self):
        if len(self.outputs) != 1:
            raise ValueError(f"this pass has {len(self.outputs)} output gradients; use outputs")
        return self.outputs[0]

    @property
    def scale(self):
        """The factor that outputs carry: loss scale / accumulation steps."""
        return self._pass.scale

    def __setitem__(self, name, grad):
        self._pass.add_grad(self._engine.id_of(name), numpy.asarray(grad))

    @contextlib.contextmanager
    def slot(self, name):
        """The gradient's own place in its bucket, compute dtype, uninitialised; it is added at the end of the block."""
        identity = self._engine.id_of(name)
        array = self._pass.slot(identity)
        yield array
        self._pass.add_grad(identity, array)

    def unscale(self, grad):
        """An input's gradient without the factor, as a new float32 array."""
        return self._pass.unscale(numpy.asarray(grad))


class Engine:
    """parameters: named arrays, nested dictionaries and lists of them allowed; float32, float64, float16 or
    ml_dtypes.bfloat16. Names are joined by dots. frozen: names without a gradient."""

    def __init__(self, parameters, config=None, comm=None, frozen=()):
        flat = flatten(parameters)
        unknown = sorted(set(frozen) - set(flat))
        if unknown:
            raise ValueError(f"frozen names no parameter: {', '.join(unknown)}; there are {', '.join(flat)}")
        comm = comm or process_comm()
        self.rank, self.world_size = comm.rank, comm.size
        self.library = _Engine(comm, config)
        self.ids = {name: self.library.add_parameter(name, numpy.asarray(value), trainable=int(name not in frozen))
                    for name, value in flat.items()}
        self.library.commit()

    def id_of(self, name):
        if name not in self.ids:
            raise KeyError(f"no parameter {name!r}; there are {', '.join(self.ids)}")
        return self.ids[name]

    @contextlib.contextmanager
    def parameters(self, names=None, float32=True):
        """A dictionary of read-only arrays, valid inside the block: float32 copies, which NumPy computes fastest with, or
        with float32=False the compute dtype, without a copy."""
        names = list(self.ids) if names is None else list(names)
        with self.library.acquire([self.id_of(name) for name in names], float32=float32) as arrays:
            yield dict(zip(names, arrays))

    @contextlib.contextmanager
    def backward(self, *output_grads):
        """One pass, from the gradients of the outputs, of any shapes. An exception gives it up."""
        with self.library.begin_pass([numpy.asarray(each) for each in output_grads]) as a_pass:
            yield Gradients(self, a_pass, len(output_grads))

    @property
    def loss_scale(self):
        return self.library.loss_scale

    def step(self):
        """Ends a micro-batch; the report says what happened."""
        return self.library.step()

    def read(self, name, value=lowlevel.VALUE_MASTER):
        """A whole value as float32: the master weight, or lowlevel.VALUE_EXP_AVG, VALUE_EXP_AVG_SQ. Collective."""
        return self.library.read(self.id_of(name), value)

    def write(self, name, array, value=lowlevel.VALUE_MASTER):
        """Sets it from rank 0's array. Collective."""
        self.library.write(self.id_of(name), numpy.asarray(array), value)

    def __enter__(self):
        self.library.__enter__()
        return self

    def __exit__(self, kind, value, traceback):
        self.library.__exit__(kind, value, traceback)
