# SPDX-License-Identifier: Apache-2.0
"""All runs of the report, several at a time, and the results as one JSON object."""

import multiprocessing
import os
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import gpt
import probes
import regression
import sending
import texts
from runs import Run
from variants import VARIANTS, WAYS

Settings = dict[str, Any]

FULL: Settings = {
    "texts": "plays",
    "seeds": [1, 2, 3, 4, 5, 6],
    "gpt": {
        "model": {"layers": 2, "width": 64, "heads": 4, "context": 32, "batch": 8, "held-out": 0.1, "evaluate-batches": 64},
        "scratch": {"steps": 3000, "lr": 3e-3, "warmup": 100, "final-lr": 0.1},
        "pretrain": {"steps": 6000, "lr": 3e-3, "warmup": 100, "final-lr": 0.02},
        # Constant rates, as the statement about small updates is on the rate.
        "tuned": {"lrs": [1e-5, 5e-5], "steps": 1500, "warmup": 0, "final-lr": 1.0},
    },
    "regression": {
        "scratch": {"steps": 4000, "lr": 3e-3, "last": 0.02},
        "pretrain": {"steps": 8000, "lr": 3e-3, "last": 0.01},
        "tuned": {"lrs": [5e-5], "steps": 4000, "last": 1.0, "task": 1},
    },
    "second_moment": {"before": 2000, "after": 4000, "shrink": 1e-2, "every": 100},
    "constant_gradient": {"steps": 2000, "lr": 2e-5, "every": 50},
    "sending": {"steps": 2000, "lr": 3e-3, "last": 0.02},
    # GPT-2 XL's, for bytes a parameter
    "large_model": {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024, "vocab_size": 50257},
}
PRETRAINED = 100  # the seed of the runs that fine-tuning begins with


def tiny(settings: Settings) -> Settings:
    """The same in seconds, with texts that need no download."""
    result = {**settings, "texts": "generated", "seeds": [1, 2]}
    result["gpt"] = {
        "model": {**settings["gpt"]["model"], "layers": 1, "width": 32, "heads": 2, "context": 16, "evaluate-batches": 4},
        "scratch": {**settings["gpt"]["scratch"], "steps": 120, "warmup": 10, "lr": 1e-2},
        "pretrain": {**settings["gpt"]["pretrain"], "steps": 200, "warmup": 10, "lr": 1e-2},
        "tuned": {**settings["gpt"]["tuned"], "lrs": [2e-5], "steps": 60},
    }
    result["regression"] = {
        "scratch": {**settings["regression"]["scratch"], "steps": 150},
        "pretrain": {**settings["regression"]["pretrain"], "steps": 150},
        "tuned": {**settings["regression"]["tuned"], "lrs": [2e-5], "steps": 100},
    }
    result["second_moment"] = {**settings["second_moment"], "before": 200, "after": 800}
    result["constant_gradient"] = {**settings["constant_gradient"], "steps": 300}
    result["sending"] = {**settings["sending"], "steps": 100}
    return result


