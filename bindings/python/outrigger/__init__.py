# SPDX-License-Identifier: Apache-2.0
"""Outrigger for Python: ZeRO sharding and low-precision optimizer states for any array library.

A thin layer over outrigger.lowlevel (SWIG): objects with methods, keyword options, NumPy views. Arrays go in
without a copy through the buffer protocol; the arrays that come out are views of Outrigger's memory and keep the
object they belong to alive. bfloat16 is ml_dtypes.bfloat16 where that package is installed, else uint16.
"""
import json

import numpy as np  # outrigger.numpy is a name of this package

from . import lowlevel
from .lowlevel import OutriggerError

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = np.dtype("uint16")

if lowlevel.abi_version() != lowlevel.ABI_VERSION:
    raise ImportError(f"this module was built for the binary interface {lowlevel.ABI_VERSION} of Outrigger; the library "
                      f"that was loaded ({lowlevel.version()}) has {lowlevel.abi_version()}. Rebuild the module")

__all__ = ["Comm", "Context", "Engine", "Optimizer", "OutriggerError", "Pass", "Shard", "build_info", "config_check",
           "lowlevel", "machine_info", "version"]
version = lowlevel.version


def build_info():
    return json.loads(lowlevel.build_info())


def machine_info():
    """What this machine and this process offer: cores, caches, memory, limits, instruction sets."""
    return json.loads(lowlevel.machine_info())


def config_check(config, world_size=1):
    """The effective configuration for a world size, or an OutriggerError that says what is wrong."""
    return json.loads(lowlevel.config_check(_text(config), world_size))


def _text(config):
    return config if config is None or isinstance(config, str) else json.dumps(config)


def _options(kind, values):
    """An option object of outrigger.lowlevel with some fields set; None for all defaults."""
    if not values:
        return None
    options = kind()
    for name, value in values.items():
        if not hasattr(options, name):
            raise TypeError(f"{kind.__name__} has no field {name!r}")
        setattr(options, name, value)
    return options


def _array(view):
    array = np.asarray(view)
    return array.view(bfloat16) if array.dtype == np.uint16 else array


class _Handle:
    """Holds a handle of outrigger.lowlevel. close() gives it back; views that were handed out keep it until they go."""

    def __init__(self, handle):
        self._handle = handle

    @property
    def handle(self):
        if self._handle is None:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._handle

    def close(self):
        self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()


class Context(_Handle):
    """Options: log_level, workers. Ctrl-C ends calls of the main thread that wait for other ranks."""

    def __init__(self, **options):
        made = _options(lowlevel.ContextOptions, options) or lowlevel.ContextOptions()
        super().__init__(lowlevel.context_create(made))


class Comm(_Handle):
    """A group of ranks; made by the class methods. Options: rank, world_size, timeout, job."""

    shares_memory = True  # parameters are one copy for all ranks, and acquiring one is local

    @classmethod
    def self_group(cls, context):
        return cls(lowlevel.comm_create_self(context.handle))

    @classmethod
    def threads(cls, context, world_size, **options):
        handles = lowlevel.comm_create_threads(context.handle, world_size, _options(lowlevel.CommOptions, options))
        return [cls(handle) for handle in handles]

    @classmethod
    def shared_memory(cls, context, **options):
        return cls(lowlevel.comm_create_shm(context.handle, _options(lowlevel.CommOptions, options)))

    @classmethod
    def from_env(cls, context, **options):
        return cls(lowlevel.comm_from_env(context.handle, _options(lowlevel.CommOptions, options)))

    @classmethod
    def custom(cls, context, channel):
        """A group over the methods of an object: rank and world_size (attributes); all_gather(mine, all),
        broadcast(data, root), all_to_all(parts, received) on memoryviews that hold during the call; duplicate(), which
        returns another such object with an order of its own; abort(reason), close(). Several threads call, one at a time
        for each object. What a method raises ends the group on this rank. Collective."""
        made = cls(lowlevel.comm_create_custom(context.handle, channel))
        made.shares_memory = False
        return made

    def duplicate(self):
        """The same ranks with an order of their own, for another thread. Collective."""
        made = type(self)(lowlevel.comm_duplicate(self.handle))
        made.shares_memory = self.shares_memory
        return made

    def split(self, color, key=0):
        """The group of the ranks with the same color, ordered by key; None for color -1. Collective."""
        handle = lowlevel.comm_split(self.handle, color, key)
        return None if handle is None else type(self)(handle)

    @property
    def rank(self):
        return lowlevel.comm_rank(self.handle)

    @property
    def size(self):
        return lowlevel.comm_size(self.handle)

    def barrier(self):
        lowlevel.comm_barrier(self.handle)

    def broadcast(self, array, root=0):
        """In place, into any writable contiguous buffer."""
        lowlevel.comm_broadcast(self.handle, array, root)

    def all_gather(self, data):
        """The bytes of all ranks, in rank order."""
        return lowlevel.comm_all_gather(self.handle, data)

    def all_reduce_sum(self, array):
        """In place, float64."""
        lowlevel.comm_all_reduce_sum(self.handle, array)

    def abort(self, reason=None):
        lowlevel.comm_abort(self.handle, reason)


