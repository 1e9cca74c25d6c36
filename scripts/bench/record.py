# SPDX-License-Identifier: Apache-2.0
"""docs/benchmarks/results.json, what each kind of machine measured last, and the part of docs/benchmarks.md that shows it."""

import json
import time
from pathlib import Path

import pictures
import report

ROOT = Path(__file__).resolve().parents[2]
FOLDER, PAGE = ROOT / "docs" / "benchmarks", ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- results, written by make bench -->", "<!-- end of the results -->"
KEPT = ("case", "peer", "ratio", "ratio_p10", "ratio_p90", "target", "met", "rounds", "reason", "ours_seconds", "peer_seconds", "roofline",
        "ceiling", "share_of_triad", "tokens_per_second", "adapter_us", "more_ns", "phases", "costs", "memory", "products_gflop_per_s", "gathered_gb_per_s", "gb_per_s")
CURVES = "optimizer_curves"


def name_of(machine):
    """The kind of machine: figures of one replace earlier ones of the same."""
    return (f"{machine['cpu']} (family {machine['cpu_family']}, model {machine['cpu_model']}), {machine['cores']} cores, "
            f"{machine['last_level_cache_mib']:.0f} MiB last-level cache")


def add(known, machine, versions, name, rows, curves, date=None):
    """Puts a case into the results. What could not be measured this time does not replace what was."""
    if not any(row["ratio"] is not None for row in rows) and not any("ns_per_parameter" in p for curve in curves for p in curve["points"]):
        return
    entry = known.setdefault("machines", {}).setdefault(name_of(machine), {"machine": {}, "cases": {}})
    entry["machine"] = {key: value for key, value in machine.items() if not key.startswith(("load_", "order_", "outrigger_"))}
    entry["cases"][name] = {
        "date": date or time.strftime("%Y-%m-%d", time.gmtime()),
        "revision": machine["outrigger_revision"], "versions": versions,
        "load_before": machine["load_before"], "load_after": machine["load_after"],
        "rows": [{key: row[key] for key in KEPT if key in row} for row in rows], "curves": curves,
    }


def read(path=None):
    path = path or FOLDER / "results.json"
    return json.loads(path.read_text()) if path.exists() else {"machines": {}}


def write(known, order):
    """order: the names of the cases as the page shows them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "results.json").write_text(json.dumps(_rounded(known), indent=1, ensure_ascii=False) + "\n")
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(_page(known, order)) + f"\n{END}{after}")


def _rounded(value):
    """Four digits: more would only be noise in the file's history."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


def _page(known, order):
    labels = {name: chr(ord("A") + index) for index, name in enumerate(known["machines"])}
    lines = ["", *(f"- **{label}**: {_described(name, known['machines'][name])}" for name, label in labels.items()), ""]
    missed = []
    for case in order:
        cases = {labels[name]: entry["cases"][case] for name, entry in known["machines"].items() if case in entry["cases"]}
        if not cases:
            continue
        if case == CURVES:
            lines += _curves({label: each["curves"] for label, each in cases.items()})
        else:
            lines += _rows(case, {label: each["rows"] for label, each in cases.items()})
            missed += [f"- {label}, {row['case']}, {row['peer']}: {_missed(row)}." for label, each in cases.items() for row in each["rows"]
                       if not row["met"]]
    return [*lines, "### Below their targets", "", *(missed or ["None."]), ""]


def _described(name, entry):
    machine, runs = entry["machine"], entry["cases"].values()
    versions = {key: value for run in runs for key, value in run["versions"].items()}
    measured = sorted({(run["date"], run["revision"]) for run in runs})
    return (f"{name}, {', '.join(machine['simd_of_cpu'])}, {machine['memory_gib']} GiB, Linux {machine['kernel']}; "
            f"{', '.join(f'{key} {value}' for key, value in versions.items())}; measured "
            f"{', '.join(f'{date} at {revision}' for date, revision in measured)}.")


def _missed(row):
    if row["ratio"] is None:
        return f"not measured: {row['reason']}"
    return f"{row['ratio']:.2f} of {row['target']:.2f}; {report.why(row) or 'no reason was measured'}"


def _rows(case, by_machine):
    keys = list(dict.fromkeys((row["case"], row["peer"]) for rows in by_machine.values() for row in rows))
    found = {label: {(row["case"], row["peer"]): row for row in rows} for label, rows in by_machine.items()}
    lines = [f"### `{case}`", ""]
    if pictures.ratios(case, by_machine, FOLDER / f"{case}.svg"):
        lines += [f"![{case}: the peers' times over ours](benchmarks/{case}.svg)", ""]
    lines += ["| case | peer | target | " + " | ".join(f"{label}: ratio (p10 – p90); ours / peer" for label in found) + " |", "|---" * (3 + len(found)) + "|"]
    last = None
    for key in keys:
        rows = {label: by_key.get(key) for label, by_key in found.items()}
        target = next(row["target"] for row in rows.values() if row)
        cells = [key[0] if key[0] != last else "", key[1], f"{target:.2f}", *(_cell(row) for row in rows.values())]
        lines.append("| " + " | ".join(cells) + " |")
        last = key[0]
    return [*lines, ""]


def _cell(row):
    if row is None or row["ratio"] is None:
        return "not measured"
    text = f"{row['ratio']:.2f} ({row['ratio_p10']:.2f} – {row['ratio_p90']:.2f})"
    if "more_ns" in row:  # beside a budget, which the ratio has in the peer's time
        times = f"{_time(row['ours_seconds']['median'])}, {row['more_ns']:+.0f} ns"
    else:
        times = f"{_time(row['ours_seconds']['median'])} / {_time(row['peer_seconds']['median'])}"
    return f"{f'**{text}**' if row['met'] else text}; {times}"


def _time(seconds):
    unit, factor = next((unit, factor) for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)) if seconds * factor >= 1 or unit == "µs")
    return f"{seconds * factor:.3g} {unit}"


def _curves(by_machine):
    lines = [f"### `{CURVES}`", ""]
    for kind in dict.fromkeys(curve["curve"] for curves in by_machine.values() for curve in curves):
        chosen = {label: [curve for curve in curves if curve["curve"] == kind] for label, curves in by_machine.items()}
        if pictures.lines(kind, chosen, FOLDER / f"curve_{kind}.svg"):
            lines += [f"![nanoseconds a parameter against {kind}](benchmarks/curve_{kind}.svg)", ""]
    return lines