class Runner:
    """A pool of processes, and a line on the terminal for what is done."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self.pool, self.begin, self.done, self.total = pool, time.monotonic(), 0, 0

    def start(self, function: Any, *arguments: Any, **keywords: Any) -> Future[Any]:
        self.total += 1
        future = self.pool.submit(function, *arguments, **keywords)
        future.add_done_callback(self._tell)
        return future

    def _tell(self, _: Future[Any]) -> None:
        self.done += 1
        if self.done % 10 == 0 or self.done == self.total:
            print(f"{self.done} of {self.total} runs, {time.monotonic() - self.begin:.0f} s", flush=True)


Futures = dict[str, list[Future[Any]]]


def results_of(futures: Futures) -> dict[str, list[Run]]:
    return {name: [future.result() for future in of_variant] for name, of_variant in futures.items()}


def measure_gpt(runner: Runner, settings: Settings, build: Path, work: Path) -> Any:
    """Returns what to call for the results, once everything else is under way, too."""
    of_texts = texts.generated if settings["texts"] == "generated" else texts.shakespeare_and_milton
    first, second = of_texts(work)
    model, seeds = settings["gpt"]["model"], settings["seeds"]

    def start(out: Path, variant: str, seed: int, text: Path, options: dict[str, Any]) -> Future[Any]:
        return runner.start(gpt.train, build, out, variant, seed, {**model, "text": text, **options})

    def start_all(out: Path, text: Path, options: dict[str, Any]) -> Futures:
        return {name: [start(out, name, seed, text, options) for seed in seeds] for name in VARIANTS}

    pretrained = start(work / "pretrained", "float32", PRETRAINED, first, settings["gpt"]["pretrain"])
    scratch = start_all(work / "scratch", first, settings["gpt"]["scratch"])

    def finish() -> dict[str, Any]:
        before = pretrained.result()
        weights = work / "pretrained" / f"float32-{PRETRAINED}.weights"
        options = {key: value for key, value in settings["gpt"]["tuned"].items() if key != "lrs"}
        # A rate of 0 moves nothing: the held-out loss on the text that fine-tuning goes on with, before it does.
        still = start(work / "pretrained", "float32", PRETRAINED + 1, second, {**options, "steps": 1, "lr": 0, "load": weights})
        tuned = {lr: start_all(work / f"tuned-{lr}", second, {**options, "lr": lr, "load": weights})
                 for lr in settings["gpt"]["tuned"]["lrs"]}
        result: dict[str, Any] = {"gpt-scratch": results_of(scratch)}
        for lr, futures in tuned.items():
            runs = results_of(futures)
            gpt.compare_ways(work / f"tuned-{lr}", weights, runs)
            result[f"gpt-tuned-{lr:g}"] = runs
        return {"plays": result, "pretrained": {"held_out": before["held_out"], "held_out_next": still.result()["held_out"]}}

    return finish


def measure_regression(runner: Runner, settings: Settings) -> Any:
    of_play, seeds = settings["regression"], settings["seeds"]
    pretrained = runner.start(regression.train, "float32", PRETRAINED, **of_play["pretrain"])
    scratch = {name: [runner.start(regression.train, name, seed, **of_play["scratch"]) for seed in seeds] for name in VARIANTS}

    def finish() -> dict[str, Any]:
        before, start = pretrained.result()
        options = {key: value for key, value in of_play["tuned"].items() if key != "lrs"}
        still = runner.start(regression.train, "float32", PRETRAINED + 1, lr=0.0, start=start, **{**options, "steps": 1})
        plays = {"regression-scratch": scratch}
        for lr in of_play["tuned"]["lrs"]:
            plays[f"regression-tuned-{lr:g}"] = {
                name: [runner.start(regression.train, name, seed, lr=lr, start=start, **options) for seed in seeds]
                for name in VARIANTS}
        result = {play: {name: [run for run, _ in runs] for name, runs in results_of(futures).items()}
                  for play, futures in plays.items()}
        return {"plays": result, "pretrained": {"held_out": before["held_out"], "held_out_next": still.result()[0]["held_out"]}}

    return finish


def processor() -> str:
    """The bits of a matrix product, and so the curves, depend on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def measure_sending(settings: Settings) -> dict[str, list[Run]]:
    """Four threads each: one run after another."""
    return {way: [sending.train(way, seed, **settings["sending"]) for seed in settings["seeds"]] for way in WAYS}


def prepare(build: Path, work: Path) -> None:
    work.mkdir(parents=True, exist_ok=True)
    # Both for the processes of the pool, too, which get them from here.
    sys.path.insert(0, str(build / "python"))
    os.environ["OPENBLAS_NUM_THREADS"] = "1"


def measure(settings: Settings, build: Path, work: Path, jobs: int) -> dict[str, Any]:
    prepare(build, work)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        runner = Runner(pool)
        finish_gpt = measure_gpt(runner, settings, build, work)
        finish_regression = measure_regression(runner, settings)
        probed = {probe.__name__: {name: runner.start(probe, name, **settings[probe.__name__]) for name in VARIANTS}
                  for probe in (probes.second_moment, probes.constant_gradient)}
        of_gpt, of_regression = finish_gpt(), finish_regression()
        result = {"settings": settings, "processor": processor(),
                  "pretrained": {"gpt": of_gpt["pretrained"], "regression": of_regression["pretrained"]},
                  "plays": {**of_gpt["plays"], **of_regression["plays"]}}
        for key, futures in probed.items():
            result[key] = {name: future.result() for name, future in futures.items()}
    result["sending"] = measure_sending(settings)
    result["memory"] = gpt.large_model_bytes(build, work, settings["large_model"])
    return result