class Engine(_Handle):
    """One model's training state on this rank. As a context manager it finalizes on a normal exit and aborts on an
    exception."""

    def __init__(self, comm, config=None):
        super().__init__(lowlevel.engine_create(comm.handle, _text(config)))

    def __exit__(self, kind, value, traceback):
        try:
            if kind is None:
                self.finalize()
            else:
                lowlevel.engine_abort(self.handle, f"{kind.__name__}: {value}")
        finally:
            self.close()

    def add_parameter(self, name, initial=None, **options):
        """Returns the id. Options: trainable, alias_of, group, contributions."""
        return lowlevel.engine_add_parameter(self.handle, name, initial, _options(lowlevel.ParamOptions, options))

    def commit(self):
        lowlevel.engine_commit(self.handle)

    def finalize(self):
        lowlevel.engine_finalize(self.handle)

    def check(self):
        lowlevel.engine_check(self.handle)

    @property
    def live_children(self):
        return lowlevel.engine_live_children(self.handle)

    @property
    def parameter_count(self):
        return lowlevel.engine_parameter_count(self.handle)

    def parameter_id(self, name):
        return lowlevel.engine_parameter_id(self.handle, name)

    def parameter_name(self, id):
        return lowlevel.engine_parameter_name(self.handle, id)

    def parameter_shape(self, id):
        return lowlevel.engine_parameter_shape(self.handle, id)

    def acquire(self, ids, float32=False):
        """A context manager that gives the parameters as read-only arrays. They are valid inside of it, and until the
        next step at the most."""
        return _Acquired(self, ids, float32)

    def prefetch(self, ids, float32=False):
        lowlevel.engine_prefetch(self.handle, ids, _acquire_info(float32))

    def read(self, id, value=lowlevel.VALUE_MASTER, out=None):
        """Copies a value of the whole parameter into `out`, or into a new float32 array, and returns it. Collective."""
        if out is None:
            out = np.empty(self.parameter_shape(id), np.float32)
        lowlevel.engine_parameter_read(self.handle, id, value, out)
        return out

    def write(self, id, source, value=lowlevel.VALUE_MASTER):
        """Sets a value of the whole parameter from rank 0's array. Collective."""
        lowlevel.engine_parameter_write(self.handle, id, value, source)

    def local_range(self, id):
        """(first element, count) of what this rank updates."""
        return lowlevel.engine_local_range(self.handle, id)

    def local_read(self, id, value=lowlevel.VALUE_MASTER, out=None):
        """Like read, for the elements of local_range."""
        if out is None:
            out = np.empty(self.local_range(id)[1], np.float32)
        lowlevel.engine_local_read(self.handle, id, value, out)
        return out

    def local_write(self, id, source, value=lowlevel.VALUE_MASTER):
        lowlevel.engine_local_write(self.handle, id, value, source)

    def set_trainable(self, id, trainable):
        """Freezes or thaws a parameter between two windows."""
        lowlevel.engine_set_trainable(self.handle, id, int(trainable))

    def set_group_value(self, name, value, group=None):
        lowlevel.engine_set_group_value(self.handle, group, name, value)

    def get_group_value(self, name, group=None):
        return lowlevel.engine_get_group_value(self.handle, group, name)

    @property
    def config(self):
        return json.loads(lowlevel.engine_config(self.handle))

    @property
    def memory(self):
        """The ledger: a list of (purpose, resident bytes, peak bytes)."""
        return lowlevel.engine_memory(self.handle)

    def estimate(self, **options):
        """What one rank would hold for the parameters declared so far, as in memory. Options: world_size, rank,
        layout, separate_memory, grads_at_once, acquired_elements, widened_elements, output_elements."""
        return lowlevel.engine_estimate(self.handle, _options(lowlevel.EstimateOptions, options))

    def begin_pass(self, output_grads=(), tag=None, **info):
        """tag: another pass's, if the gradients come from there. Options: flags, stream."""
        return Pass(lowlevel.pass_begin(self.handle, output_grads, _tagged(tag, info)))

    def backward(self, output_grads, vjp, tag=None, **info):
        """One whole pass: vjp(pass, scaled output gradients) adds the parameters' gradients to the pass."""
        with self.begin_pass(output_grads, tag, **info) as backward:
            vjp(backward, [backward.output_grad(index) for index in range(len(output_grads))])

    def step(self):
        """Ends a micro-batch. The report's outcome is lowlevel.STEP_ACCUMULATED, STEP_APPLIED or STEP_SKIPPED."""
        return lowlevel.engine_step(self.handle)

    def step_begin(self):
        """Begins the step on a thread of the library and returns at once; report() tells how it ended."""
        lowlevel.engine_step_begin(self.handle)

    def report(self, timeout=-1.0):
        """The report of the step that was begun last; its outcome is lowlevel.STEP_PENDING if that is not over within
        `timeout` seconds. 0 only asks, a negative one waits for the end."""
        return lowlevel.engine_report(self.handle, timeout)

    def reduce(self):
        """The first half of the step: afterwards lowlevel.VALUE_GRAD can be read and written until the step."""
        return lowlevel.engine_reduce(self.handle)

    def set_boundary(self, boundary):
        """lowlevel.BOUNDARY_CONFIGURED, BOUNDARY_NO or BOUNDARY_YES."""
        lowlevel.engine_set_boundary(self.handle, boundary)

    @property
    def is_boundary(self):
        return lowlevel.engine_get_boundary(self.handle)

    @property
    def loss_scale(self):
        return lowlevel.engine_get_loss_scale(self.handle)


