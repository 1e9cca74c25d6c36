# SPDX-License-Identifier: Apache-2.0
"""The memory of states on the host, DeepSpeed's PR #8010, in resident bytes."""
import importlib.util
import json

from context import EXAMPLES, Missing
from markdown import table, wrapped

TITLE = "States on the host: 10 bytes a parameter made 6"
FOLDER = EXAMPLES / "host_states"
NAMES = {"outrigger": "Outrigger", "deepspeed": "DeepSpeed"}
TITLES = {"float32": "float32 weights and moments", "bf16_float32": "bfloat16 master, float32 moments", "bf16_bf16": "bfloat16 master and moments",
          "split_bf16": "split master, bfloat16 moments", "split_8bit": "split master, 8-bit moments", "bf16_8bit": "bfloat16 master, 8-bit moments"}
PUBLISHED = {"float32": (12, 302), "bf16_float32": (10, None), "bf16_bf16": (6, 151)}  # bytes a parameter, GB at 25.2 billion; of PR #8010
SHORT = ("--parameters", "20000000", "--forms", "bf16_float32", "bf16_bf16", "--rounds", "1", "--timed_parameters", "1000000", "--update_parameters", "20000")


def measure(context):
    if importlib.util.find_spec("torch") is None:
        raise Missing("this Python has no PyTorch")
    output = context.work / "host_states.json"
    output.unlink(missing_ok=True)
    peer = () if context.peer_missing else ("--deepspeed_python", context.peer_python)
    context.python(FOLDER / "host_states.py", *(SHORT if context.short else ()), *peer, "--output", output, log="host_states.log", timeout=3600, check=False)
    if not output.is_file():
        raise Missing("host_states.py wrote no results; see host_states.log")
    return {**json.loads(output.read_text(encoding="utf-8")), "peer_missing": context.peer_missing}


def command(_figures):
    return "python bindings/python/examples/host_states/host_states.py --deepspeed_python PYTHON"


def rows(figures, what):
    """Of a measurement: form → side → row."""
    found = {}
    for row in figures.get(what, []):
        found.setdefault(row["form"], {})[row["side"]] = row
    return found


def number(row, key, form="{:.3f}"):
    if row is None:
        return "—"
    if "reason" in row:
        return f"not measured: {row['reason']}"
    return form.format(row[key]) if row.get(key) is not None else "—"


def lines(figures):
    return [*memory(figures), *update(figures), *seconds(figures), *peer(figures)]


def peer(figures):
    return [f"DeepSpeed is not measured: {figures['peer_missing']}.", ""] if figures["peer_missing"] else []


def memory(figures):
    target = figures["target"]
    body = []
    for form, sides in rows(figures, "memory").items():
        ours, theirs = sides.get("outrigger"), sides.get("deepspeed")
        size, published = PUBLISHED.get(form, (None, None))
        body.append([TITLES[form], number(ours, "states"), number(ours, "of_ledger"), number(theirs, "states"), "—" if size is None else f"{size}",
                     gigabytes(ours, target), gigabytes(theirs, target), "—" if published is None else f"{published}", fits(ours, figures["available_bytes"])])
    ledgers = [row for row in figures["memory"] if "ledger_total" in row]
    furthest = max(abs(row["grown"] / row["ledger_total"] - 1) for row in ledgers) if ledgers else None
    said = [wrapped(f"Measured with {figures['parameters']:,} parameters in an engine at stage 3 with `offload_optimizer` on the CPU, one rank, after two steps: what the process grew by, as the "
                    "kernel counts its pages, less the gradients. DeepSpeed's column is its CPUAdam's, in the same way. "
                    "[The example](../bindings/python/examples/host_states/README.md) says how."), "",
            "![Bytes a parameter of each form, measured and published](report/host_states.svg)", "",
            *table(["states", "Outrigger, bytes a parameter", "its ledger", "DeepSpeed, measured", "published", f"Outrigger at {target / 1e9:g} billion, GB",
                    "DeepSpeed, GB", "published, GB", "parameters that fit this machine's free memory, with gradients"], body)]
    if ledgers:
        same = all(row["ledger"] == row["estimate"] for row in ledgers)
        said += [wrapped(f"The ledger and the kernel differ by at most {furthest:.2%} of what a process grew by, gradients included. The estimate, made before there was memory, "
                         f"{'equals the ledger to the byte in every form' if same else 'differs from the ledger'}."), ""]
    return said


def gigabytes(row, target):
    return f"{row['states'] * target / 1e9:.0f}" if row and "states" in row else "—"


def fits(row, available):
    return f"{available / row['grown'] / 1e9:.2f}e9" if row and "grown" in row else "—"


def update(figures):
    body = []
    for form, sides in rows(figures, "update").items():
        for side, row in sides.items():
            body.append([TITLES[form], NAMES[side], *(number(row, key, "{:.2g}") for key in ("moved", "furthest", "bound", "of_bound", "without_factor_of_bound"))])
    good = [row for row in figures.get("update", []) if row.get("of_bound") is not None]
    within = sum(row["of_bound"] <= 1 for row in good)
    return [] if not body else [
        wrapped(f"The update beside AdamW in float64: {good[0]['steps'] if good else 0} steps with the same gradients, a factor for each step and clipping. The bound is computed for each weight from the "
                "rounding that a form may do (for bfloat16, 2⁻⁸ of a number); in the last column the factor was left out of float64's steps. "
                f"{within} of {len(good)} forms with a bound are within it."), "",
        *table(["states", "library", "mean way of a weight", "furthest from float64", "mean bound", "largest share of its bound", "the same without the factor"], body)]


def seconds(figures):
    body = []
    for form, sides in rows(figures, "seconds").items():
        ours, theirs = sides.get("outrigger"), sides.get("deepspeed")
        both = all(row and "nanoseconds" in row for row in (ours, theirs))
        body.append([TITLES[form], number(ours, "nanoseconds", "{:.2f}"), number(theirs, "nanoseconds", "{:.2f}"),
                     f"{theirs['nanoseconds'] / ours['nanoseconds']:.2f}" if both else "—"])
    return [] if not body else [
        wrapped(f"Nanoseconds a parameter of the update alone, {figures['timed_parameters']:,} parameters, {figures['threads']} threads, the median of {figures['rounds']} round(s) in which all sides run "
                "in a random order (below 1 in the last column, DeepSpeed is faster):"), "", *table(["states", "Outrigger", "DeepSpeed", "DeepSpeed's time over ours"], body)]


def draw(figures, folder):
    import pictures
    found = []
    for form, sides in rows(figures, "memory").items():
        values = [(NAMES[side], row["states"]) for side, row in sides.items() if "states" in row]
        values += [("published", PUBLISHED[form][0])] if form in PUBLISHED else []
        if values:
            found.append((TITLES[form], values))
    if found:
        pictures.bars(found, "bytes a parameter of host memory, weights included, gradients not", folder / "host_states.svg")
