# SPDX-License-Identifier: Apache-2.0
"""What a call costs in each language: a small gradient that is added, and a step of nothing, beside the same calls in C, and C's beside the bare
arithmetic. A row's peer is that and what the language may cost on top."""

import functools
import os
import shutil
import subprocess

import measure
from bench_case import OURS, row

ROUNDS, STEPS = 25, 2000
ADDITION, C = "16 additions alone", "C"
# Operation → its name in the report, how many are timed in a row.
OPERATIONS = {"add_grad": ("add_grad of 16 float32 values to an open pass", 20000), "step": ("a pass without gradients, and its step", STEPS)}
# Language → what it may cost over C, in nanoseconds, and over the arithmetic for those that are to be as quick as C is.
BUDGETS = {C: (ADDITION, 100), "Rust": (C, 100), "Julia": (C, 200), "Python": (C, 2000), "Java": (C, 2000), "Lua": (C, 2000), "C#": (C, 2000)}
TIMED = "one core, one rank, a worker of the caller's thread; one of {} in a row"


def run(bench):
    programs = {language: make(bench) for language, make in MADE.items()}
    return [each for operation in OPERATIONS for each in _operation(bench, operation, programs)]


def _operation(bench, operation, programs):
    name, times = OPERATIONS[operation]
    timed = TIMED.format(times)
    one = {language: functools.partial(row, f"{name}, {language}", _peer(base, budget), 1.0, timed)
           for language, (base, budget) in BUDGETS.items() if operation == "add_grad" or base == C}
    absent = {language: programs[language] for language in one if isinstance(programs[language], str)}
    there = [language for language in one if language not in absent]
    rows = [one[language](reason=reason) for language, reason in absent.items()]
    return bench.measured(lambda reason: rows + [one[language](reason=reason) for language in there],
                          lambda: [*_measure(bench, operation, times, {language: one[language] for language in there}, programs), *rows],
                          needs_peers=False)


def _peer(base, budget):
    return f"{base} and {budget} ns" if budget < 1000 else f"{base} and {budget // 1000} µs"


def _measure(bench, operation, times, one, programs):
    def side(name, command, environment=None):
        return {"name": name, "commands": [command], "cores": [{bench.cores[0]}], "environment": environment or {}}

    wanted = dict.fromkeys([C, *one])
    specifications = [side(ADDITION, [bench.programs / "bench_calls", "addition"])]
    for language in wanted:
        command, environment = programs[language]
        specifications.append(side(language, [*command, operation], environment))
    with bench.sides(specifications) as sides:
        rounds = measure.interleave(sides[:-1], ROUNDS, 4, bench.deadline, bench.seed, times=times)
    rows = []
    for language, make in one.items():
        base, budget = BUDGETS[language]
        beside = measure.Rounds([OURS, base])
        beside.seconds = {OURS: rounds.seconds[language], base: [seconds + budget * 1e-9 for seconds in rounds.seconds[base]]}
        more = [own - other for own, other in zip(rounds.seconds[language], rounds.seconds[base], strict=True)]
        rows.append(make(beside, base, more_ns=measure.quantile(more, 0.5) * 1e9))
    return rows


# ---- The programs: a command and what its environment needs, or why there is none ----

def _c(bench):
    return [bench.programs / "bench_calls"], {}


def _rust(bench):
    cargo, target = shutil.which("cargo"), bench.scratch("calls-rust")
    if cargo is None:
        return "no cargo was found"
    environment = {"OUTRIGGER_LIB_DIR": str(bench.build), "CARGO_TARGET_DIR": str(target), "LD_LIBRARY_PATH": str(bench.build)}
    reason = _made([cargo, "build", "--offline", "--locked", "--quiet", "--release", "--example", "calls", "--manifest-path", bench.tree / "rust" / "Cargo.toml"],
                   environment)
    return reason or ([target / "release" / "examples" / "calls"], environment)


def _julia(bench):
    own = bench.tree / "build" / "julia" / "julia"
    julia = own if own.exists() else shutil.which("julia")
    if julia is None:
        return "no julia was found"
    project = bench.tree / "julia"
    return ([julia, "--startup-file=no", f"--project={project}", bench.callers / "calls.jl"],
            {"OUTRIGGER_LIB_DIR": str(bench.build), "JULIA_DEPOT_PATH": str(bench.scratch("calls-julia"))})


def _python(bench):
    python = bench.tree / "build" / "venv" / "bin" / "python"
    return ([python, bench.callers / "calls.py"], {"PYTHONPATH": str(bench.package)}) if python.exists() else "no build/venv with NumPy"


def _java(bench):
    package, classes = bench.build / "java", bench.scratch("calls-java")
    jar = package / "outrigger.jar"
    if not jar.exists() or shutil.which("javac") is None:
        return "no JDK, or the package was not built"
    reason = _made(["javac", "-cp", jar, "-d", classes, bench.callers / "Calls.java"])
    return reason or (["java", f"-Doutrigger.library.path={package}", "-cp", f"{jar}:{classes}", "Calls"], {})


def _lua(bench):
    package = bench.build / "lua"
    if not (package / "outrigger.lua").exists() or shutil.which("lua5.4") is None:
        return "no lua5.4, or the module was not built"
    return ["lua5.4", bench.callers / "calls.lua"], {"LUA_PATH": f"{package}/?.lua", "LUA_CPATH": f"{package}/?.so"}


def _csharp(bench):
    package = bench.build / "csharp"
    if not (package / "Outrigger.dll").exists() or shutil.which("mcs") is None:
        return "no mono, or the assembly was not built"
    program = package / "Calls.exe"  # beside the assembly that it needs
    reason = _made(["mcs", "-optimize", f"-r:{package}/Outrigger.dll", f"-out:{program}", bench.callers / "Calls.cs"])
    return reason or (["mono", program], {})


MADE = {C: _c, "Rust": _rust, "Julia": _julia, "Python": _python, "Java": _java, "Lua": _lua, "C#": _csharp}


def _made(command, environment=None):
    """Why a program could not be compiled; empty if it was."""
    made = subprocess.run([str(word) for word in command], env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False)
    return "" if made.returncode == 0 else f"{command[0]}: {(made.stderr.strip() or 'failed').splitlines()[-1]}"