def step_many(engines, joint=None):
    """One step of several engines, all or none; joint: a Comm of the ranks of all, where they have different ones."""
    return lowlevel.step_many([engine.handle for engine in engines], None if joint is None else joint.handle)


def _tagged(tag, info):
    made = _options(lowlevel.CallInfo, info)
    if tag is not None:
        made = made or lowlevel.CallInfo()
        made.loss_scale, made.accumulation, made.ranks = tag.loss_scale, tag.accumulation, tag.ranks
    return made


def _acquire_info(float32):
    return _options(lowlevel.CallInfo, {"flags": lowlevel.ACQUIRE_FLOAT32} if float32 else None)


class _Acquired:
    def __init__(self, engine, ids, float32):
        self._engine, self._ids, self._info = engine, list(ids), _acquire_info(float32)

    def __enter__(self):
        return [_array(view) for view in lowlevel.engine_acquire(self._engine.handle, self._ids, self._info)]

    def __exit__(self, kind, value, traceback):
        lowlevel.engine_release(self._engine.handle, self._ids, self._info)


class Pass(_Handle):
    """One backward pass. As a context manager it ends on a normal exit and is abandoned on an exception."""

    def __exit__(self, kind, value, traceback):
        try:
            if kind is None:
                self.end()
            else:
                self.abandon()  # an array of it may live on in the traceback, and close() waits for that
        finally:
            self.close()

    @property
    def scale(self):
        return lowlevel.pass_get_scale(self.handle)

    def output_grad(self, index=0):
        """The scaled gradient of an output, float32 (or as flags=PASS_KEEP_DTYPE says); valid until the pass ends."""
        return _array(lowlevel.pass_get_output_grad(self.handle, index))

    @property
    def tag(self):
        """What this pass's gradients carry, for begin_pass of the engine that made the inputs."""
        info = lowlevel.CallInfo()
        lowlevel.pass_get_tag(self.handle, info)
        return info

    @property
    def seed_overflow(self):
        """The first output whose gradient overflowed when it was scaled; -1: none."""
        return lowlevel.pass_get_seed_overflow(self.handle)

    def unscale(self, grad, out=None):
        """grad without the factor that this pass applied, in `out` or a new float32 array."""
        if out is None:
            out = np.empty(np.shape(grad), np.float32)
        lowlevel.pass_unscale(self.handle, grad, out)
        return out

    def slot(self, id):
        """An array to write a gradient into and to hand back through add_grad."""
        return _array(lowlevel.pass_get_slot(self.handle, id))

    def add_grad(self, id, grad, tag=None, **info):
        lowlevel.pass_add_grad(self.handle, id, grad, _tagged(tag, info))

    def end(self):
        lowlevel.pass_end(self.handle)

    def abandon(self):
        """Gives the pass up: the next step discards the window, unless nothing was added. After the end: nothing."""
        lowlevel.pass_abandon(self.handle)


class Shard(_Handle):
    """A flat piece of parameters and gradients, which stay the caller's arrays."""

    def __init__(self, context, weights, grads, published=None, **options):
        made = _options(lowlevel.ShardOptions, options)
        if published is not None:
            made = made or lowlevel.ShardOptions()
            made.set_published(published)
        super().__init__(lowlevel.shard_wrap(context.handle, weights, grads, made))
        self._arrays = weights, grads, published  # the library keeps their memory by reference

    def close(self):
        super().close()
        self._arrays = None

    def state(self, value):
        return _array(lowlevel.shard_state(self.handle, value))

    @property
    def state_bytes(self):
        return lowlevel.shard_state_bytes(self.handle)


class Optimizer(_Handle):
    def __init__(self, context, config):
        super().__init__(lowlevel.optimizer_create(context.handle, _text(config)))

    def set_value(self, name, value):
        lowlevel.optimizer_set_value(self.handle, name, value)

    def step(self, shards):
        return lowlevel.optimizer_step(self.handle, [shard.handle for shard in shards])
