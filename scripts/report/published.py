# SPDX-License-Identifier: Apache-2.0
"""Every number that DeepSpeed published of these features, and its counterpart here: measured, estimated, or what it needs."""
import statistics

from markdown import table
from sections import bf16, host_states, memory, step_times

TITLE = "Published numbers and their counterparts"
GPUS = "needs 4 GPUs"


def text(known):
    """The table's lines."""
    sections = {name: found for name, found in known["sections"].items() if "missing" not in found}
    rows = [*losses(sections.get("bf16")), *times(sections.get("step_times")), *of_gpus(sections.get("memory")), *of_parameters(sections.get("host_states"))]
    return table(["number", "published", "from", "counterpart", "kind"], rows)


def _none(reason="not measured yet"):
    return "—", reason


def losses(found):
    groups = bf16.groups(found) if found else {}

    def of(name, key):
        good = groups.get((name, "outrigger"), ({}, []))[0]
        if not good:
            return _none()
        cell = f"{statistics.fmean(run[key] for run in good.values()):.4f}"
        theirs = groups.get((name, "deepspeed"), ({}, []))[0]
        if theirs:
            cell += f"; DeepSpeed {statistics.fmean(run[key] for run in theirs.values()):.4f}"
        return cell, f"measured, a small GPT, {len(good)} seed(s)"

    rows = []
    for name, values in (("baseline", (3.09, 2.78, 1.56)), ("bf16_full", (3.12, 2.90, 2.37))):
        for key, word, value, source in zip(("final", "mean", "std"), ("final loss", "mean loss", "std of the loss"), values, ("post", "post", "example")):
            rows.append([f"{word}, {memory.TITLES[name]}", f"{value:.2f}", source, *of(name, key)])
    good = groups.get(("baseline", "outrigger"), ({}, []))[0]
    rows.append(["steps of the comparison", "1,000", "post", *((f"{bf16.steps_of(found):,}", "measured") if good else _none())])
    return rows


def times(found):
    rows, medians = [], step_times.medians(found) if found else {}
    for name, value in (("baseline", 0.6016), ("bf16_full", 0.6427)):
        cells = [f"{word}{1e3 * medians[name, library]:.1f} ms" for library, word in (("outrigger", ""), ("deepspeed", "DeepSpeed ")) if (name, library) in medians]
        rows.append([f"step time, {memory.TITLES[name]}", f"{value:.4f} s", "post", *(("; ".join(cells), f"measured, a small GPT on a CPU; on H100 {GPUS}") if cells else _none())])
    ratios = {library: step_times.ratio(found, library) for library in ("outrigger", "deepspeed")} if found else {}
    cells = [f"{word}{ratios[library]:.3f}" for library, word in (("outrigger", ""), ("deepspeed", "DeepSpeed ")) if ratios.get(library)]
    rows.append(["step time, bfloat16 over float32", f"{0.6427 / 0.6016:.3f}", "post", *(("; ".join(cells), "measured, as above") if cells else _none())])
    return rows


def of_gpus(found):
    def cell(name, place):
        if not found:
            return _none("not estimated yet")
        ours, theirs = memory.total(found, name, "outrigger")[place], memory.total(found, name, "deepspeed")[place]
        return f"{ours:.2f} GiB; DeepSpeed's layout {theirs:.2f}", f"estimated; {GPUS}"

    def saved(place):
        if not found:
            return _none("not estimated yet")
        cells = []
        for layout in ("outrigger", "deepspeed"):
            base, full = (memory.total(found, name, layout)[place] for name in ("baseline", "bf16_full"))
            cells.append(f"{'DeepSpeed’s layout ' if layout == 'deepspeed' else ''}{base - full:.2f} GiB ({1 - full / base:.1%})")
        return "; ".join(cells), f"estimated; {GPUS}"

    count = f"{found['configurations']['baseline']['parameters'] / 1e9:.2f} billion" if found else None
    rows = [["parameters of the model", "6.86 billion", "example", *((count, "the same tensors, estimated") if count else _none("not estimated yet"))]]
    for name, values in memory.PUBLISHED.items():
        for place, (word, value) in enumerate(zip(("allocated", "peak"), values)):
            rows.append([f"{word} memory of a GPU, {memory.TITLES[name]}", f"{value:.2f} GB", "post", *cell(name, place)])
    rows += [["saved, allocated", "9.57 GB (37 %)", "example", *saved(0)], ["saved, peak", "12.45 GB (39.7 %)", "example", *saved(1)]]
    for name, value in (("baseline", 20), ("bf16_full", 12)):
        rows.append([f"bytes a parameter by the example's table, {memory.TITLES[name]}", f"{value}", "example", *(_bytes(found, name) if found else _none("not estimated yet"))])
    rows.append(["optimizer-related memory saved in theory", "about 40 %", "example", *((f"{1 - _peak(found, 'bf16_full', 'outrigger') / _peak(found, 'baseline', 'outrigger'):.0%} of the peak", "estimated")
                                                                                    if found else _none("not estimated yet"))])
    rows.append(["GPU memory that bfloat16 states on the host add", "none", "PR #8010", "—", "needs a GPU"])
    return rows


def _peak(found, name, layout):
    return found["configurations"][name]["device"][layout]["total"]["peak_bytes"] * found["world"] / found["configurations"][name]["parameters"]


def _bytes(found, name):
    return f"{_peak(found, name, 'outrigger'):.2f} with buckets; DeepSpeed's layout at its peak {_peak(found, name, 'deepspeed'):.2f}", "estimated"


def of_parameters(found):
    rows = host_states.rows(found, "memory") if found else {}

    def of(form, billions=None):
        cells = []
        for side, word in (("outrigger", ""), ("deepspeed", "DeepSpeed ")):
            row = rows.get(form, {}).get(side, {})
            if "states" in row:
                cells.append(f"{word}{row['states']:.2f}" if billions is None else f"{word}{row['states'] * billions:.0f} GB")
        if not cells:
            return _none()
        return "; ".join(cells), "measured, resident" if billions is None else f"measured a parameter with {found['parameters'] / 1e6:.0f} million, extrapolated"

    return [["host bytes a parameter, float32 moments", "about 10", "PR #8010", *of("bf16_float32")], ["host bytes a parameter, bfloat16 moments", "about 6", "PR #8010", *of("bf16_bf16")],
            ["host memory of 25.2 billion parameters, float32 states", "about 302 GB", "PR #8010", *of("float32", 25.2)],
            ["host memory of 25.2 billion parameters, bfloat16 states", "about 151 GB", "PR #8010", *of("bf16_bf16", 25.2)],
            ["test cases of these formats on a host with two GPUs", "9", "PR #8010", "stages 1 to 3 of the same keys, on the CPU: the example's tests and the sections above", "needs 2 GPUs"]]
