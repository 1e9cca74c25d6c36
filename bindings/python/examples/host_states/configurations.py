# SPDX-License-Identifier: Apache-2.0
"""The forms of optimizer states that are compared. The first three are those of DeepSpeed's PR #8010."""
import collections

Form = collections.namedtuple("Form", "title weights master moments deepspeed")  # dtype of the weights, formats of the states
FORMS = {
    "float32": Form("float32 weights and moments", "float32", None, "float32", True),
    "bf16_float32": Form("bfloat16 master, float32 moments", "bfloat16", "bfloat16", "float32", True),
    "bf16_bf16": Form("bfloat16 master and moments", "bfloat16", "bfloat16", "bfloat16", True),
    "split_bf16": Form("split master, bfloat16 moments", "bfloat16", "split", "bfloat16", False),
    "split_8bit": Form("split master, 8-bit moments", "bfloat16", "split", "block8", False),
    "bf16_8bit": Form("bfloat16 master, 8-bit moments", "bfloat16", "bfloat16", "block8", False),
}
LIBRARIES = {"outrigger": "Outrigger", "deepspeed": "DeepSpeed"}
BETAS, EPS, DECAY, LR, CLIP = (0.9, 0.999), 1e-8, 0.01, 0.01, 1.0


def sides(names, with_deepspeed):
    """(form, library), ours before DeepSpeed's."""
    return [(name, library) for name in names for library in LIBRARIES if library == "outrigger" or with_deepspeed and FORMS[name].deepspeed]


def states(form):
    """Outrigger's formats. Rounding to nearest, as DeepSpeed has it."""
    moment = {"format": form.moments, **({"rounding": "nearest"} if form.moments == "bfloat16" else {})}
    found = {"exp_avg": moment, "exp_avg_sq": moment}
    if form.weights == "bfloat16":
        found["master"] = {"format": form.master, **({"rounding": "nearest"} if form.master == "bfloat16" else {})}
    return found


def engine_config(form):
    """The configuration of PR #8010: states offloaded to the host. DeepSpeed's keys where it has the form."""
    config = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
              "optimizer": {"type": "AdamW", "params": {"lr": LR, "betas": list(BETAS), "eps": EPS, "weight_decay": DECAY}},
              "gradient_clipping": CLIP}
    if form.weights == "bfloat16":
        config["bf16"] = {"enabled": True}
        if form.deepspeed:
            config["bf16"] |= {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": form.moments == "bfloat16"}
        else:
            config["outrigger"] = {"states": states(form)}
    return config
