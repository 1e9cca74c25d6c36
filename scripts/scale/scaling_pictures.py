# SPDX-License-Identifier: Apache-2.0
"""The pictures of docs/scaling.md. The same figures give the same file."""
import sys
from pathlib import Path

# The report's pictures, whose look these have; it brings matplotlib along.
sys.path.append(str(Path(__file__).resolve().parents[1] / "report"))
import anchors  # noqa: E402
import planner  # noqa: E402
import predictions  # noqa: E402
import same_host  # noqa: E402
from pictures import COLOURS, plt, save, style  # noqa: E402

DRAWN = ("stage 3, one ring", "stage 3, ring or levels", "mesh of a host", "hpZ", "8 bits between hosts", "offloaded, float32")
BANDS = ("stage 3, ring or levels", "8 bits between hosts")  # more of them would hide each other
TICKS = [world for world in planner.WORLDS if world != 1024]  # whose label would run into its neighbour's


def efficiency(fitted, path):
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), sharex=True, sharey=True)
    for ax, model in zip(axes.flat, predictions.MODELS):
        for colour, column in zip(COLOURS, DRAWN):
            bands = predictions.bands(model, column, fitted, predictions.SMALL)
            highs, lows = zip(*bands.values())
            ax.plot(list(bands), highs, "o-", color=colour, linewidth=1.4, markersize=3, label=column)
            if column in BANDS:
                ax.fill_between(list(bands), lows, highs, color=colour, alpha=0.15, linewidth=0)
        ax.set_xscale("log", base=2)
        ax.set_xticks(TICKS, [f"{world:,}" for world in TICKS])
        ax.set_ylim(0, 1.02)
        ax.set_title(f"{model.name} parameters", fontsize=9, loc="left")
        style(ax)
    for ax in axes[1]:
        ax.set_xlabel("GPUs (H100, 8 a host)")
    for ax in axes[:, 0]:
        ax.set_ylabel("simulated: compute in a step")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.0))
    figure.subplots_adjust(top=0.89, hspace=0.12, wspace=0.05)
    save(figure, path)


def checked(found, shared, path):
    """Errors of what was held out: a dot each, and the limits of the medians."""
    figure, ax = plt.subplots(figsize=(8.5, 4.6))
    names = [name for name in anchors.SETS if any(each.row.set == name and not each.row.fits for each in found)]
    for y, name in enumerate(names):
        errors = [100 * each.error for each in found if each.row.set == name and not each.row.fits]
        ax.plot(errors, [y] * len(errors), "o", color=COLOURS[0] if anchors.SETS[name].bound == anchors.COMPUTE else COLOURS[2], markersize=5, alpha=0.8)
    titles = [anchors.SETS[name].title for name in names]
    if shared is not None:
        points = [(100 * error, p) for p, _, error in same_host.residuals(shared)[1] if p["ranks"] not in same_host.FITTED]
        ax.plot([error for error, _ in points], [len(names)] * len(points), "s", color=COLOURS[4], markersize=5, alpha=0.8)
        titles.append("shared memory here, 4 and 8 processes")
    ax.set_yticks(range(len(titles)), titles)
    ax.invert_yaxis()
    ax.axvline(0, color="#555555", linewidth=0.8)
    ax.set_xlabel("error of the seconds in rows that were held out, %")
    style(ax)
    save(figure, path)


def start_up(found, path):
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharex=True)
    for colour, model in zip(COLOURS, predictions.MODELS):
        runs = [run for run in (planner.find(found, model.name, "stage 3", world) for world in planner.WORLDS) if "missing" not in run]
        for ax, key in zip(axes, ("seconds", "most_bytes")):
            phases = ("communicator", "declare", "estimate", "layout")
            values = [sum(max(0, run["phases"][phase][key]) for phase in phases) * (1e3 if key == "seconds" else 1e-6) for run in runs]
            ax.plot([run["world"] for run in runs], values, "o-", color=colour, markersize=4, label=model.name)
    for ax, label in zip(axes, ("measured: ms of a rank before commit", "measured: MB of a rank before commit")):
        ax.set_xscale("log", base=2)
        ax.set_xticks(TICKS, [f"{world:,}" for world in TICKS], fontsize=8)
        ax.set_ylim(bottom=0)
        ax.set_xlabel("ranks")
        ax.set_ylabel(label)
        style(ax)
    axes[0].legend(frameon=False, title="parameters")
    save(figure, path)
