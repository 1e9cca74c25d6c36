# SPDX-License-Identifier: Apache-2.0
"""The configuration of a DeepSpeed script: what goes to the library, and what this adapter does itself."""
import argparse
import copy
import json
import os

import torch

from ..lowlevel import OutriggerError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


# Left to the host framework, and done here.
HOST_KEYS = ("csv_monitor", "dataloader_drop_last", "fp16.auto_cast", "steps_per_print", "tensorboard", "torch_autocast.enabled", "wandb",
             "zero_optimization.stage3_gather_16bit_weights_on_model_save")


class ConfigError(OutriggerError, ValueError, AssertionError):
    """E_CONFIG from initialize, which scripts may catch as DeepSpeed raises it."""


def read(config):
    """The configuration as a dictionary of its own, from a dictionary, a path or a JSON text."""
    if isinstance(config, dict):
        return copy.deepcopy(config)
    if isinstance(config, (str, os.PathLike)):
        text = os.fspath(config)
        if not text.lstrip().startswith("{"):
            try:
                with open(text, encoding="utf-8") as file:
                    text = file.read()
            except OSError as error:
                raise ValueError(f"config {text!r} is neither a JSON text nor a file that can be read ({error.strerror})") from error
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"the configuration is not JSON: {error}") from error
    raise TypeError(f"config is a {type(config).__name__}; give a dictionary, a path or a JSON text")


def given(args, config, config_params=None):
    """The configuration that a script names, in one of DeepSpeed's three places."""
    from_args = getattr(args, "deepspeed_config", None)
    found = [each for each in (config, config_params, from_args) if each is not None]
    if not found:
        raise ValueError("no configuration: give config= (a dictionary or a path), or --deepspeed_config on the command line")
    if len(found) > 1 and any(each is not found[0] and each != found[0] for each in found[1:]):
        raise ValueError("more than one configuration is given (config=, config_params=, --deepspeed_config); keep one")
    return read(found[0])


class Settings:
    """The adapter's part of a configuration."""

    def __init__(self, config):
        self.given = copy.deepcopy(config)
        self.library = config
        if config.get("steps_per_print") == float("inf"):  # never, as Accelerate says it
            del config["steps_per_print"]
        self.scheduler = config.pop("scheduler", None) or {}
        self.managed = config.pop("managed_gradient_accumulation", True)
        autocast = config.get("torch_autocast") or {}
        self.autocast = None
        if autocast.get("enabled"):
            self.autocast = _dtype(autocast.get("dtype") or "bfloat16")
        # Scripts write into parameters, each rank on its own; at stage 3 only under GatheredParameters.
        zero = config.get("zero_optimization") or {}
        stage = zero.get("stage", 0) if isinstance(zero, dict) else int(zero)  # true is the oldest form
        own = config.setdefault("outrigger", {})
        self.shares = bool(own.setdefault("share_parameters", stage not in (1, 2)))
        if not (config.get("fp16") or {}).get("enabled") and self.autocast != torch.float16:
            own.setdefault("accumulation_divisor", "configured_at_step")
        own["host_keys"] = [*own.get("host_keys", []), *HOST_KEYS]
        self.casts_inputs = bool((config.get("fp16") or {}).get("auto_cast"))


def _dtype(name):
    dtype = getattr(torch, str(name).removeprefix("torch."), None) or DTYPES.get(str(name))
    if dtype not in (torch.bfloat16, torch.float16):
        raise ValueError(f"torch_autocast.dtype = {name!r} is not legal; legal: bfloat16, float16")
    return dtype


class Effective:
    """The configuration in effect, as the library says it: effective("zero_optimization", "stage")."""

    def __init__(self, tree):
        self._tree = tree

    def __call__(self, *path):
        node = self._tree
        for key in path:
            node = node[key]
        return node["value"]

    def names(self, *path):
        """The keys of a section."""
        return list(self.section(*path))

    def section(self, *path):
        """A section's values."""
        node = self._tree
        for key in path:
            node = node[key]
        return {key: each.get("value") for key, each in node.items()}

    @property
    def compute_dtype(self):
        for section, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
            if self(section, "enabled"):
                return dtype
        return torch.float32


def add_config_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds --deepspeed, --deepspeed_config and their old spellings to an argparse parser, and returns it."""
    group = parser.add_argument_group("DeepSpeed", "DeepSpeed configurations")
    group.add_argument("--deepspeed", action="store_true", help="enable DeepSpeed; a script may ask for it")
    group.add_argument("--deepspeed_config", default=None, type=str, help="path of the configuration, JSON")
    group.add_argument("--deepscale", action="store_true", help=argparse.SUPPRESS)
    group.add_argument("--deepscale_config", default=None, type=str, help=argparse.SUPPRESS)
    return parser
