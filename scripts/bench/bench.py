# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmark's cases, writes the report and adds to the results that docs/benchmarks.md shows. Called by bench.sh."""

import argparse
import os
import pathlib
import random
import sys
import time

import bench_case
import machine
import record
import report
from cases import (calls, checkpoints, collectives, engine_step, mpi_exchange, offload_step, optimizer_curves, optimizer_step,
                   reduce_scatter, torch_overhead, torch_training, watching)

CASES = {"engine_step": engine_step, "reduce_scatter": reduce_scatter, "collectives": collectives, "mpi_exchange": mpi_exchange, "optimizer_step": optimizer_step,
         "torch_training": torch_training, "torch_overhead": torch_overhead, "checkpoints": checkpoints, "offload_step": offload_step,
         "watching": watching, "calls": calls, "optimizer_curves": optimizer_curves}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="folder of our benchmark programs")
    parser.add_argument("--package", type=pathlib.Path, required=True, help="folder of the package outrigger, for Python")
    parser.add_argument("--peer-python", type=pathlib.Path, required=True, help="Python that has the peers")
    parser.add_argument("--peer-missing", default="", help="why the peers cannot run; empty if they can")
    parser.add_argument("--mpi-missing", default="", help="why MPI cannot run; empty if it can")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=36, help="no round is begun later")
    parser.add_argument("--seed", type=int, default=None, help="of the order of the sides")
    parser.add_argument("--record", action=argparse.BooleanOptionalAction, default=True, help="add to docs/benchmarks/results.json")
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; default all")
    options = parser.parse_args()
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    return options


def main():
    options = arguments()
    options.output.mkdir(parents=True, exist_ok=True)
    described = machine.describe()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    described["order_seed"] = seed
    bench = bench_case.Bench(
        programs=options.programs.absolute(),
        package=options.package.absolute(),
        peer_python=options.peer_python.absolute(),
        peer_missing=options.peer_missing,
        mpi_missing=options.mpi_missing,
        output=options.output.absolute(),
        cores=sorted(os.sched_getaffinity(0)),
        deadline=time.monotonic() + 60 * options.minutes,
        seed=seed,
    )
    groups = {}
    for name in options.cases or CASES:
        print(f"bench: {name} …", flush=True)
        groups[name] = CASES[name].run(bench)
        print(report.terminal(groups[name]) or report.terminal_curves(bench.curves), flush=True)
        described["load_after"] = os.getloadavg()[0]
        report.write(bench.output, described, bench.facts, groups, bench.curves)
        if options.record:
            known = record.read()
            curves = bench.curves if name == record.CURVES else []
            record.add(known, described, machine.versions(), name, groups[name], curves)
            record.write(known, list(CASES))
    print(f"bench: report in {os.path.relpath(bench.output)}/report.md")
    missing = [row for rows in groups.values() for row in rows if row["ratio"] is None]
    missing += [curve for curve in bench.curves if curve["missing"] or any("reason" in point for point in curve["points"])]
    return 1 if missing and os.environ.get("OTR_REQUIRE_ALL") == "1" else 0


if __name__ == "__main__":
    sys.exit(main())
