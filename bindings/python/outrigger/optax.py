# SPDX-License-Identifier: Apache-2.0
"""The optimizers as a transformation of optax: the library's kernels on JAX's arrays, without an engine.

    optimizer = outrigger.optax.adamw(1e-3, states={"exp_avg": {"format": "bfloat16"}, "exp_avg_sq": {"format": "bfloat16"}})
    state = optimizer.init(params)
    updates, state = optimizer.update(grads, state, params)
    params = optax.apply_updates(params, updates)
    outrigger.optax.save(folder, step, (params, state))      # and resume(folder, (params, state)), of any pytree

A function of its arguments and nothing else, so it may be jitted, called again with an older state, and traced more than
once: step and moments are arrays of the state, and a call makes the shard of each leaf anew."""
from __future__ import annotations

import contextlib
import functools
import json
import threading
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental.buffer_callback import buffer_callback

from . import Context, Optimizer, Shard, lowlevel
from .pytrees import load, resume, save

__all__ = ["AdamState", "adam", "adamw", "load", "resume", "save"]

Number: TypeAlias = float | jax.Array
Rate: TypeAlias = Number | Callable[[Any], Any]  # or a schedule of the updates made

_FLOATS = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "float16": jnp.float16}
_STATES = {"mu": "exp_avg", "nu": "exp_avg_sq"}


class AdamState(NamedTuple):
    """count: updates made; skipped: those left out for Inf or NaN. mu, nu: the moments, trees like the parameters."""
    count: jax.Array  # type: ignore[assignment]  # in the place of a tuple's method
    skipped: jax.Array
    mu: Any
    nu: Any


def adamw(learning_rate: Rate, b1: Number = 0.9, b2: Number = 0.999, eps: Number = 1e-8, weight_decay: Number = 1e-4, mask: Any = None,
          *, states: dict[str, Any] | None = None, seed: int = 0) -> optax.GradientTransformation:
    """optax.adamw by Outrigger's kernels. learning_rate: a number, or a schedule of the updates made. Numbers may be JAX
    arrays (optax.inject_hyperparams). mask: a tree of bools, or a function of the parameters that gives one: where weights
    decay. states, seed: as of an optimizer without an engine (docs/configuration.md); a leaf is its own master, in its own
    dtype, so "master" has a rounding only.

    The updates are float32 differences to the new parameters, which optax.apply_updates gives in their dtype, rounding of the
    master included. A gradient with Inf or NaN in it leaves all as it was, and counts in `skipped`."""
    kernel = _Kernel({"lr": learning_rate, "beta1": b1, "beta2": b2, "eps": eps, "weight_decay": weight_decay}, states, seed)

    def init(params):
        checked(params, "parameter")
        mu, nu = (jax.tree.map(lambda leaf, dtype=dtype: jnp.zeros(jnp.shape(leaf), dtype), params) for dtype in kernel.formats)
        return AdamState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32), mu, nu)

    def update(grads, state, params=None):
        if params is None:
            raise ValueError("update(grads, state) has no params, and updates are differences to them: call update(grads, state, params)")
        tree = checked(params, "parameter")
        for each, what in ((grads, "gradient"), (state.mu, "moment")):
            if checked(each, what) != tree:
                raise ValueError(f"the {what}s are the tree {jax.tree.structure(each)}, the parameters {jax.tree.structure(params)}: they "
                                 "must have one form, leaves of equal shapes included")
        decays = mask(params) if callable(mask) else mask
        flags = [True] * len(jax.tree.leaves(params)) if decays is None else jax.tree.leaves(decays)
        if len(flags) != len(jax.tree.leaves(params)):
            raise ValueError(f"mask has {len(flags)} leaves, the parameters {len(jax.tree.leaves(params))}: they must have one form")
        updates, mu, nu, applied = kernel(grads, params, state, np.array(flags, bool))
        applied = applied.astype(jnp.int32)
        return updates, AdamState(state.count + applied, state.skipped + 1 - applied, mu, nu)

    return optax.GradientTransformation(init, update)


def adam(learning_rate: Rate, b1: Number = 0.9, b2: Number = 0.999, eps: Number = 1e-8, *, states: dict[str, Any] | None = None,
         seed: int = 0) -> optax.GradientTransformation:
    """adamw without weight decay."""
    return adamw(learning_rate, b1, b2, eps, 0.0, states=states, seed=seed)


def checked(tree, what):
    """The form of a tree: its structure and its leaves' shapes. Leaves that no kernel takes are refused by name."""
    shapes = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        dtype = str(jax.dtypes.result_type(leaf))
        if dtype not in _FLOATS:
            way = "cast it" if dtype == "float64" else "leave it out with optax.masked or optax.multi_transform"
            raise TypeError(f"the {what} at {jax.tree_util.keystr(path) or 'the root'} is {dtype}; legal: {', '.join(_FLOATS)}: {way}")
        shapes.append(jnp.shape(leaf))
    return jax.tree.structure(tree), shapes


