# SPDX-License-Identifier: Apache-2.0
"""PyTorch's distributed checkpoints (torch.distributed.checkpoint) of a model and its optimizer, under the keys "model" and "optimizer"."""
from __future__ import annotations

import math
import os
from typing import Any

from .checkpoint import Foreign, Piece, member, number, shape_of
from .files import Archive, ForeignError, mapped
from .objects import loaded, metadata, plain
from .pickles import Opaque
from .tensors import Tensor

_STATES = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "momentum_buffer": "exp_avg"}
NAME = ".metadata"


class Distributed(Foreign):
    """order: the names in the optimizer's groups, where its state_dict() was saved as it is, which has numbers for them."""

    def __init__(self, path: str, order: list[list[str]] | None = None) -> None:
        super().__init__("torch distributed", path)
        file = os.path.join(path, NAME)
        self._order = [name for group in order or [] for name in group]
        found = metadata(mapped(file), file)
        if not isinstance(found, Opaque) or found.name != "torch.distributed.checkpoint.metadata.Metadata":
            raise ForeignError(f"{file}: is no metadata of torch.distributed.checkpoint")
        entries = member(found.state, "state_dict_metadata", dict, file)
        paths = found.get("planner_data") or {}
        self._files: dict[str, memoryview] = {}
        self._stored: dict[str, list[tuple[Any, Opaque]]] = {}
        for index, info in member(found.state, "storage_data", dict, file).items():
            if not isinstance(index, Opaque) or not isinstance(info, Opaque) or type(index.get("fqn")) is not str:
                raise ForeignError(f"{file}: says where something lies, and not what; the file is damaged")
            self._stored.setdefault(index.get("fqn"), []).append((index.get("offset"), info))
        self._model: dict[str, tuple[tuple[int, ...], list[Piece]]] = {}
        self._states: dict[tuple[str, str], tuple[tuple[int, ...], list[Piece]]] = {}
        self._grouped: set[str] = set()  # the names in the optimizer's groups
        groups: dict[int, dict[str, Any]] = {}
        for key, entry in entries.items():
            where = paths.get(key, (key,)) if isinstance(paths, dict) else (key,)
            self._take_entry(key, entry, where if type(where) is tuple else (key,), groups, file)
        self.progress.groups = [{key: value for key, value in groups[index].items() if key != "params"} for index in sorted(groups)]
        self.progress.names = [[str(name) for name in groups[index].get("params", [])] for index in sorted(groups)]
        self._assign()

    def _take_entry(self, key: str, entry: Any, where: tuple[Any, ...], groups: dict[int, dict[str, Any]], file: str) -> None:
        is_tensor = isinstance(entry, Opaque) and entry.name.endswith(".TensorStorageMetadata")
        if len(where) == 2 and where[0] == "optimizer" and str(where[1]).startswith("state."):  # its flattened form
            name, _, state = str(where[1]).removeprefix("state.").rpartition(".")
            where = ("optimizer", "state", name, state)
        elif len(where) == 2 and where[0] == "optimizer" and str(where[1]).startswith("param_groups."):
            self._grouped.add(str(where[1]).removeprefix("param_groups.").rpartition(".")[0])
        if where[0] == "model" and len(where) == 2 and is_tensor:
            self._model[str(where[1])] = self._tensor(key, entry, file)
        elif where[:2] == ("optimizer", "state") and len(where) == 4:
            name = str(where[2])
            if name.isascii() and name.isdigit():
                if len(name) > 9 or int(name) >= len(self._order):
                    raise ForeignError(f"{file}: its optimizer has numbers for the parameters; give order=, their names in its groups")
                name = self._order[int(name)]
            if is_tensor:
                self._states[name, str(where[3])] = self._tensor(key, entry, file)
            elif where[3] == "step":
                self.progress.updates[name] = number(self._object(key, file), file)
        elif where[:2] == ("optimizer", "param_groups") and len(where) == 4 and type(where[2]) is int and not is_tensor:
            value = groups.setdefault(where[2], {})[str(where[3])] = plain(self._object(key, file))
            if where[3] == "params" and isinstance(value, list):
                known = (self._order[each] if type(each) is int and 0 <= each < len(self._order) else each for each in value)
                self._grouped.update(each for each in known if type(each) is str)
        elif where[0] not in ("model", "optimizer"):
            self._client[key] = self._whole(key, entry, file) if is_tensor else self._object(key, file)

    def _part(self, info: Opaque, file: str) -> Any:
        """The object of torch.save in a part of a file."""
        name, offset, length = info.get("relative_path"), info.get("offset"), info.get("length")
        if type(name) is not str or os.path.basename(name) != name or name in ("", ".", ".."):
            raise ForeignError(f"{file}: names a file {name!r}, which is none of its folder")
        if info.get("transform_descriptors"):
            raise ForeignError(f"{file}: has transformed (compressed) values, which are not read")
        if name not in self._files:
            self._files[name] = mapped(os.path.join(self.path, name))
        data = self._files[name]
        if type(offset) is not int or type(length) is not int or not 0 <= offset <= offset + length <= len(data):
            raise ForeignError(f"{os.path.join(self.path, name)}: has {len(data)} bytes, and {NAME} says that a value has {length!r} from {offset!r} on; copy the file again")
        return loaded(Archive(data[offset:offset + length], f"{os.path.join(self.path, name)} from byte {offset} on"))

    def _object(self, key: str, file: str) -> Any:
        stored = self._stored.get(key, [])
        if len(stored) != 1:
            raise ForeignError(f"{file}: {key!r} is in {len(stored)} places, and should be in one")
        return self._part(stored[0][1], file)

    def _tensor(self, key: str, entry: Opaque, file: str) -> tuple[tuple[int, ...], list[Piece]]:
        """Its shape, and its chunks, which are rows."""
        shape = shape_of(entry.get("size"), file)
        chunks: list[tuple[int, Tensor]] = []
        for offset, info in self._stored.get(key, []):
            tensor = self._part(info, file)
            at = shape_of(offset, file) if offset is not None else (0,) * len(shape)
            if not isinstance(tensor, Tensor) or len(tensor.shape) != len(shape) or any(at[1:]) or tensor.shape[1:] != shape[1:]:
                raise ForeignError(f"{file}: {key!r} of shape {shape} has a chunk of {tensor!r} at {at}; only tensors that are cut into rows are read")
            if tensor.count:
                chunks.append((at[0] if at else 0, tensor))
        row, pieces = 0, []
        for first, tensor in sorted(chunks, key=lambda each: each[0]):
            if first != row:
                raise ForeignError(f"{file}: {key!r} has a chunk at row {first}, and the one before ends at {row}; the file is damaged")
            row += tensor.shape[0] if shape else 0
            pieces.append((tensor, 0, tensor.count))
        if sum(each[2] for each in pieces) != math.prod(shape):
            raise ForeignError(f"{file}: the chunks of {key!r} are not all of its {math.prod(shape)} elements; the file is damaged")
        return shape, pieces

    def _whole(self, key: str, entry: Opaque, file: str) -> Tensor:
        shape, pieces = self._tensor(key, entry, file)
        if len(pieces) != 1 or pieces[0][0].shape != shape:
            raise ForeignError(f"{file}: {key!r} is in several chunks; beside model and optimizer only whole tensors are read")
        return pieces[0][0]

    def _assign(self) -> None:
        """A floating tensor of the model that is the optimizer's, or has states, is learned; another one is frozen, or a buffer."""
        learned = {name for name, _ in self._states}
        waiting = self._grouped & self._model.keys() - learned if learned else set()
        learned |= waiting
        for name, (shape, pieces) in self._model.items():
            if pieces and not all(tensor.is_floating for tensor, _, _ in pieces):
                self._buffers[name] = pieces[0][0]
                continue
            self._add(name, "master" if name in learned or not learned else "published", shape, pieces)
            if len(pieces) == 1 and name not in learned:
                self._buffers[name] = pieces[0][0]
        for (name, state), (shape, pieces) in self._states.items():
            if state == "step":
                self.progress.updates[name] = number(pieces[0][0] if pieces else None, self.path)
            elif state in _STATES:
                self._add(name, _STATES[state], shape, pieces)
        for name in waiting & self.parameters.keys():
            self._begin_moments(name)
        self.progress.global_steps = max(self.progress.updates.values(), default=0)
