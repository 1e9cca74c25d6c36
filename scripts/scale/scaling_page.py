# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/scaling.md, from the model and docs/scaling/results.json. The text around them is written by hand."""
import re
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "report"))  # before a package that has the name of its markdown.py
import anchors  # noqa: E402
import fits  # noqa: E402
import offloaded  # noqa: E402
import planner  # noqa: E402
import predictions  # noqa: E402
import same_host  # noqa: E402
import step  # noqa: E402
from machines import FACTS  # noqa: E402
from markdown import table, wrapped  # noqa: E402

MARK = re.compile(r"(<!-- (\w+), written by make scale -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def spoken(value, unit=""):
    """Three digits, with the prefix that makes them short."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")):
        if abs(value) >= 0.9995 * factor:
            return f"{value / factor:.3g} {prefix}{unit}".strip()
    return f"{value / 1e-12:.3g} p{unit}" if value else f"0 {unit}".strip()


def rate(seconds_a_byte):
    return spoken(1 / seconds_a_byte, "B/s") if seconds_a_byte else "no limit"


def percent(value, sign=True):
    return f"{100 * value:{'+' if sign else ''}.1f} %"


def sources():
    return table(["constant", "value", "kind", "source"], [[name, f"{fact.value:.4g}" if fact.value < 1e6 else spoken(fact.value, "/s"), fact.kind, fact.source] for name, fact in FACTS.items()])


def sets(fitted):
    rows = []
    for name, each in anchors.SETS.items():
        used = {row.fits for row in fits.rows_of(name)[0]}
        numbers = fitted[name]
        cells = [f"efficiency {numbers['efficiency']:.3f}"] if "efficiency" in used else []
        cells += [f"straggling {numbers['straggling']:.4f}"] if "straggling" in used else []
        cells += [f"NVLink {spoken(numbers['nvlink'], 'B/s')}"] if name == "nccl" else []
        cells += [f"the host's update {spoken(numbers['dram'], 'B/s')}"] if "dram" in numbers else []
        rows.append([each.title, "; ".join(cells) or "nothing", each.kind, each.source, each.note])
    return table(["set", "fitted", "numbers were", "source", "note"], rows)


def residuals(found):
    rows = [[anchors.SETS[each.row.set].title, each.row.what, f"{each.row.published:.5g} {each.row.unit}", f"{each.predicted:.5g}",
             f"fits the {each.row.fits}" if each.row.fits else percent(each.error)] for each in found]
    return table(["set", "run", "published", "model", "error of the seconds"], rows)


def verdict(found):
    lines = []
    for bound, title in ((anchors.COMPUTE, "Bound by compute"), (anchors.LATENCY, "Collectives, bound by latency or the wire")):
        checked = fits.held_out(found, bound)
        median, worst = fits.median_error(checked), max(checked, key=lambda each: abs(each.error))
        met = "reached" if median <= fits.LIMITS[bound] else "missed"
        lines.append(f"- {title}: {len(checked)} rows held out, median error {percent(median, False)} (wanted: {percent(fits.LIMITS[bound], False)} at most: {met}), "
                     f"largest {percent(worst.error)} ({anchors.SETS[worst.row.set].title}, {worst.row.what}).")
    right, pairs = fits.ranking(found)
    lines.append(f"- Order: {right} of {pairs} pairs of a set's rows stand in the published order (wanted: all: {'reached' if right == pairs else 'missed'}); "
                 "pairs in which both were fitted, or that differ by less than a hundredth, are left out.")
    return [text for line in lines for text in wrapped(line).split("\n")] + [""]


def unused():
    return table(["published", "what is missing"], [list(pair) for pair in anchors.UNUSED])


def shared_memory(found):
    if found is None:
        return ["Not measured: make scale has not been run.", ""]
    numbers, rows = same_host.residuals(found)
    checked = [(p, error) for p, _, error in rows if p["ranks"] not in same_host.FITTED]
    lines = []
    for bound, title in ((True, "latency"), (False, "bandwidth")):
        errors = sorted(abs(error) for p, error in checked if (p["bytes"] < same_host.LATENCY_BOUND) == bound)
        limit = fits.LIMITS[anchors.LATENCY if bound else anchors.COMPUTE]
        middle = statistics.median(errors)
        lines.append(f"- Bound by {title}: {len(errors)} points held out, median error {percent(middle, False)} (wanted: {percent(limit, False)} at most: "
                     f"{'reached' if middle <= limit else 'missed'}), largest {percent(errors[-1], False)}.")
    lines.append(f"- Fitted on {', '.join(map(str, same_host.FITTED))} processes: {rate(numbers[0])} by one core and {rate(numbers[1])} by all, "
                 f"{spoken(numbers[2], 's')} for each other rank, {spoken(numbers[3], 's')} more for each rank without a core of its own.")
    cells = [[p["ranks"], f"{p['bytes'] / 1024:,.0f}", f"{1e6 * p['seconds']:,.1f}", f"{1e6 * p['fastest']:,.1f} to {1e6 * p['slowest']:,.1f}", f"{1e6 * seconds:,.1f}",
              "fitted" if p["ranks"] in same_host.FITTED else percent(error)] for p, seconds, error in sorted(rows, key=lambda row: (row[0]["ranks"], row[0]["bytes"]))]
    text = [part for line in lines for part in wrapped(line).split("\n")]
    return [*text, "", *table(["processes", "KiB a rank", "measured, median, µs", "least to most", "model, µs", "error"], cells), wrapped(origin(found)), ""]


def offload_law(found):
    if found is None or not found["rows"]:
        return ["Not measured: make bench has the case offload_step, and make scale takes its figures.", ""]
    cells = [[row["case"].removeprefix("offloaded step, ").split(", 25 M")[0], *(f"{1e3 * row[part]:.1f}" for part in ("backward_s", "download_s", "update_s", "upload_s")),
              f"{1e3 * row['seconds']:.1f}", f"{1e3 * seconds:.1f}", percent(error)] for row, seconds, error in offloaded.errors(found)]
    middle = statistics.median(abs(error) for _, _, error in offloaded.errors(found))
    where = "; ".join(dict.fromkeys(f"{row['where']}, {row['measured_on']}" for row in found["rows"]))
    return [*table(["step", "backward, ms", "copies down", "update", "copies up", "measured", "model", "error"], cells), wrapped(f"Median error {percent(middle, False)}; nothing is fitted. Measured on {where}."), ""]


def seconds_and_bytes(run, phase):
    if phase not in run["phases"]:
        return "—", "—"
    found = run["phases"][phase]
    return spoken(found["seconds"], "s"), spoken(max(0, found["most_bytes"]), "B")


def start_up(found):
    """Of 16,384 ranks in full, of the others what changes."""
    if found is None:
        return ["Not measured: make scale has not been run.", ""]
    lines = []
    for title, runs in ((f"{planner.WORLDS[-1]:,} ranks", [planner.find(found, m.name, name, planner.WORLDS[-1]) for m in predictions.MODELS for name in planner.RUN]),
                        ("Stage 3, from few ranks to many", [planner.find(found, m.name, "stage 3", world) for m in predictions.MODELS for world in planner.WORLDS[:-1]])):
        rows = []
        for run in runs:
            if "missing" in run:
                rows.append([run.get("model", "?"), run.get("configuration", "?"), f"not measured: {run['missing']}", *[""] * 8])
                continue
            commit = (*seconds_and_bytes(run, "commit"), f"{run['phases']['commit']['calls']}, {spoken(run['phases']['commit']['received_bytes'], 'B')}") if "commit" in run["phases"] else \
                ("not run", f"needs {spoken(run['commit_would_take'], 'B')}", "—")
            rows.append([run["model"], run["configuration"] if title[0].isdigit() else f"{run['world']:,}", run["tensors"], f"{run['layout']['buckets']:,} / {run['layout']['pieces']:,}",
                         *[" / ".join(seconds_and_bytes(run, phase)) for phase in ("communicator", "declare", "estimate", "layout")], *commit])
        second = "configuration" if title[0].isdigit() else "ranks"
        lines += [f"**{title}**", "", *table(["model", second, "tensors", "buckets / pieces of the rank", "communicator", "declarations", "estimate", "layout with all owners", "commit", "memory of commit", "calls and bytes of commit"], rows)]
    lines += [*wrapped(traffic(found["step"])).split("\n"), ""]
    return [*lines, wrapped(origin(found) + f" A commit that would take more than {spoken(found['limit'], 'B')} is not run."), ""]


def traffic(run):
    """The model's bytes of a reduce, beside what the library asked for in a step."""
    if "step" not in run.get("phases", {}):
        return f"A step whose bytes could be counted was not run: {run.get('missing', 'its commit needs more memory than was allowed')}."
    received, told = run["phases"]["step"]["received_bytes"], run["phases"]["step"]["calls"]
    expected = step.BYTES * run["elements"] * (run["world"] - 1) / run["world"]
    return (f"What the model takes a sum of gradients to move was counted, too: in a step of {run['model']} at stage 3 a rank of {run['world']:,} received {spoken(received, 'B')} "
            f"in {told} calls; the model has {spoken(expected, 'B')} ({percent(expected / received - 1)}).")


def memory(found):
    if found is None:
        return ["Not measured: make scale has not been run.", ""]
    rows = []
    for model in predictions.MODELS:
        for world in planner.WORLDS:
            sizes = [planner.device_bytes(found, model.name, name, world) for name in planner.CONFIGURATIONS]
            rows.append([model.name, f"{world:,}", *("?" if size is None else f"{size / 1e9:,.1f}" for size in sizes)])
    return table(["model", "GPUs", *planner.CONFIGURATIONS], rows)


def needs(found, model, column, world, tokens):
    """Bytes of a GPU; None: not asked."""
    given = found and planner.device_bytes(found, model.name, predictions.COLUMNS[column][1], world)
    return given + predictions.gathered(model, column) + predictions.activations(model, tokens) if given else None


def grid(fitted, found, batch):
    lines = []
    for model in predictions.MODELS:
        rows = []
        for world in planner.WORLDS:
            cells = []
            for column in predictions.COLUMNS:
                job = predictions.job(model, world, column, fitted, batch)
                size = needs(found, model, column, world, batch[0])
                star = "?" if size is None else "" if size <= predictions.LIMIT else " *"
                cells.append(f"{step.run(job).seconds:.3g} s, {100 * predictions.efficiency(job):.0f} %{star}")
            rows.append([f"{world:,}", *cells])
        lines += [f"**{model.name}** ({model.parameters / 1e9:,.1f} billion), {batch[0]:,} tokens a GPU, simulated", "", *table(["GPUs", *predictions.COLUMNS], rows)]
    return lines


def network(fitted):
    """The widest uncertainty: what share of the network collectives reach."""
    rows = []
    for model in predictions.MODELS:
        for column in ("stage 3, ring or levels", "8 bits between hosts", "mesh of a host", "hpZ"):
            values = predictions.bands(model, column, fitted, predictions.SMALL)
            rows.append([model.name, column, *(f"{100 * low:.0f} to {100 * high:.0f} %" for high, low in (values[world] for world in planner.WORLDS[1:]))])
    return table(["model", "simulated", *(f"{world:,}" for world in planner.WORLDS[1:])], rows)


def origin(found):
    machine = found["machine"]
    nice = f", niceness {found['niceness']}" if found.get("niceness") else ""
    return (f"{found['date']}, Outrigger at {found['revision']}; {machine['cpu']} ({', '.join(machine['simd_of_cpu'])}), {machine['cores']} cores, {machine['memory_gib']} GiB, "
            f"Linux {machine['kernel']}, load {found['load_after']:.1f} after{nice}; {found['took']} s.")


def blocks(known):
    fitted, found = fits.fit()
    plans = known.get("planner")
    return {"facts": sources(), "sets": sets(fitted), "verdict": verdict(found), "residuals": residuals(found), "unused": unused(), "shared_memory": shared_memory(known.get("same_host")), "offload_law": offload_law(known.get("offloaded")),
            "start_up": start_up(plans), "memory": memory(plans), "grid_large": grid(fitted, plans, predictions.LARGE), "grid_small": grid(fitted, plans, predictions.SMALL), "network": network(fitted)}


def filled(page, known):
    """The page with its blocks anew."""
    made = blocks(known)
    missing = set(made) - {match[2] for match in MARK.finditer(page)}
    if missing:
        raise ValueError(f"the page has no place for {', '.join(sorted(missing))}: a block begins with <!-- NAME, written by make scale --> and ends with <!-- end of NAME -->")
    return MARK.sub(lambda match: match[1] + "\n" + "\n".join(made[match[2]]) + match[3], page)


def write(docs, known):
    import scaling_pictures  # matplotlib, which a test of the page does without

    path = docs / "scaling.md"
    path.write_text(filled(path.read_text(encoding="utf-8"), known), encoding="utf-8")
    fitted, found = fits.fit()
    scaling_pictures.efficiency(fitted, docs / "scaling/efficiency.svg")
    scaling_pictures.checked(found, known.get("same_host"), docs / "scaling/checked.svg")
    if "planner" in known:
        scaling_pictures.start_up(known["planner"], docs / "scaling/start_up.svg")