class _Kernel:
    """One update of a tree. hyperparameters: by the library's names; a number, an array or a schedule."""

    def __init__(self, hyperparameters, states, seed):
        if not isinstance(seed, int):
            raise TypeError(f"seed = {seed!r} is a {type(seed).__name__}; give an int, under optax.inject_hyperparams as one of static_args")
        states = dict(states or {})
        if "format" in states.get("master", {}):
            raise ValueError(f"states.master.format = {states['master']['format']!r}: a leaf is its own master, in its own dtype; leave the "
                             "format out, and cast the parameters where they should have another one")
        for name in _STATES.values():
            if states.get(name, {}).get("format") == "block8":
                raise ValueError(f"states.{name}.format = 'block8': a leaf of the state is an array of numbers; use float32 or bfloat16")
        self._given = hyperparameters
        fixed = {name: float(value) for name, value in hyperparameters.items() if isinstance(value, Real)}
        self._rule = json.dumps({"states": states, "seed": seed})
        _made(_configured(self._rule, fixed), workers=1)  # says now what is not legal
        self.formats = [_FLOATS[states.get(name, {}).get("format", "float32")] for name in _STATES.values()]

    def __call__(self, grads, params, state, decays):
        values = {name: jnp.asarray(value(state.count) if callable(value) else value) for name, value in self._given.items()
                  if not isinstance(value, Real)}
        like = [jax.tree.map(lambda leaf, dtype=dtype: jax.ShapeDtypeStruct(jnp.shape(leaf), dtype), params)
                for dtype in (jnp.float32, *self.formats)]
        for moment, expected, name in ((state.mu, like[1], "mu"), (state.nu, like[2], "nu")):
            for leaf, wanted in zip(jax.tree.leaves(moment), jax.tree.leaves(expected), strict=True):
                if leaf.dtype != wanted.dtype:
                    raise TypeError(f"{name} of the state is {leaf.dtype}, this transformation keeps {wanted.dtype}: use a state of its own "
                                    "init, or give it the same states=")
        # Not jax.pure_callback: it hands over arrays whose copies wait for the thread that waits for them.
        call = buffer_callback(self._run, (*like, jax.ShapeDtypeStruct((), jnp.bool)), vmap_method="sequential")
        return call(grads, params, state.mu, state.nu, state.count, jnp.array(decays), values)

    def _run(self, _, out, grads, params, mu, nu, count, decays, values):
        """On the host: from the buffers of the arguments into those of the results."""
        step = int(np.asarray(count))
        values = {name: float(np.asarray(values[name])) if name in values else value for name, value in self._given.items()}
        *results, applied = out
        leaves = [[np.asarray(leaf) for leaf in jax.tree.leaves(tree)] for tree in (params, grads, mu, nu, *results)]
        names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(params)[0]]
        with _rule(self._rule) as (context, optimizer):
            for name, value in values.items():
                optimizer.set_value(name, value)
            done = True
            for name, decay, *leaf in zip(names, np.asarray(decays), *leaves, strict=True):
                optimizer.set_value("weight_decay", values["weight_decay"] if decay else 0.0)
                done = done and _update(context, optimizer, name, step, *leaf)
        if not done:
            for update, new_mu, new_nu, old_mu, old_nu in zip(*leaves[4:], *leaves[2:4]):
                update[...], new_mu[...], new_nu[...] = 0, old_mu, old_nu
        np.asarray(applied)[...] = done


def _update(context, optimizer, name, step, weights, grads, mu, nu, update, new_mu, new_nu):
    """One leaf; False if its gradient has Inf or NaN. It holds one leaf's memory at a time."""
    if weights.size == 0:
        return True
    new, grads = np.array(weights).reshape(-1), np.array(grads).reshape(-1)
    with Shard(context, new, grads, name=name) as shard:
        optimizer.prepare([shard])
        shard.step = step
        states = [shard.state(lowlevel.VALUE_EXP_AVG), shard.state(lowlevel.VALUE_EXP_AVG_SQ)]
        for state, before in zip(states, (mu, nu)):
            state[:] = before.reshape(-1)
        if optimizer.step([shard]).outcome != lowlevel.STEP_APPLIED:
            return False
        for after, state in zip((new_mu, new_nu), states):
            after[...] = state.reshape(after.shape)
    np.subtract(new.reshape(weights.shape), weights, out=update, dtype=np.float32, casting="unsafe")
    return True


def _configured(rule, values):
    params = {name: value for name, value in values.items() if not name.startswith("beta")}
    return {"type": "AdamW", **json.loads(rule),
            "params": {**params, "betas": [values.get("beta1", 0.9), values.get("beta2", 0.999)]}}


def _made(config, **options):
    context = Context(**options)
    return context, Optimizer(context, config)


@functools.cache
def _shared(rule):
    return threading.Lock(), _made(_configured(rule, {}))


@contextlib.contextmanager
def _rule(rule):
    """The one optimizer of these states and seed in this process, for one caller at a time, who sets its values."""
    lock, made = _shared(rule)
    with lock:
        yield made
