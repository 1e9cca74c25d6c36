# SPDX-License-Identifier: Apache-2.0
"""The library itself, asked as one rank of worlds up to 16,384: tests/bench/scale_plan.cpp, a process for each question."""
import json
import subprocess

import transformers

WORLDS = (8, 64, 512, 1024, 4096, 16384)
BF16 = {"bf16": {"enabled": True}, "gradient_clipping": 1.0}
CONFIGURATIONS = {
    **{f"stage {stage}": {**BF16, "zero_optimization": {"stage": stage}} for stage in (1, 2, 3)},
    "mesh": {**BF16, "zero_optimization": {"stage": 3}, "outrigger": {"mesh": {"shard": 8}}},
    "hpZ": {**BF16, "zero_optimization": {"stage": 3}, "outrigger": {"mesh": {"shard": 8, "states": "all"}}},
    "offload": {**BF16, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}},
}
STEP_WORLD = 1024
RUN = ("stage 1", "stage 2", "stage 3")  # of these, what can be committed is


def question(work, model, name):
    """The files that the program reads."""
    work.mkdir(parents=True, exist_ok=True)
    shapes, config = work / f"{model.name.replace(' ', '')}.shapes", work / f"{name.replace(' ', '')}.json"
    shapes.write_text("".join(f"{tensor} {rows} {columns}\n" for tensor, rows, columns in model.tensors()), encoding="utf-8")
    config.write_text(json.dumps(CONFIGURATIONS[name]), encoding="utf-8")
    return shapes, config


def ask(programs, work, model, name, world, limit, last="commit"):
    """What rank 1 of the world finds; or why not. last: "commit" or "step", if the limit allows it."""
    done = subprocess.run([str(word) for word in (programs / "bench_scale_plan", *question(work, model, name), world, min(1, world - 1), limit, last)],
                          capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        return {"missing": (done.stderr.strip().splitlines() or ["no text"])[-1][:300]}
    return json.loads(done.stdout)


def measure(programs, work, limit, models=transformers.SCALE, worlds=WORLDS):
    """limit: bytes that a commit may take."""
    runs = []
    for model in models:
        for name in CONFIGURATIONS:
            for world in worlds:
                found = ask(programs, work, model, name, world, limit if name in RUN else 0)
                runs.append({"model": model.name, "configuration": name, "world": world, **found})
                print(f"scale: {model.name}, {name}, {world} ranks: {found.get('missing', 'planned' if 'ledger_bytes' not in found else 'planned and committed')}", flush=True)
    step = ask(programs, work, models[0], "stage 3", STEP_WORLD, limit, "step")
    return {"limit": limit, "runs": runs, "step": {"model": models[0].name, "world": STEP_WORLD, **step}}


def find(found, model, name, world):
    for run in found["runs"]:
        if (run["model"], run["configuration"], run["world"]) == (model, name, world):
            return run
    return {"missing": "this was not asked"}


def device_bytes(found, model, name, world):
    """The most that a rank would have on its GPU, without activations; None: not known."""
    run = find(found, model, name, world)
    return None if "missing" in run else run["memory"]["device"]["peak_bytes"]
