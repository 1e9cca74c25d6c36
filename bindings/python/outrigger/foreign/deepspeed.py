# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's checkpoints: stages 0 to 3, and its universal format."""
from __future__ import annotations

import math
import os
import re
from typing import Any

import numpy

from .checkpoint import Foreign, Piece, member, number, shape_of
from .files import ForeignError
from .objects import opened, plain
from .pickles import Opaque
from .tensors import Tensor, cut, rounded

_RANK = re.compile(r"(?:bf16_)?zero_pp_rank_(\d{1,6})_mp_rank_00_(optim|model)_states\.pt")
_PLAIN = "mp_rank_00_model_states.pt"
_STATES = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "momentum_buffer": "exp_avg"}
# What DeepSpeed itself saves beside the script's client_state.
_OWN = frozenset({"module", "buffer_names", "optimizer", "param_shapes", "frozen_param_shapes", "shared_params", "frozen_param_fragments", "lr_scheduler",
                  "data_sampler", "random_ltd", "skipped_steps", "global_steps", "global_samples", "dp_world_size", "mp_world_size",
                  "checkpoint_parallel_dimensions", "ds_config", "ds_version", "universal_checkpoint_info", "sparse_tensor_module_names", "num_experts"})


def is_deepspeed(folder: str) -> bool:
    return os.path.isdir(folder) and any(each == _PLAIN or _RANK.fullmatch(each) for each in os.listdir(folder))


