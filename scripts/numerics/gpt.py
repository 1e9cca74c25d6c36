# SPDX-License-Identifier: Apache-2.0
"""The first play: the example GPT in C (c_api/examples/gpt), on one rank."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from runs import Run, run_of
from variants import FLOAT32, VARIANTS, configuration

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
from demo import environment  # noqa: E402

Options = dict[str, Any]  # of the program's command line


def train(build: Path, out: Path, variant: str, seed: int, options: Options) -> Run:
    """One run of the program; its files stay in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    stem = out / f"{variant}-{seed}"
    config, table, summary = (stem.with_suffix(suffix) for suffix in (".config.json", ".csv", ".json"))
    config.write_text(json.dumps(configuration(variant, seed)), encoding="ascii")
    options = {**options, "config": config, "csv": table, "summary": summary, "save": stem.with_suffix(".weights"),
               "seed": seed, "name": variant, "sample": 0, "evaluate-every": 0}
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    # Runs share the machine's cores; one of them is one thread of BLAS.
    done = subprocess.run([str(build / "c_api" / "examples" / "gpt"), *words], capture_output=True, text=True,
                          env={**environment(), "OPENBLAS_NUM_THREADS": "1"}, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{stem}: the run ended with exit code {done.returncode}\n{done.stderr}")
    with table.open(encoding="ascii") as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file)]
    told = json.loads(summary.read_text(encoding="ascii"))
    total = next(entry for entry in told["memory"] if entry["purpose"] == "total")
    run = run_of(seed, losses, told["held_out"], told["updates"], told["vanished"])
    return {**run, "parameters": told["parameters"], "resident_bytes": total["resident_bytes"],
            "warnings": [line for line in done.stderr.splitlines() if line.startswith("outrigger: ")]}


def weights(path: Path) -> np.ndarray:
    return np.fromfile(path, dtype=np.float32).astype(np.float64)


def compare_ways(out: Path, start: Path, runs: dict[str, list[Run]]) -> None:
    """Adds to each fine-tuned run how far its weights went: `way`, along the way of float32's run with the same seed (1: as
    far), and `distance`, in all directions, both as shares of float32's distance; and which share of weights never moved."""
    begin = weights(start)
    rounded = np.fromfile(start, dtype=np.float32).astype(bfloat16()).astype(np.float64)
    for name, of_variant in runs.items():
        # A bfloat16 master begins at the rounded weight.
        origin = rounded if name.startswith("bf16") else begin
        for run in of_variant:
            reference = weights(out / f"{FLOAT32}-{run['seed']}.weights") - begin
            moved = weights(out / f"{name}-{run['seed']}.weights") - origin
            square = float(reference @ reference)
            run["way"] = float(moved @ reference) / square
            run["distance"] = (float(moved @ moved) / square) ** 0.5
            run["unmoved"] = float(np.mean(moved == 0))


def bfloat16() -> Any:
    import ml_dtypes

    return ml_dtypes.bfloat16


def large_model_bytes(build: Path, out: Path, model: dict[str, Any]) -> dict[str, Any]:
    """Resident bytes a parameter of a model of usual size, by the library's estimate, which equals the ledger; alignment
    of small tensors, a few per cent of the plays' models, does not show there."""
    path, config = out / "model.json", out / "estimate.config.json"
    path.write_text(json.dumps(model), encoding="ascii")
    result: dict[str, Any] = {"bytes": {}}
    for name in VARIANTS:
        config.write_text(json.dumps(configuration(name)), encoding="ascii")
        command = [str(build / "c_api" / "tools" / "outrigger"), "estimate", str(path), "--config", str(config),
                   "--host-gib", "1024", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
        if not done.stdout:
            raise SystemExit(f"outrigger estimate: {done.stderr}")
        told = json.loads(done.stdout)
        result["parameters"] = told["parameters"]
        result["bytes"][name] = told["rank"]["outrigger"]["total"]["resident_bytes"] / told["parameters"]
    return result
