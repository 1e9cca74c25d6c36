# SPDX-License-Identifier: Apache-2.0
"""The configurations that the example compares, each under a name.

    python configurations.py              lists them
    python configurations.py NAME         prints one as JSON
    python configurations.py --write      writes configs/baseline.json and configs/bf16_full.json
"""
import copy
import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "configs"
FILES = ("baseline", "bf16_full")  # are there as files, too
BASE = {
    "train_micro_batch_size_per_gpu": 1,  # --batch_size of train.py takes its place
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": 4194304},
    "bf16": {"enabled": True},
}
BF16_MASTER = {"bf16_master_weights_and_grads": True}
BF16_STATES = {"bf16_optimizer_states": True}
AUTOCAST = {"enabled": True, "dtype": "bfloat16"}


class ConfigurationError(ValueError):
    """What was asked for is no configuration; the text says why."""


def make(stage=3, bf16=None, autocast=True, offload=False, states=None):
    """bf16: more keys of that section; states: formats and roundings that only Outrigger has."""
    config = copy.deepcopy(BASE)
    config["zero_optimization"]["stage"] = stage
    config["bf16"].update(bf16 or {})
    if autocast:
        config["torch_autocast"] = dict(AUTOCAST)
    if offload:
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    if states:
        config["outrigger"] = {"seed": 1, "states": copy.deepcopy(states)}
    return config


def _states(key, master, moments):
    return {"master": {key: master}, "exp_avg": {key: moments}, "exp_avg_sq": {key: moments}}


def _all():
    full = {**BF16_MASTER, **BF16_STATES}
    found = {
        "baseline": ("stage 3, float32 master and states", make(autocast=False)),
        "bf16_full": ("stage 3, bfloat16 master and states, autocast", make(bf16=full)),
    }
    for stage in (1, 2, 3):
        for suffix, words, autocast in (("", "", False), ("_autocast", ", autocast", True)):
            found[f"fp32_stage{stage}{suffix}"] = (f"stage {stage}, float32 master and states{words}", make(stage, autocast=autocast))
            found[f"bf16_stage{stage}{suffix}"] = (f"stage {stage}, bfloat16 master and states{words}", make(stage, full, autocast))
        found[f"bf16_master_offload_stage{stage}"] = (f"stage {stage}, bfloat16 master, float32 states, optimizer on the CPU, autocast",
                                                      make(stage, BF16_MASTER, offload=True))
        found[f"bf16_offload_stage{stage}"] = (f"stage {stage}, bfloat16 master and states, optimizer on the CPU, autocast",
                                               make(stage, full, offload=True))
    found["stochastic"] = ("bf16_full, rounded stochastically", make(bf16=full, states=_states("rounding", "stochastic", "stochastic")))
    found["split"] = ("stage 3, split master, float32 states, autocast", make(states=_states("format", "split", "float32")))
    found["split_bf16"] = ("stage 3, split master, bfloat16 states rounded stochastically, autocast",
                           make(states=_states("format", "split", "bfloat16")))
    found["bf16_8bit"] = ("stage 3, bfloat16 master, 8-bit states, both rounded stochastically, autocast",
                          make(states=_states("format", "bfloat16", "block8")))
    found["split_8bit"] = ("stage 3, split master, 8-bit states rounded stochastically, autocast",
                           make(states=_states("format", "split", "block8")))
    return found


_FOUND = _all()
NAMES = tuple(_FOUND)


def title(name):
    return _FOUND[name][0]


def configuration(name):
    """A copy of the configuration of this name."""
    if name not in _FOUND:
        raise ConfigurationError(f"no configuration {name!r}; there are {', '.join(NAMES)}")
    return copy.deepcopy(_FOUND[name][1])


def outrigger_alone(config):
    """Whether DeepSpeed would ignore a part of it: what stands under "outrigger"."""
    return bool(config.get("outrigger"))


def read(source):
    """The configuration of a file, or of a name from this module."""
    path = Path(source)
    if source in _FOUND and not path.is_file():
        return configuration(source)
    if not path.is_file():
        raise ConfigurationError(f"configuration {source!r} is neither a file nor one of {', '.join(NAMES)}")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigurationError(f"{source}: no configuration can be read: {error}") from error
    if not isinstance(config, dict):
        raise ConfigurationError(f"{source}: a configuration is a JSON object")
    return config


def text(name):
    return json.dumps(configuration(name), indent=2) + "\n"


def main():
    if sys.argv[1:] == ["--write"]:
        FOLDER.mkdir(exist_ok=True)
        for name in FILES:
            (FOLDER / f"{name}.json").write_text(text(name), encoding="utf-8")
    elif len(sys.argv) == 2:
        try:
            print(text(sys.argv[1]), end="")
        except ConfigurationError as error:
            sys.exit(f"configurations.py: {error}")
    else:
        for name in NAMES:
            print(f"{name:28} {title(name)}")


if __name__ == "__main__":
    main()
