# SPDX-License-Identifier: Apache-2.0
"""What make bench measures of Outrigger, of two builds of it, interleaved. Called by versions.sh."""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import random
import sys
import time

import bench_case
import measure
from cases import collectives, engine_step, optimizer_step, reduce_scatter, torch_overhead, torch_training

# A process keeps what its start gave it (pages, places of threads: some 4 % of a PyTorch step), so rounds of one start are no
# independent figures: each block starts both builds anew and gives one figure.
BLOCKS, ROUNDS = 9, 7
SHORT_BLOCKS = 45  # of what takes less than a microsecond, and some per cent more or less from one start to the next
# A row is slower where even the upper end of the confidence interval of its blocks' median is below this.
NOISE = 0.99


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("old", "new", "output"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=12, help="for all rows; no row begins further blocks after its share")
    parser.add_argument("--starts", type=int, default=5, help="blocks of a row at least, whatever they take")
    parser.add_argument("--rows", default="", help="only those whose names contain this")
    return parser.parse_args()


def steps(bench, build, config, job):
    """The engine_step case without PyTorch."""
    ranks = engine_step.RANKS
    return {"commands": [[build / "tests" / "bench" / "bench_engine_step", rank, ranks, job, config, engine_step.MATRICES, engine_step.SIDE]
                         for rank in range(ranks)],
            "cores": [{core} for core in bench.cores[:ranks]]}


def torch_steps(bench, build, config, ranks, sizes):
    """Training steps under PyTorch with that build's package."""
    port, threads = bench_case.free_port(), bench_case.CORES // ranks
    return {"commands": [bench.peer_command("torch_training.py", "outrigger", rank, ranks, port, config, *sizes) for rank in range(ranks)],
            "cores": [set(bench.cores[rank * threads:(rank + 1) * threads]) for rank in range(ranks)],
            "environment": {**bench.peer_environment(threads), "PYTHONPATH": str(build / "python")}}


def ranks(bench, build, program, count, *arguments):
    """A program of that build, one core a rank."""
    return {"commands": [[build / "tests" / "bench" / program, rank, count, *arguments] for rank in range(count)],
            "cores": [{core} for core in bench.cores[:count]]}


def optimizer(bench, build, name, variant):
    """The optimizer_step case's own side."""
    own = dataclasses.replace(bench, programs=build / "tests" / "bench")
    folder = bench.scratch("versions") / name
    folder.mkdir(exist_ok=True)
    return optimizer_step.specification(own, variant, bench_case.OURS, folder, optimizer_step.THREADS)


def cases(bench):
    """Names, a side of each by its build, and how many times in a row it runs."""
    def written(name, configuration):
        path = bench.scratch("versions") / f"{name}.json"
        path.write_text(json.dumps(configuration))
        return path

    for stage in (2, 3):
        config = written(f"engine-{stage}", engine_step.configuration(stage))
        yield (f"engine step, stage {stage}, 2 ranks",
               lambda build, name, config=config: steps(bench, build, config, f"versions-{os.getpid()}-{name}"), 1)
    sizes = (torch_training.LAYERS, torch_training.WIDTH, torch_training.BATCH, torch_training.CONTEXT)
    for stage in torch_training.TARGETS:
        config = written(f"torch-{stage}", torch_training.configuration(stage))
        yield (f"PyTorch, GPT of 27 M, stage {stage}, 2 ranks",
               lambda build, name, config=config: torch_steps(bench, build, config, torch_training.RANKS, sizes), 1)
    config = written("torch-one", torch_overhead.configuration())
    small = (torch_overhead.LAYERS, torch_overhead.WIDTH, torch_overhead.BATCH, torch_overhead.CONTEXT)
    yield "PyTorch, GPT of 10 M, stage 0, 1 rank", lambda build, name: torch_steps(bench, build, config, 1, small), 1
    yield ("reduce-scatter, 2 ranks",
           lambda build, name: ranks(bench, build, "bench_reduce_scatter", 2, f"versions-{os.getpid()}-{name}", reduce_scatter.BYTES, 4), 1)
    for operation, (title, size, times, _) in collectives.OPERATIONS.items():
        yield (f"{title}, 2 ranks", lambda build, name, operation=operation, size=size: ranks(
            bench, build, "bench_collectives", 2, f"versions-{os.getpid()}-{name}", operation, size), times)
    for variant in optimizer_step.VARIANTS:
        yield (f"optimizer step, {variant.name}", lambda build, name, variant=variant: optimizer(bench, build, name, variant), 1)


def upper_median(values):
    """The upper end of the 95 % confidence interval of the median, by order statistics."""
    return measure.quantile(values, min(1.0, 0.5 + 0.98 / math.sqrt(len(values))))


def compare(bench, builds, side, times, least, deadline, order):
    """Of each block the median of old / new and the medians of both builds' seconds."""
    blocks, most = [], BLOCKS if times == 1 else SHORT_BLOCKS
    while len(blocks) < most and (len(blocks) < least or time.monotonic() < deadline):
        started = [{**side(build, name), "name": name} for name, build in order.sample(builds, len(builds))]
        with bench.sides(started) as sides:
            rounds = measure.interleave(sides[:2], ROUNDS, 3, math.inf, order.random(), times=times)
        blocks.append({"ratio": rounds.ratio("old", "new")["median"],
                       **{name: measure.summary(rounds.seconds[name])["median"] for name, _ in builds}})
    return blocks


def main():
    options = arguments()
    seed = random.SystemRandom().randrange(2**32)
    bench = bench_case.Bench(
        programs=options.new.absolute() / "tests" / "bench", package=options.new.absolute() / "python",
        peer_python=pathlib.Path(sys.executable), peer_missing="", mpi_missing="", output=options.output.absolute(),
        cores=sorted(os.sched_getaffinity(0)), deadline=time.monotonic() + 60 * options.minutes, seed=seed)
    builds = [("old", options.old.absolute()), ("new", options.new.absolute())]
    order, slower = random.Random(seed), []
    rows = [each for each in cases(bench) if options.rows in each[0]]
    for case, side, times in rows:
        blocks = compare(bench, builds, side, times, options.starts, time.monotonic() + 60 * options.minutes / len(rows), order)
        ratio = [block["ratio"] for block in blocks]
        upper, middle = upper_median(ratio), measure.quantile(ratio, 0.5)
        own = {name: measure.quantile([block[name] for block in blocks], 0.5) * 1e6 for name, _ in builds}
        print(f"{case}: old / new {middle:.3f} (at most {upper:.3f}; {min(ratio):.3f} – {max(ratio):.3f}), "
              f"{own['old']:.4g} / {own['new']:.4g} µs, {len(blocks)} starts", flush=True)
        if upper < NOISE:
            slower.append(case)
    for case in slower:
        print(f"slower than before: {case}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
