# SPDX-License-Identifier: Apache-2.0
"""Pytrees as bytes of a safetensors file, and checkpoints of a pytree without an engine (outrigger.optax). Nothing is pickled: a
tree of the same form says what the bytes become."""
from __future__ import annotations

import os
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from . import Checkpoint, Comm, Context, Engine, OutriggerError

Tree: TypeAlias = Any
Path: TypeAlias = str | os.PathLike[str]

PART = "jax"  # the name by which the bytes ride along

# What safetensors calls a dtype, and what JAX does.
_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
           "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
           "BOOL": "bool", "C64": "complex64"}
_LISTED = 5  # names in a message


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError("a pytree is saved as bytes of a safetensors file, and the package safetensors is not here: pip install safetensors") from error
    return safetensors


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _leaves(tree: Tree) -> dict[str, Any]:
    """By name: the path as JAX writes it, and what the bytes alone do not say."""
    leaves: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = jax.tree_util.keystr(path)
        if _is_key(leaf):
            name += f" ({jax.random.key_impl(leaf)} key)"
        elif isinstance(leaf, (str, bytes)):
            name += f" ({type(leaf).__name__})"
        if name in leaves:
            raise ValueError(f"two leaves of the tree have the name {name}: give the keys of its dictionaries different texts")
        leaves[name] = leaf
    return leaves


def _array_of(name: str, leaf: Any) -> np.ndarray[Any, Any]:
    if isinstance(leaf, (str, bytes)):
        return np.frombuffer(leaf.encode() if isinstance(leaf, str) else leaf, np.uint8)
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    if str(array.dtype) not in _DTYPES.values():
        raise TypeError(f"the leaf {name or 'of the tree'} is a {type(leaf).__name__} of dtype {array.dtype}, which is not saved; legal: "
                        f"{', '.join(_DTYPES.values())}, numbers, str and bytes")
    return np.require(array, requirements="C")


def pack(tree: Tree) -> bytes:
    """A safetensors file with one tensor for each leaf: an array of JAX or NumPy, a key of jax.random, a number, str or bytes.
    TypeError names another leaf."""
    data: bytes = _safetensors().numpy.save({name: _array_of(name, leaf) for name, leaf in _leaves(tree).items()})
    return data


def unpack(data: bytes, like: Tree) -> Tree:
    """What pack was given, as a tree of like's form: leaf by leaf what is there (an array of NumPy stays one, one of JAX goes where
    like's is); jax.ShapeDtypeStruct stands for an array of JAX. ValueError: other leaves, shapes or dtypes."""
    found = {name: (entry["dtype"], tuple(entry["shape"]), entry["data"]) for name, entry in _safetensors().deserialize(data)}
    wanted = _leaves(like)
    for here, there, what in ((wanted, found, "the checkpoint lacks"), (found, wanted, "the tree that was given lacks")):
        missing = sorted(name for name in here if name not in there)
        if missing:
            more = f" and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
            raise ValueError(f"{what} {', '.join(missing[:_LISTED])}{more}: give a tree of the form that was saved")
    return jax.tree.unflatten(jax.tree.structure(like), [_leaf_of(name, leaf, *found[name]) for name, leaf in wanted.items()])


def _leaf_of(name: str, like: Any, dtype: str, shape: tuple[int, ...], data: bytes) -> Any:
    if isinstance(like, bytes):
        return bytes(data)
    if isinstance(like, str):
        return bytes(data).decode()
    given = jax.random.key_data(like) if _is_key(like) else like if hasattr(like, "dtype") else np.asarray(like)
    if (str(given.dtype), tuple(given.shape)) != (_DTYPES.get(dtype), shape):
        raise ValueError(f"the leaf {name} is {_DTYPES.get(dtype, dtype)} {list(shape)} in the checkpoint and {given.dtype} {list(given.shape)} in the "
                         "tree that was given: give one of what was saved")
    array = np.frombuffer(data, given.dtype).reshape(shape)
    if _is_key(like):
        return _placed(jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(like)), like)
    if isinstance(like, (jax.Array, jax.ShapeDtypeStruct)):
        return _placed(_as_weak_as(jnp.asarray(array), like), like)
    if isinstance(like, np.ndarray):
        return array
    return array[()] if isinstance(like, np.generic) else type(like)(array.item())


def _as_weak_as(array: jax.Array, like: Any) -> jax.Array:
    """Weakly typed like a number of Python, if like is: else what is computed from it would have other dtypes."""
    return jnp.zeros_like(like).at[...].set(array) if getattr(like, "weak_type", False) else array


def _placed(array: jax.Array, like: Any) -> jax.Array:
    sharding = getattr(like, "sharding", None)
    return array if sharding is None or not getattr(like, "committed", True) else jax.device_put(array, sharding)


def save(directory: Path, step: int, tree: Tree, keep_last: int = 0, replace: bool = False) -> None:
    """Saves a pytree, of parameters and the state of an optimizer, say, as directory/step<N>: as a whole, durable when it returns, with
    checksums, and then the latest. keep_last: checkpoints of the most steps that stay, 0: all; replace: one of this step is replaced.
    From one process. It holds the tree's bytes once more. TypeError: a leaf that is not saved; OutriggerError as Engine.save."""
    data = pack(tree)
    with Engine(Comm.self_group(Context(workers=1))) as engine:  # without a parameter: what it brings is how a save is made
        engine.commit()
        progress = engine.get_progress()
        progress["steps"]["micro"] = step  # by which checkpoints are ordered
        engine.set_progress(progress)
        engine.save(directory, f"step{step}", {PART: data}, keep_last, replace)


def load(directory: Path, like: Tree, tag: str | None = None) -> Tree:
    """The tree that was saved, in like's form (unpack); tag None: the latest. ValueError: it has another form; OutriggerError as
    outrigger.Checkpoint, and E_NOT_FOUND where the checkpoint is of something else."""
    with Checkpoint(directory, tag) as checkpoint:
        return unpack(checkpoint.part(PART), like)


def resume(directory: Path, begin: Tree) -> Tree:
    """The latest tree of the directory, in begin's form, or begin where there is none: for a program that may be started again."""
    return load(directory, begin) if has_latest(directory) else begin


def has_latest(directory: Path) -> bool:
    """Whether there is a checkpoint to go on from. OutriggerError where there should be one."""
    try:
        Checkpoint(directory).close()
    except OutriggerError as error:
        if error.name != "OTR_E_NOT_FOUND" or os.path.lexists(os.path.join(directory, "latest")):
            raise
        return False
    return True
