# SPDX-License-Identifier: Apache-2.0
"""Pictures of the rows of a case and of the curves, for one machine or several beside each other."""

import math
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
from picture import GREY, style  # noqa: E402

# Text stays text, and the same figures give the same file.
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "outrigger", "font.size": 9})

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
AXES = {"parameters": "parameters in one tensor", "tensors": "tensors of the same size", "threads": "threads"}


def _write(figure, path):
    figure.savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def ratios(title, machines, path):
    """machines: name → rows of one case. A line for each row: the ratio (filled: the target is met), from its 10th to its 90th
    percentile, and the target's mark. Logarithmic: twice as fast and half as fast look alike. False: no row is measured."""
    keys = list(dict.fromkeys((row["case"], row["peer"]) for rows in machines.values() for row in rows))
    found = {name: {(row["case"], row["peer"]): row for row in rows if row["ratio"] is not None} for name, rows in machines.items()}
    if not any(found.values()):
        return False
    lines, places = _lines(keys)
    figure, ax = plt.subplots(figsize=(8.5, 0.24 * len(lines) + 1.1))
    for index, rows in enumerate(found.values()):
        shift = 0.3 * (index - (len(found) - 1) / 2)
        for key, row in rows.items():
            _ratio(ax, places[key] + shift, row, COLOURS[index % len(COLOURS)])
    for key, y in places.items():
        target = next((rows[key]["target"] for rows in found.values() if key in rows), None)
        if target is None:
            ax.annotate("not measured", (1, y), color=GREY, va="center")
        else:
            ax.plot([target] * 2, [y - 0.36, y + 0.36], color="black", linewidth=2.5, zorder=2)
    ax.axvline(1, color=GREY, linewidth=1, zorder=1)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7) if _narrow(ax) else (1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_yticks(range(len(lines)), [words for words, _ in lines])
    for label, (_, bold) in zip(ax.get_yticklabels(), lines):
        label.set_fontweight("bold" if bold else "normal")
    ax.set_ylim(len(lines) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("peer's time over ours")
    ax.set_title(title, loc="left", fontweight="bold")
    handles = [Line2D([], [], color=COLOURS[index % len(COLOURS)], marker="o", label=name) for index, name in enumerate(found)]
    handles += [Line2D([], [], color=GREY, marker="o", markerfacecolor="white", linestyle="", label="below its target"),
                Line2D([], [], color="black", marker="|", markersize=9, markeredgewidth=2.5, linestyle="", label="target")]
    ax.legend(handles=handles, frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles))
    style(ax)
    ax.grid(axis="y", visible=False)
    _write(figure, path)
    return True


def _lines(keys):
    """The labels (text, bold), a case's name above its peers; and at which line each key is."""
    lines, places, last = [], {}, None
    for case, peer in keys:
        if case != last:
            lines.append((case, True))
            last = case
        places[case, peer] = len(lines)
        lines.append((peer, False))
    return lines, places


def _ratio(ax, y, row, colour):
    ax.plot([row["ratio_p10"], row["ratio_p90"]], [y, y], color=colour, linewidth=1.5, zorder=3)
    ax.plot(row["ratio"], y, "o", color=colour, markerfacecolor=colour if row["met"] else "white", zorder=4)


def _narrow(ax):
    low, high = ax.get_xlim()
    return math.log10(high / max(low, 1e-9)) < 1


def lines(kind, machines, path):
    """machines: name → curves of one kind. ns a parameter over one quantity; a row for each machine, a panel for each format.
    False: no point is measured."""
    machines = {name: panels for name, curves in machines.items() if (panels := [curve for curve in curves if curve["points"]])}
    names = list(dict.fromkeys(side for panels in machines.values() for panel in panels for point in panel["points"]
                               for side in point.get("ns_per_parameter", ())))
    if not names:
        return False
    columns = max(len(panels) for panels in machines.values())
    figure, axes = plt.subplots(len(machines), columns, figsize=(9, 3.2 * len(machines)), sharey="row", squeeze=False)
    for row, (machine, panels) in zip(axes, machines.items()):
        for ax, panel in zip(row, panels):
            _panel(ax, panel, names)
            ax.set_title(f"{machine}: {panel['format']} weights and states, {panel['fixed']}", fontsize=8)
        row[0].set_ylabel("ns a parameter")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="upper center", ncols=len(labels))
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.25 / (3.2 * len(machines))))
    _write(figure, path)
    return True


def _panel(ax, panel, names):
    for index, name in enumerate(names):
        points = [(point["x"], point["ns_per_parameter"][name]) for point in panel["points"] if name in point.get("ns_per_parameter", ())]
        if not points:
            continue
        loop = "loop" in name
        colour = GREY if loop else COLOURS[index % len(COLOURS)]
        x = [at for at, _ in points]
        ax.fill_between(x, [each["p10"] for _, each in points], [each["p90"] for _, each in points], color=colour, alpha=0.15,
                        linewidth=0)
        ax.plot(x, [each["median"] for _, each in points], color=colour, marker="" if loop else "o", markersize=4, label=name,
                linestyle="--" if loop else "-")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    if panel["curve"] == "threads":
        ax.set_xticks([point["x"] for point in panel["points"]], [str(point["x"]) for point in panel["points"]])
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(AXES[panel["curve"]])
    style(ax)