class DeepSpeed(Foreign):
    """order: the names in the optimizer's groups, which stage 0 does not save."""

    def __init__(self, path: str, order: list[list[str]] | None = None) -> None:
        super().__init__("deepspeed", path)
        self._order = order
        names = sorted(os.listdir(path))
        for each in names:
            if re.match(r"(layer_|expp_rank_|.*mp_rank_0*[1-9])", each) and each.endswith("_states.pt"):
                raise ForeignError(f"{os.path.join(path, each)}: is of a training with tensor or pipeline parallelism or with experts, which is not read; "
                                   "merge its parts with DeepSpeed first")
        ranks: dict[str, dict[int, str]] = {"optim": {}, "model": {}}
        for each in names:
            if found := _RANK.fullmatch(each):
                if int(found[1]) in ranks[found[2]]:
                    raise ForeignError(f"{os.path.join(path, each)}: is a second file of rank {found[1]}; remove the one that is of an earlier save")
                ranks[found[2]][int(found[1])] = os.path.join(path, each)
        models = ranks["model"] or {0: os.path.join(path, _PLAIN)}
        self._models = [(file, self._model(file)) for _, file in sorted(models.items())]
        self._world = number(member(self._models[0][1], "dp_world_size", int, self._models[0][0]), path)
        self._require_ranks(models if ranks["model"] else None)
        self._common()
        if os.path.isdir(os.path.join(path, "zero")):
            self.kind = "deepspeed universal"
            self._universal(os.path.join(path, "zero"))
        elif ranks["optim"]:
            self._require_ranks(ranks["optim"])
            self._partitioned([(file, member(opened(file), "optimizer_state_dict", dict, file)) for _, file in sorted(ranks["optim"].items())])
        else:
            self.kind = "deepspeed stage 0"
            self._whole()
        self._frozen()

    def _model(self, file: str) -> dict[str, Any]:
        found = opened(file)
        member(found, "module", dict, file)
        return dict(found)

    def _require_ranks(self, files: dict[int, str] | None) -> None:
        for rank in range(self._world if files is not None else 0):
            if files is not None and rank not in files:
                raise ForeignError(f"{self.path}: {self._world} ranks saved it, and there is no file of rank {rank} beside {os.path.basename(next(iter(files.values())))}; "
                                   "copy the files of all ranks")
        if files is not None and len(files) != self._world:
            raise ForeignError(f"{files[max(files)]}: is of a rank that did not take part: {self._world} ranks saved the checkpoint; remove what an earlier save left")

    # ---- What is not the optimizer's ----

    def _common(self) -> None:
        file, state = self._models[0]
        for other, theirs in self._models[1:]:
            for key in ("global_steps", "skipped_steps", "dp_world_size", "param_shapes"):
                if theirs.get(key) != state.get(key):
                    raise ForeignError(f"{other}: has other {key} than {os.path.basename(file)}; they are of two saves: copy the files of one")
        self.progress.global_steps = number(state.get("global_steps", 0), file)
        self.progress.skipped_steps = number(state.get("skipped_steps", 0), file)
        self._scheduler = state.get("lr_scheduler")
        self._client = {key: value for key, value in state.items() if key not in _OWN}
        buffers = state.get("buffer_names") or []
        self._buffers = {name: tensor for name, tensor in state["module"].items() if name in buffers and isinstance(tensor, Tensor)}
        self._weights = {name: tensor for name, tensor in state["module"].items() if name not in buffers and isinstance(tensor, Tensor)}
        first: dict[Any, str] = {}
        for name, tensor in self._weights.items():
            for other in first.values():
                if tensor.is_same(self._weights[other]):
                    self.aliases[name] = other
            first[name] = name
        for alias, root in (state.get("shared_params") or {}).items():
            self.aliases[str(alias)] = str(root)
        self._shapes = [{str(name): shape_of(shape, file) for name, shape in group.items()} for group in state.get("param_shapes") or []]

    def _named(self, name: str) -> str:
        """The optimizer's name of a parameter becomes the first of its names."""
        return self.aliases.get(name, name)

    def _frozen(self) -> None:
        for name, shape in (self._models[0][1].get("frozen_param_shapes") or {}).items():
            pieces: list[Piece] = []
            whole, left = shape_of(shape, self.path), math.prod(shape)
            for file, state in self._models:
                fragment = member(state.get("frozen_param_fragments"), name, Tensor, file)
                pieces.append((fragment, 0, min(left, fragment.count)))
                left -= pieces[-1][2]
            self._add(name, "published", whole, pieces)
        for name, tensor in self._weights.items():
            if name not in self.parameters and name not in self.aliases and self.kind != "deepspeed stage 3":
                self._add(name, "published", tensor.shape, [(tensor, 0, tensor.count)])

    def verify(self, part: int = 0, of: int = 1) -> None:
        """Also, where the files have both: the 16-bit weights are the masters', rounded, which those of two saves are not."""
        super().verify(part, of)
        for index, (name, tensor) in enumerate(sorted(self._weights.items())):
            if index % of != part or (name, "master") not in self._pieces or self.parameters[name] != tensor.shape:
                continue
            tensor.check()
            if not numpy.array_equal(rounded(self.read(name), tensor.dtype), tensor.float32(), equal_nan=True):
                raise ForeignError(f"{self.path}: the weight {name!r} of {os.path.basename(self._models[0][0])} is not the master of the optimizer's files, rounded to "
                                   f"{tensor.dtype}; they are of two saves: copy the files of one")

    # ---- Stages 1 to 3 ----

    def _partitioned(self, ranks: list[tuple[str, dict[str, Any]]]) -> None:
        file, first = ranks[0]
        is_third = "fp32_flat_groups" in first
        self.kind = "deepspeed stage 3" if is_third else f"deepspeed stage {plain(first.get('zero_stage', 1))}"
        if first.get("ds_zero_partition_groups"):
            raise ForeignError(f"{file}: its groups have partitions of their own (experts), which are not read")
        flats = [self._flat_groups(path, state, is_third) for path, state in ranks]
        for (path, _), theirs in zip(ranks, flats):
            if len(theirs) != len(flats[0]):
                raise ForeignError(f"{path}: has {len(theirs)} groups, and {os.path.basename(file)} has {len(flats[0])}; they are of two saves: copy the files of one")
        if is_third:
            self._take_third(flats)
        else:
            self._take_slices(ranks, flats)
        self._take_loss_scale(first.get("loss_scaler"))

    def _flat_groups(self, path: str, state: dict[str, Any], is_third: bool) -> list[dict[str, Any]]:
        """Of each group of a rank: its values by our names, flat, and "step"."""
        masters = member(state, "fp32_flat_groups" if is_third else "single_partition_of_fp32_groups", list, path)
        base = member(state, "optimizer_state_dict" if is_third else "base_optimizer_state", (dict, list), path)
        states = base if isinstance(base, list) else [member(base, "state", dict, path).get(index, {}) for index in range(len(masters))]
        groups = [] if isinstance(base, list) else plain(base.get("param_groups", []))
        if len(states) != len(masters):
            raise ForeignError(f"{path}: has {len(masters)} groups of weights and {len(states)} of states; the file is damaged")
        flats: list[dict[str, Any]] = []
        for index, (master, own) in enumerate(zip(masters, states)):
            flat = {"master": master, **{ours: own[theirs] for theirs, ours in _STATES.items() if isinstance(own.get(theirs), Tensor)}}
            for value, tensor in flat.items():
                if not isinstance(tensor, Tensor) or len(tensor.shape) != 1 or not tensor.is_floating:
                    raise ForeignError(f"{path}: the {value} of group {index} is no flat tensor; the file is damaged")
            step = own.get("step", groups[index].get("step") if index < len(groups) else None)
            flats.append({**flat, "step": None if step is None else number(step, path)})
        if not self.progress.groups:
            self.progress.groups = [{key: value for key, value in group.items() if key != "params"} for group in groups]
        self._compare_steps(path, [each["step"] for each in flats])
        return flats

    def _compare_steps(self, path: str, steps: list[int | None]) -> None:
        known = self.__dict__.setdefault("_steps", (path, steps))
        if known[1] != steps:
            raise ForeignError(f"{path}: its optimizer has made {steps} steps, and that of {os.path.basename(known[0])} {known[1]}; they are of two saves: copy the "
                               "files of one")

    def _note_steps(self, flat: dict[str, Any], name: str, group: int) -> None:
        if flat["step"] is not None:
            self.progress.updates[name] = flat["step"]
        while len(self.progress.names) <= group:
            self.progress.names.append([])
        self.progress.names[group].append(name)

    def _take_slices(self, ranks: list[tuple[str, dict[str, Any]]], flats: list[list[dict[str, Any]]]) -> None:
        """Of stages 1 and 2: the parameters of a group lie one after the other in the order of param_shapes, cut into a part for each rank. (Its
        param_slice_mappings are other with round_robin_gradients, and wrong.)"""
        paddings = ranks[0][1].get("param_alignment_paddings")
        for index, shapes in enumerate(self._shapes):
            at = 0
            for number_, (name, shape) in enumerate(shapes.items()):
                pieces: dict[str, list[Piece]] = {}
                for value in (each for each in (flats[0][index] if index < len(flats[0]) else {}) if each != "step"):
                    pieces[value] = cut([own[index].get(value) for own in flats], at, math.prod(shape))
                self._take(flats[0][index] if pieces else {"step": None}, name, shape, pieces, index)
                at += math.prod(shape) + (number(paddings[index][number_], ranks[0][0]) if paddings else 0)

    def _take(self, flat: dict[str, Any], name: str, shape: tuple[int, ...], pieces: dict[str, list[Piece]], group: int) -> None:
        if not pieces:
            raise ForeignError(f"{self.path}: no rank has anything of {name!r}; the files are of two saves, or damaged")
        named = self._named(name)
        for value, runs in pieces.items():
            self._add(named, value, shape, runs)
        self._note_steps(flat, named, group)

    def _take_third(self, flats: list[list[dict[str, Any]]]) -> None:
        """Of stage 3: each rank has an equal part of each parameter, the last ones padded, one after the other over its groups."""
        world, at = self._world, 0
        starts = [0]
        for flat in flats[0]:
            starts.append(starts[-1] + flat["master"].count)
        for path_index, own in enumerate(flats):
            for flat, begin, end in zip(own, starts, starts[1:]):
                if any(flat[value].count != end - begin for value in flat if value != "step"):
                    raise ForeignError(f"{self.path}: the files of rank {path_index} have groups of other sizes than rank 0's; they are of two saves, or damaged")
        for index, shapes in enumerate(self._shapes):
            for name, shape in shapes.items():
                count = math.prod(shape)
                part = -(-count // world)
                touched = [group for group in range(len(flats[0])) if starts[group] < at + part and at < starts[group + 1]]
                values = [value for value in flats[0][touched[0]] if value != "step"] if touched else []
                pieces: dict[str, list[Piece]] = {value: [] for value in values}
                for rank, own in enumerate(flats):
                    left = max(0, min(part, count - rank * part))
                    for group in touched:
                        first, last = max(at, starts[group]), min(at + left, starts[group + 1])
                        for value in values:
                            if last > first:
                                pieces[value].append((own[group][value], first - starts[group], last - first))
                at += part
                self._take(flats[0][touched[0]] if touched else {"step": None}, name, shape, pieces, index)
        if at != starts[-1]:
            raise ForeignError(f"{self.path}: the parameters have {at} elements on each rank, and the files {starts[-1]}; they are of two saves, or damaged")

    def _take_loss_scale(self, scaler: Any) -> None:
        get: Any = scaler.get if isinstance(scaler, (Opaque, dict)) else (lambda *_: None)
        if isinstance(get("cur_scale"), (int, float)) and isinstance(get("cur_iter"), int):
            names = {"scale": "cur_scale", "windows": "cur_iter", "last_overflow": "last_overflow_iter", "hysteresis_left": "cur_hysteresis"}
            self.progress.loss_scale = {ours: get(theirs) for ours, theirs in names.items() if isinstance(get(theirs), (int, float))}

    # ---- Stage 0 ----

    def _whole(self) -> None:
        file, model = self._models[0]
        outer = member(model, "optimizer", dict, file)
        state = outer if "state" in outer else member(outer, "optimizer_state_dict", dict, file)
        groups = member(state, "param_groups", list, file)
        masters = outer.get("fp32_groups")
        self.progress.groups = [{key: value for key, value in plain(group).items() if key != "params"} for group in groups]
        order = self._order or self._guessed(groups)
        waiting: list[str] = []
        if [len(group) for group in order] != [len(group.get("params", [])) for group in groups]:
            raise ForeignError(f"{file}: its optimizer has groups of {[len(group.get('params', [])) for group in groups]} parameters, and order= has {[len(g) for g in order]}")
        for index, (group, names) in enumerate(zip(groups, order)):
            for at, (number_, name) in enumerate(zip(group["params"], names)):
                own = member(state, "state", dict, file).get(number_, {})
                tensor = self._weights.get(self._named(name)) if not masters else masters[index][at]
                if not isinstance(tensor, Tensor):
                    raise ForeignError(f"{file}: has no parameter {name!r}, which is in group {index} of order=")
                values = {"master": tensor, **{ours: own[theirs] for theirs, ours in _STATES.items() if isinstance(own.get(theirs), Tensor)}}
                for value, each in values.items():
                    self._add(self._named(name), value, each.shape, [(each, 0, each.count)])
                self._note_steps({"step": number(own["step"], file) if "step" in own else None}, self._named(name), index)
                if not own:
                    waiting.append(self._named(name))
        for name in waiting:
            self._begin_moments(name)
        self._take_loss_scale(outer)

    def _guessed(self, groups: list[Any]) -> list[list[str]]:
        """Where there is one group of all parameters, it has the module's order."""
        names = [name for name in self._weights if name not in self.aliases]
        if len(groups) == 1 and len(groups[0].get("params", [])) == len(names):
            return [names]
        raise ForeignError(f"{self._models[0][0]}: stage 0 does not save which parameters its optimizer's {len(groups)} groups have; give order=, their names, as "
                           "outrigger.torch's load_checkpoint does")

    # ---- Universal ----

    def _universal(self, folder: str) -> None:
        file = os.path.join(folder, "optimizer_state.pt")
        common = opened(file)
        self.progress.groups = [{key: value for key, value in group.items() if key != "params"} for group in plain(member(common, "param_groups", list, file))]
        self._take_loss_scale(common.get("loss_scaler"))
        base = common.get("optimizer_state_dict")
        states = base.get("state", {}) if isinstance(base, dict) else {}
        for index, shapes in enumerate(self._shapes):
            step = states[index].get("step") if isinstance(states.get(index), dict) else None
            for name, shape in shapes.items():
                here = os.path.join(folder, name)
                if os.path.basename(name) != name or name.startswith("."):
                    raise ForeignError(f"{self.path}: {name!r} is no name of a folder of a parameter")
                values = {"fp32": "master", **_STATES}
                for theirs, ours in values.items():
                    path = os.path.join(here, f"{theirs}.pt")
                    if theirs != "fp32" and not os.path.lexists(path):
                        continue
                    found = opened(path)
                    tensor = found.get("param") if isinstance(found, dict) else found
                    if not isinstance(tensor, Tensor) or tensor.count != math.prod(shape):
                        raise ForeignError(f"{path}: is no tensor of {math.prod(shape)} elements, which {name!r} has; the file is damaged, or of another save")
                    self._add(self._named(name), ours, shape, [(tensor, 0, tensor.count)])
                own = os.path.join(here, "step.pt")
                steps = opened(own) if os.path.lexists(own) else step
                self._note_steps({"step": None if steps is None else number(steps, own)}, self._named(name), index)
