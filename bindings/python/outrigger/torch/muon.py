# SPDX-License-Identifier: Apache-2.0
"""Muon's parameter groups, as DeepSpeed has them: each of the caller's in a half of matrices and a half of the others."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .config import Effective

_MATRICES = ("lr", "momentum", "weight_decay")
_OTHERS = ("lr", "betas", "eps", "weight_decay")


def halves(groups: list[dict[str, Any]], module: torch.nn.Module, effective: Effective) -> list[dict[str, Any]]:
    """Groups of parameters that are trained, with "use_muon", "name" and all hyperparameters of their half; what a group does
    not set is the configuration's. ValueError: a group sets what is one for all groups, or "use_muon" against the rule, or
    nothing is trained."""
    params = effective.names("optimizer", "params")
    values: dict[str, Any] = {key: effective("optimizer", "params", key) for key in params}
    muon_lr = values["lr"] if values["muon_lr"] is None else values["muon_lr"]
    defaults = ((True, "muon", {**{key: values[key] for key in _MATRICES}, "lr": muon_lr}),
                (False, "adam", {**{key: values[key] for key in _OTHERS}, "lr": values["adam_lr"], "betas": tuple(values["betas"])}))
    names = {parameter: name for name, parameter in module.named_parameters()}
    others: list[str] = effective("outrigger", "muon", "adam_parameters")
    found: list[dict[str, Any]] = []
    for index, group in enumerate(groups):
        _guard(index, group, values)
        trained = [each for each in group["params"] if each.requires_grad]
        own = {key: value for key, value in group.items() if key not in values}
        prefix = group.get("name") or (f"group{index}" if len(groups) > 1 else "")
        for use_muon, label, rule in defaults:
            # One that is not the module's has no name; it is refused where the engine declares its parameters.
            half = [each for each in trained if _is_matrix(names.get(each, ""), each, others) == use_muon]
            if not half:
                continue
            if bool(group.get("use_muon", use_muon)) != use_muon:
                raise ValueError(_against_the_rule(index, group, names.get(half[0], ""), half[0], others))
            found.append({**own, **{key: group.get(key, value) for key, value in rule.items()}, "params": half,
                          "use_muon": use_muon, "name": f"{prefix}-{label}-params" if prefix else f"{label}-params"})
    if not found:
        raise ValueError("no parameter of the groups has requires_grad True: there is nothing to train")
    return found


def _is_matrix(name: str, parameter: torch.Tensor, others: list[str]) -> bool:
    """The library's rule, which it applies when the parameter is declared: in a group that has to be there by then."""
    return parameter.dim() >= 2 and not any(part.lower() in name.lower() for part in others)


def _guard(index: int, group: dict[str, Any], values: dict[str, Any]) -> None:
    for key, value in group.items():
        # ns_method, in DeepSpeed's groups, has no effect here.
        if key in values and key not in (*_MATRICES, *_OTHERS, "ns_method") and value != values[key]:
            raise ValueError(f"parameter group {index} has {key} = {value!r}, which Muon has once for all groups ({values[key]!r}): set it in "
                             f"the configuration's optimizer.params. A group may have {', '.join(_MATRICES)} of its matrices and "
                             f"{', '.join(_OTHERS)} of its other parameters")


def _against_the_rule(index: int, group: dict[str, Any], name: str, parameter: torch.Tensor, others: list[str]) -> str:
    return (f"parameter group {index} has use_muon = {group['use_muon']!r}, but {name!r} of shape {tuple(parameter.shape)} "
            f"{'is none' if group['use_muon'] else 'is one'} of Muon's matrices: parameters of two or more dimensions whose names contain none of "
            f"{', '.join(map(repr, others))}. Change outrigger.muon.adam_parameters, or leave use_muon out")
