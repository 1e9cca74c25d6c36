# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that DeepSpeed 0.19.8 writes on two ranks, each stage and precision, with what it says is in them and the losses
of its own steps that follow: the data of tests/bindings/torch/test_foreign.py.

    python deepspeed_checkpoints.py FOLDER [CASE…]

needs torch and deepspeed 0.19.8 (DS_BUILD_OPS=0), and no GPU. It writes FOLDER/<case>/…, FOLDER/<case>.npz (float32 values) and
FOLDER/losses.json, and prints the losses."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/bindings/torch"))
import foreign_cases as cases  # noqa: E402

TAG = "global_step8"


def one(name, folder):
    """On a rank: trains, saves, notes what is in the checkpoint, goes on in a new engine as a user's next job does."""
    import deepspeed
    from deepspeed.accelerator import get_accelerator
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    torch.set_num_threads(1)
    get_accelerator().is_fp16_supported = lambda: True  # slowly, and PyTorch does it
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    stage, more = cases.CASES[name]
    rank, world, dtype = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), cases.dtype_of(more)

    def start(seed):
        config = cases.config(stage, more)
        if config["optimizer"]["type"] == "AdamW":
            config["optimizer"]["params"]["torch_adam"] = True
        model = cases.net(seed)
        return deepspeed.initialize(model=model, model_parameters=cases.groups(model), config=config)[0]

    def mean(losses):
        every = torch.tensor(losses, dtype=torch.float64)
        torch.distributed.all_reduce(every)
        return (every / world).tolist()

    engine = start(0)
    before = mean(cases.train(engine, 0, cases.SAVED, rank, world, dtype))
    engine.save_checkpoint(folder / name, tag=TAG, client_state=cases.CLIENT)
    values = {}
    if hasattr(engine.optimizer, "_lazy_init_hp_params_optimizer_state"):  # which it did before its second group had a step
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    for key, parameter in engine.module.named_parameters():
        if parameter.requires_grad:
            if stage > 0 or dtype != torch.float32:
                values[f"{key}/master"] = full(engine, parameter, stage, safe_get_full_fp32_param, "fp32")
                states = ("momentum_buffer",) if name.endswith("sgd") else ("exp_avg", "exp_avg_sq")
                for state in states:
                    values[f"{key}/{state}"] = full(engine, parameter, stage, safe_get_full_optimizer_state, state)
            else:
                values[f"{key}/master"] = parameter.detach()
                values.update({f"{key}/{state}": engine.optimizer.state[parameter][state] for state in ("exp_avg", "exp_avg_sq")})
        else:
            with deepspeed.zero.GatheredParameters([parameter], enabled=stage == 3):
                values[f"{key}/published"] = parameter.detach().float().clone()
    values.update({f"{key}/buffer": each.clone() for key, each in engine.module.named_buffers()})
    summary = {"before": before, "lr": engine.get_lr(), "loss_scale": scale_of(engine),
               "global_steps": engine.global_steps, "skipped_steps": engine.skipped_steps}
    engine.destroy()
    engine = start(1)
    engine.load_checkpoint(folder / name, tag=TAG)
    summary["after"] = mean(cases.train(engine, cases.SAVED, cases.END, rank, world, dtype))
    summary["skipped_after"] = engine.skipped_steps
    if rank == 0:
        numpy.savez_compressed(folder / f"{name}.npz", **{key: each.float().numpy() if each.is_floating_point() else each.numpy()
                                                         for key, each in values.items()})
        (folder / f"{name}.json").write_text(json.dumps(summary))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def scale_of(engine):
    scale = getattr(engine.optimizer, "cur_scale", None) or getattr(engine.optimizer, "loss_scale", 1.0)
    return float(scale)


def full(engine, parameter, stage, get, state):
    """Of a whole parameter; the 16-bit optimizers of stage 0 keep it themselves."""
    if stage > 0:
        value = get(parameter) if state == "fp32" else get(parameter, state)
        return value.detach().clone()
    optimizer = engine.optimizer
    for halves, masters in zip(optimizer.fp16_groups, optimizer.fp32_groups):
        for half, master in zip(halves, masters):
            if half is parameter:
                return (master if state == "fp32" else optimizer.optimizer.state[master][state]).detach().clone()
    raise KeyError(state)


def check(folder, name, stage):
    """Against DeepSpeed's own conversion to float32, which reads the files."""
    if stage == 0:
        return
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    if "zero_stage" not in torch.load(next((folder / name / TAG).glob("*zero_pp_rank_0*optim*")), weights_only=False)["optimizer_state_dict"]:
        return  # the BF16_Optimizer's files, which it does not read
    converted = get_fp32_state_dict_from_zero_checkpoint(folder / name, TAG)
    values = numpy.load(folder / f"{name}.npz")
    masters = [key for key in values.files if key.endswith("/master")]
    assert len(masters) == 7, masters
    if "round_robin_gradients" in cases.CASES[name][1].get("zero_optimization", {}):
        # Its safe_get_full_… take the parameters in another order than they lie in: only the masters are known, from its conversion.
        kept = {key: values[key] for key in values.files if not key.endswith(("/exp_avg", "/exp_avg_sq"))}
        kept.update({key: converted[key.removesuffix("/master")].detach().numpy() for key in masters})
        numpy.savez_compressed(folder / f"{name}.npz", **kept)
        return
    for key in masters:
        assert numpy.array_equal(converted[key.removesuffix("/master")].detach().numpy(), values[key]), key


def main():
    folder = Path(sys.argv[1]).resolve()
    if "RANK" in os.environ:
        one(sys.argv[2], folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    known = folder / "losses.json"
    losses = json.loads(known.read_text()) if known.exists() else {}
    for name in sys.argv[2:] or cases.CASES:
        shutil.rmtree(folder / name, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__, str(folder), name],
                       check=True, env=environment)
        check(folder, name, cases.CASES[name][0])
        summary = folder / f"{name}.json"
        losses[name] = json.loads(summary.read_text())
        summary.unlink()
        for script in (folder / name).rglob("zero_to_*.py"):
            script.unlink()
        if name in cases.UNIVERSAL:
            made = folder / cases.UNIVERSAL[name]
            shutil.rmtree(made, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", str(folder / name / TAG),
                            "--output_folder", str(made / "universal"), "--inject_missing_state"], check=True, env=environment)
            (made / "latest_universal").write_text("universal")
        print(name, json.dumps(losses[name]))
    known.write_text(json.dumps(losses, indent=1) + "\n")


if __name__ == "__main__":
    main()
